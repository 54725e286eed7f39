"""What the authors' checkpoints say beside their tensors: noise process, vocabulary, switches.

It lies in pickled settings and data-set statistics, which arrive as inert records.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from torch import Tensor

from duallgd_cli.errors import WeightsError, quote
from duallgd_cli.reference.recorded_sizes import RELEASED_FEATURES, RELEASED_HEADS, SWITCHES
from duallgd_cli.reference.settings import ReferenceSettings
from duallgd_cli.reference.unpickle import Record

_RELEASED: Final = ReferenceSettings()
_HEADS: Final = ("primal_heads", "dual_heads", "cross_heads")
_DEPTH: Final = 50


@dataclass(frozen=True)
class Protocol:
    """What a network was trained with, as far as its tensors do not show it.

    Attributes:
        n_steps: Noise steps T.
        marginal: Bond-class shares of its training set.
        max_atoms: Largest number of atoms in its data.
        atom_symbols: Its vocabulary.
        heads: Attention heads.
        n_features: Random features of a head.
        switches: The authors' switches, by their names.
    """

    n_steps: int = _RELEASED.n_steps
    marginal: tuple[float, ...] = _RELEASED.marginal
    max_atoms: int = _RELEASED.max_atoms
    atom_symbols: tuple[str, ...] = _RELEASED.atom_symbols
    heads: int = RELEASED_HEADS
    n_features: int = RELEASED_FEATURES
    switches: dict[str, object] = field(default_factory=dict)


def protocol_of(content: Mapping[str, Any]) -> Protocol:
    """Read the settings and statistics of a checkpoint that holds a decoder.

    Args:
        content: Top level of the file.

    Raises:
        WeightsError: They are missing or of a form that is not supported.
    """
    given = plain(content.get("hyper_parameters"))
    if not isinstance(given, Mapping):
        raise WeightsError(
            "the checkpoint has no hyper_parameters, which alone hold the bond marginals and the "
            "largest atom count; convert the Lightning checkpoint, not bare weights"
        )
    statistics = _mapping(given, "dataset_infos")
    model = _mapping(_mapping(given, "cfg"), "model")
    switches = model.get("duallgd")
    switches = switches if isinstance(switches, Mapping) else {}
    _expect(model, "transition", "marginal")
    _expect(model, "diffusion_noise_schedule", "cosine")
    _expect(model, "extra_features", "all")
    return Protocol(
        n_steps=_whole(model.get("diffusion_steps", _RELEASED.n_steps), "diffusion_steps"),
        marginal=_marginal(statistics),
        max_atoms=_whole(statistics.get("max_n_nodes"), "max_n_nodes"),
        atom_symbols=_symbols(statistics),
        heads=_heads(model, switches),
        n_features=_whole(switches.get("performer_num_features", RELEASED_FEATURES), "features"),
        switches={name: switches[name] for name in SWITCHES if name in switches},
    )


def plain(value: object, depth: int = 0) -> object:
    """Plain values of nested records: settings trees as mappings, other objects as attributes."""
    if depth > _DEPTH:
        return None
    if isinstance(value, Record):
        return _plain_record(value, depth)
    if isinstance(value, Mapping):
        return {str(k): plain(v, depth + 1) for k, v in value.items() if k != "_parent"}
    if isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in value]
    return value


def _plain_record(record: Record, depth: int) -> object:
    """A settings tree keeps children in `_content` and each value in `_val`."""
    attributes = record.attributes
    for name in ("_content", "_val"):
        if name in attributes:
            return plain(attributes[name], depth + 1)
    if record.entries:
        return plain(record.entries, depth + 1)
    if record.contents:
        return plain(record.contents, depth + 1)
    return plain(attributes, depth + 1)


def _mapping(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = values.get(name)
    if not isinstance(found, Mapping):
        raise WeightsError(f"the checkpoint's hyper_parameters hold no {name}")
    return found


def _expect(model: Mapping[str, Any], name: str, value: str) -> None:
    found = model.get(name, value)
    if found != value:
        raise WeightsError(f"the weights were trained with {name}={found}; only {value} is known")


def _whole(value: object, name: str) -> int:
    number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
    if not isinstance(number, int | float) or number != int(number):
        raise WeightsError(f"the checkpoint's {name} is {quote(value)}, expected a whole number")
    return int(number)


def _marginal(statistics: Mapping[str, Any]) -> tuple[float, ...]:
    counts = statistics.get("edge_types")
    if not isinstance(counts, Tensor) or counts.dim() != 1:
        raise WeightsError("the checkpoint's dataset_infos hold no edge_types, the bond marginals")
    # Reference: single precision first, then the sum, as the authors do it.
    share = counts.float()
    return tuple((share / share.sum()).tolist())


def _symbols(statistics: Mapping[str, Any]) -> tuple[str, ...]:
    symbols = statistics.get("atom_decoder")
    if not isinstance(symbols, list) or not all(isinstance(s, str) for s in symbols):
        raise WeightsError("the checkpoint's dataset_infos hold no atom_decoder, the vocabulary")
    return tuple(symbols)


def _heads(model: Mapping[str, Any], switches: Mapping[str, Any]) -> int:
    hidden = model.get("hidden_dims")
    default = (
        hidden.get("n_head", RELEASED_HEADS) if isinstance(hidden, Mapping) else RELEASED_HEADS
    )
    heads = {_whole(switches.get(name, default), name) for name in _HEADS}
    if len(heads) != 1:
        raise WeightsError(f"the streams have different numbers of heads, {sorted(heads)}")
    return heads.pop()
