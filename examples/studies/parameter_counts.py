"""Parameters of the authors' network by part, beside what the paper says of them.

    python examples/studies/parameter_counts.py
    python examples/studies/parameter_counts.py --set synchronisation=none

The paper counts the denoiser alone (its table of parameter counts, label ``tab:params``). Of the
released sizes its figures stand beside ours; of an ablation there are none.
"""

from typing import Annotated, Final

import command
import torch
import typer
from rich.table import Table
from their_network import (
    ReferenceDenoiser,
    ReferenceDenoiserSettings,
    ReferenceSettings,
    weights_file,
)

from duallgd_cli import config
from duallgd_cli.model.duallgd import parameter_counts

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


def count_by_module(
    settings: ReferenceDenoiserSettings | None = None,
) -> dict[str, tuple[int, float | None]]:
    """Parameters of the reference denoiser by part, and of all of it.

    Args:
        settings: Sizes and variant; the released ones if None. Only for these does the paper give
            counts.

    Returns:
        Trainable numbers, and what the paper says in millions or None where it says nothing: in the
        order of `_ROWS`, as far as the variant has them, then of "all".
    """
    released = settings in (None, ReferenceDenoiserSettings())
    with torch.device("meta"):  # shapes alone: no memory, no time
        network = ReferenceDenoiser(settings or ReferenceDenoiserSettings())
    by_module = parameter_counts(network, depth=1)
    rows: dict[str, tuple[int, float | None]] = {}
    for name, (modules, paper) in _ROWS.items():
        if count := sum(by_module.get(module, 0) for module in modules):
            rows[name] = (count, paper if released else None)
    return rows | {"all": (sum(by_module.values()), _PAPER_TOTAL if released else None)}


def count_beside(settings: ReferenceSettings | None = None) -> dict[str, int]:
    """Parameters of the parts that the paper does not count: spectrum encoder and projection.

    The encoder's frozen table is counted, as the authors do.

    Args:
        settings: Sizes; those of the smaller release (NPLIB1) if None.
    """
    with torch.device("meta"):
        network = weights_file.ReferenceDualLGD(
            settings or ReferenceSettings(), ("encoder", "projection")
        )
    return parameter_counts(network, depth=1)


def main(
    sizes: Annotated[
        list[str] | None,
        typer.Option("--set", help="A size or switch of the denoiser, such as layers=4."),
    ] = None,
) -> None:
    """Count the parameters of the authors' network."""
    settings = config.parse(ReferenceDenoiserSettings, config.assigned(sizes or []))
    table = Table("part", "parameters", "paper, millions", title="the authors' denoiser")
    for name, (count, paper) in count_by_module(settings).items():
        table.add_row(name, f"{count:,}", f"{paper or ''}")
    beside = (
        f"{name}: {count:,}, not counted by the paper" for name, count in count_beside().items()
    )
    others = (f"{name}: {count} million by the paper" for name, count in PAPER_OTHERS.items())
    command.show(table, *beside, *others)


if __name__ == "__main__":
    command.run(main)
