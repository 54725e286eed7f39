"""Parameters of the reference network by the authors' parts, beside what the paper says.

The paper counts the denoiser alone (its table of parameter counts, label ``tab:params``).
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final

import torch

from duallgd_cli.reference.denoiser import build
from duallgd_cli.reference.network import ReferenceDualLGD
from duallgd_cli.reference.settings import ReferenceDenoiserSettings, ReferenceSettings
from duallgd_cli.reference.tensor_names import DENOISER, theirs_of

# Row of the table -> the authors' modules in it, and the paper's count in millions, if any.
_ROWS: Final[dict[str, tuple[tuple[str, ...], float | None]]] = {
    "atom stream": (("primal_layers",), None),
    "bond stream": (("dual_layers",), 0.58),
    "cross-attention": (("p_from_d", "d_from_p"), 1.03),
    "global fusion": (("global_fuse",), 12.13),
    "global fusion norms": (("global_norm",), None),
    "bond stream start": (("dual_node_init",), None),
    "modulation": (("film_primal", "film_dual"), None),
    "inputs": (("mlp_in_X", "mlp_in_E", "mlp_in_y", "primal_struct_proj"), None),
    "bond readout": (("dual_out_E",), None),
    "global readout": (("mlp_out_y",), None),
}
_PAPER_TOTAL: Final = 67.56
# The other rows of the paper's table, in millions.
PAPER_OTHERS: Final = {"DiffMS": 53.18, "MBGen": 62.38}
ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class PartCount:
    """One row of the table.

    Attributes:
        parameters: Trainable numbers.
        paper_millions: What the paper says, None where it says nothing.
    """

    parameters: int
    paper_millions: float | None


def count_by_module(settings: ReferenceDenoiserSettings | None = None) -> dict[str, PartCount]:
    """Parameters of the reference denoiser by part, and of all of it.

    Args:
        settings: Sizes and variant; the released ones if None. Only for these does the paper give
            counts.

    Returns:
        Rows in the order of `_ROWS` that the variant has, then `ALL`.
    """
    with torch.device("meta"):  # shapes alone: no memory, no time
        network = build(settings or ReferenceDenoiserSettings())
    sizes = {name: parameter.numel() for name, parameter in network.named_parameters()}
    by_module = _by_first_word(sizes, theirs_of(sizes, DENOISER))
    released = settings in (None, ReferenceDenoiserSettings())
    rows = {}
    for name, (modules, paper) in _ROWS.items():
        count = sum(by_module[module] for module in modules)
        if count:
            rows[name] = PartCount(count, paper if released else None)
    rows[ALL] = PartCount(sum(sizes.values()), _PAPER_TOTAL if released else None)
    return rows


def count_beside(settings: ReferenceSettings | None = None) -> dict[str, int]:
    """Parameters of the parts that the paper does not count: spectrum encoder and projection.

    The encoder's frozen table is counted, as the authors do.

    Args:
        settings: Sizes; those of the smaller release (NPLIB1) if None.
    """
    with torch.device("meta"):
        network = ReferenceDualLGD(settings or ReferenceSettings())
    parts = {"encoder": network.encoder, "projection": network.projection}
    return {name: sum(p.numel() for p in part.parameters()) for name, part in parts.items()}


def _by_first_word(sizes: dict[str, int], theirs: dict[str, str | None]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for name, size in sizes.items():
        counts[str(theirs[name]).partition(".")[0]] += size
    return counts
