"""A larger encoder that begins as a trained, smaller one: the same function, more to learn with.

Channels of a token are repeated, since layer normalisation looks at all of them; what reads two
copies splits its weight between them at random, so that they part as soon as training goes on.
Hidden units and layers are added with nothing read from them.
"""

from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from duallgd_cli.errors import UsageError
from duallgd_cli.model.encoder import FormulaTransformer
from duallgd_cli.model.settings import EncoderSettings

# What linear maps read and write: tokens, hidden units of their own, or neither.
_MAPS: Final = {
    "peak_in": ("", "hidden"), "parent_in": ("", "hidden"), "pool": ("token", ""),
    "peak_out": ("hidden", "token"), "parent_out": ("hidden", "token"), "down": ("hidden", "token"),
    "qkv": ("token", "token"), "out": ("token", "token"),
    "up": ("token", "hidden"), "hidden": ("token", "hidden"), "fingerprint": ("hidden", ""),
}  # fmt: skip
_EMBEDDINGS: Final = ("carrier", "adduct", "instrument")
_LAST_OF_BRANCH: Final = (".out.", ".down.")


@torch.no_grad()
def grow(
    small: dict[str, Tensor], before: EncoderSettings, after: EncoderSettings, seed: int
) -> dict[str, Tensor]:
    """Parameters of a larger encoder that gives the logits of a smaller one.

    Args:
        small: Parameters of the smaller encoder, by name.
        before: Its sizes.
        after: Sizes of the larger one: width a multiple, heads and bits the same, layers and
            summary no fewer.
        seed: Of the new weights.

    Raises:
        UsageError: The sizes do not allow it.
    """
    same = replace(after, width=before.width, layers=before.layers, summary=before.summary)
    fits = replace(same, dropout=before.dropout) == before and not after.width % before.width
    if not fits or after.layers < before.layers or after.summary < before.summary:
        raise UsageError(
            "an encoder grows to a multiple of its width, with as many heads and bits and no "
            "fewer layers and summary channels; leave its sizes out of --set and --config, or "
            f"choose others than {after} for {before}"
        )
    torch.manual_seed(seed)
    large = FormulaTransformer(after).state_dict()
    for name, tensor in large.items():
        if name in small:
            large[name] = _grown(name, small[name], tensor, after.width // before.width)
        elif any(part in name for part in _LAST_OF_BRANCH):
            tensor.zero_()  # an added layer changes nothing yet
    return large


def _grown(name: str, small: Tensor, drawn: Tensor, times: int) -> Tensor:
    """One parameter: copies of the smaller one's, and drawn numbers where it has none."""
    part, _, kind = name.rpartition(".")
    part = part.rpartition(".")[2]
    if part in _EMBEDDINGS:
        return small.repeat_interleave(times, -1)
    reads, writes = _MAPS.get(part, ("", "token"))
    if writes == "token":
        small = small.repeat_interleave(times, 0)
    if part == "qkv" and times > 1:  # scores are sums over as many copies, divided by its root
        query, rest = small.split((len(small) // 3, 2 * len(small) // 3))
        small = torch.cat([query * times**-0.5, rest])
    if kind == "bias" or part not in _MAPS:
        return torch.cat([small, drawn[len(small) :]])
    if reads == "token":
        share = torch.rand(small.shape[1], times) + 0.5
        split = (small.unsqueeze(-1) * share / share.sum(-1, keepdim=True)).flatten(1)
    else:
        split = torch.cat([small, torch.zeros(len(small), drawn.shape[1] - small.shape[1])], 1)
    return torch.cat([split, drawn[len(small) :]])
