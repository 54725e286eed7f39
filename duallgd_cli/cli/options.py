"""Options that several commands share: each written once, and how settings come out of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

import typer

from duallgd_cli.errors import UsageError, quote

S = TypeVar("S")

# Panels of the help, the one that most need first.
COMMON: Final = "Common options"
OUTPUT: Final = "Output"
KNOWN: Final = "What you know"
INPUT: Final = "Checks and peaks"
SAMPLING: Final = "Sampling"
MACHINE: Final = "Machine"
LONG: Final = "Long runs"
MESSAGES: Final = "Settings and messages"

Spectra = Annotated[
    list[str],
    typer.Argument(
        help="MGF, mzML, mzXML, MSP, SIRIUS .ms or MassSpecGym TSV files, plain or .gz, .xz or "
        ".bz2; - reads standard input.",
        show_default=False,
    ),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Replace an output that exists.", rich_help_panel=OUTPUT),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Exit with 1 if a spectrum was skipped.", rich_help_panel=MESSAGES
    ),
]
GroupBy = Annotated[
    str | None,
    typer.Option(
        help="feature: spectra with the same feature id and precursor (collision energies) are "
        "read together; none: each alone.",
        show_default="feature",
        rich_help_panel=INPUT,
    ),
]
Elements = Annotated[
    str | None,
    typer.Option(
        help="Elements of the formulas that are looked for, each with its largest number if one "
        "follows, such as CHNOPS or CHNOCl2.",
        show_default="CHNOPSFClBrIBSiSe",
        rich_help_panel=INPUT,
    ),
]
Samples = Annotated[
    int | None,
    typer.Option(help="Molecules drawn per spectrum.", show_default="100", rich_help_panel=COMMON),
]
Steps = Annotated[
    int | None,
    typer.Option(
        help="Denoising steps per molecule, 1 to 500.", show_default="10", rich_help_panel=COMMON
    ),
]
Schedule = Annotated[
    str | None,
    typer.Option(
        help="quadratic, uniform, or the time steps themselves, such as 500,250,100,0. By default "
        "that of the weights.",
        rich_help_panel=SAMPLING,
    ),
]
TimeShift = Annotated[
    float | None,
    typer.Option(
        help="Timestep offset against exposure bias, as a share of all noise steps, 0 to below 1: "
        "the network then trusts less what it drew itself. By default that of the weights.",
        rich_help_panel=SAMPLING,
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        help="Below 1 draws the likelier molecules more often.",
        show_default="1.0",
        rich_help_panel=SAMPLING,
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        help="Weights file or name. By default those that come with duallgd.",
        rich_help_panel=MACHINE,
    ),
]
Device = Annotated[
    str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.", rich_help_panel=MACHINE)
]
Precision = Annotated[str, typer.Option(help="auto, float32 or bfloat16.", rich_help_panel=MACHINE)]
Threads = Annotated[
    int | None,
    typer.Option(
        help="CPU threads. By default the physical cores that the process may use.",
        rich_help_panel=MACHINE,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="K",
        help="Processes that turn drawn graphs into molecules; results do not depend on them. By "
        "default 1 on a CPU, and with a GPU all cores but one, 16 at most.",
        rich_help_panel=MACHINE,
    ),
]
MaxMemory = Annotated[
    int | None,
    typer.Option(
        metavar="MIB",
        help="Working memory of the network, MiB.",
        show_default="1024",
        rich_help_panel=MACHINE,
    ),
]
TimeoutPerSpectrum = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="Give up on a spectrum after this time; its row says so.",
        show_default="no limit",
        rich_help_panel=LONG,
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Continue an interrupted run of the same settings; finished spectra are kept.",
        rich_help_panel=LONG,
    ),
]
Shard = Annotated[
    str | None,
    typer.Option(
        metavar="I/N",
        help="Predict the I-th of N parts, for job arrays; duallgd merge joins them.",
        rich_help_panel=LONG,
    ),
]
Parts = Annotated[
    bool,
    typer.Option(
        "--parts",
        help="Write OUT.parts.csv, too: sugars, ring systems, functional groups ... that a "
        "structure contains, with probabilities. JSON lines hold them as well.",
        rich_help_panel=OUTPUT,
    ),
]
Summary = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FOR",
        help="Write a table for another program beside the output, too: sirius "
        "(OUT.structure_identifications.tsv), mzmine (OUT.mzmine.csv) or gnps (OUT.gnps.tsv, nodes "
        "for Cytoscape). Repeat for several.",
        rich_help_panel=OUTPUT,
    ),
]
Rows = Annotated[
    str,
    typer.Option(
        help="feature: spectra read together get one block of candidates, their indices are in a "
        "column; spectrum: each gets its own.",
        rich_help_panel=OUTPUT,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show errors only.", rich_help_panel=MESSAGES)
]
JsonLog = Annotated[
    bool,
    typer.Option(
        "--json-log",
        help="Messages and progress as JSON lines on standard error.",
        rich_help_panel=MESSAGES,
    ),
]
Config = Annotated[
    Path | None, typer.Option(help="YAML file of settings.", rich_help_panel=MESSAGES)
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any setting by its dotted name; may be repeated.",
        rich_help_panel=MESSAGES,
    ),
]


def rows_of(text: str) -> Literal["feature", "spectrum"]:
    """What `--rows` says.

    Raises:
        UsageError: Neither feature nor spectrum.
    """
    if text == "feature":
        return "feature"
    if text == "spectrum":
        return "spectrum"
    raise UsageError(f"rows must be feature or spectrum, not {quote(text)}")


def settings_of(
    cls: type[S], file: Path | None, given: Mapping[str, object], assignments: Sequence[str]
) -> S:
    """Settings from a YAML file, then options, then ``--set`` assignments; defaults for the rest.

    Args:
        cls: A settings dataclass.
        file: YAML file, or None.
        given: Option values by dotted setting; None means that the option was not given.
        assignments: Such as ``sampling.steps=50``.

    Raises:
        ConfigError: A setting is unknown, of the wrong type or out of range.
    """
    from duallgd_cli import config

    values = config.read_mapping(file) if file is not None else {}
    for path, value in given.items():
        if value is not None:
            values = config.merge(values, config.nested(path, value))
    return config.parse(cls, config.merge(values, config.assigned(assignments)))
