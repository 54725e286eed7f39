"""Options that several commands share: each written once, and how settings come out of them."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar, get_args, get_origin

import typer

from duallgd_cli.errors import UsageError

if TYPE_CHECKING:
    from duallgd_cli.predict.settings import PredictSettings
    from duallgd_cli.sources.known import GuideFiles

S = TypeVar("S")

# An option in one of the panels of the help, the one that most need first; for what a command has
# of its own, too.
common, output, known, checks, runs, sampling, machine, long, messages, scored, scoring = (
    partial(typer.Option, rich_help_panel=panel)
    for panel in (
        *("Common options", "Output", "What you know", "Checks and peaks", "Scans of a run"),
        *("Sampling", "Machine", "Long runs", "Settings and messages", "What is scored", "Scoring"),
    )
)


def of_fields(settings: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each field of a dataclass that is annotated as one.

    The annotation holds what `typer.Option` is given. The command takes them as ``**keywords``.
    """

    def with_fields(command: Callable[..., None]) -> Callable[..., None]:
        keyword = inspect.Parameter.KEYWORD_ONLY
        context, *own = inspect.signature(command).parameters.values()
        parameters = [context]
        for field in fields(settings):
            if get_origin(field.type) is Annotated:
                kind, about = get_args(field.type)
                kind = list[Path] if kind == Sequence[Path] else kind
                is_flag = kind is bool and not field.default  # without a --no- of its own
                names = (f"--{field.name.replace('_', '-')}",) if is_flag else ()
                made = Annotated[kind, typer.Option(*names, **about)]  # type: ignore[valid-type]
                parameter = inspect.Parameter(
                    field.name, keyword, default=field.default, annotation=made
                )
                parameters.append(parameter)
        parameters += [each.replace(kind=keyword) for each in own if each.kind != each.VAR_KEYWORD]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return with_fields


Spectra = Annotated[
    list[str],
    typer.Argument(
        help="MGF, mzML, mzXML, MSP, SIRIUS .ms, mzSpecLib, JSON or MassSpecGym TSV files, plain "
        "or .gz, .xz or .bz2, or folders of them; - reads standard input.",
        show_default=False,
    ),
]
Force = Annotated[bool, output("--force", help="Replace files that exist.")]
Strict = Annotated[bool, messages("--strict", help="Exit with 1 if a spectrum was skipped.")]
GroupBy = Annotated[
    str | None,
    runs(
        help="run: scans of one ion that elutes (mzML, mzXML) are read together, and in other "
        "files spectra with the same feature id and precursor; feature: the latter alone; none: "
        "each spectrum alone.",
        show_default="run",
    ),
]
By = Annotated[
    str | None,
    runs(
        help="compound: of ions of a run that surely are of one molecule the best alone is "
        "predicted; feature: all are.",
        show_default="compound",
    ),
]
RtWindow = Annotated[
    float | None,
    runs(
        metavar="SECONDS",
        help="Most time between one MS2 scan of a feature and the next. By default MS1 shows where "
        "an ion elutes; without MS1, three times the usual time between repeats.",
    ),
]
Rt = Annotated[
    str | None, runs(metavar="FROM-TO", help="Retention times to read, in seconds: 60-600, 60-.")
]
Mz = Annotated[str | None, runs(metavar="FROM-TO", help="Precursor m/z to read: 100-800, -800.")]
MinPeaks = Annotated[
    int | None, runs(help="Fewest peaks of an MS2 scan that is read.", show_default="1")
]
MinIntensity = Annotated[
    float | None,
    runs(help="Least intensity of the precursor in MS1, or as the file gives it."),
]
FormulaColumn = Annotated[
    str | None,
    common(
        help="Field of the file that holds the molecular formula. By default FORMULA, then "
        "MOLECULAR_FORMULA, then any field with FORMULA in its name."
    ),
]
OneFormula = Annotated[
    str | None,
    common(
        help="One formula for every spectrum, such as C9H8O4; the word predict ignores the "
        "formulas of the files."
    ),
]
FormulaTable = Annotated[
    Path | None,
    common(
        help="CSV or TSV table of formulas by feature id, as SIRIUS and msbuddy export it; "
        "several rows a feature are all tried."
    ),
]
Adduct = Annotated[
    str | None,
    checks(
        help="Adduct of every spectrum, such as '[2M+Na]+' or '[M+K-2H]-', whatever the file says."
    ),
]
Elements = Annotated[
    str | None,
    checks(
        help="Elements of the formulas that are looked for, each with its largest number if one "
        "follows, such as CHNOPS or CHNOCl2.",
        show_default="CHNOPSFClBrIBSiSe",
    ),
]
PrecursorPpm = Annotated[
    float | None,
    checks(
        help="Largest difference between precursor m/z and formula, ppm. Where formulas are "
        "predicted, by default 5 for Orbitraps, and 100 at most.",
        show_default="10.0",
    ),
]
Preset = Annotated[
    str | None,
    common(
        help="fast, default or thorough: 30 samples in 6 steps, 100 in 10, 300 in 20. --samples, "
        "--steps and --config win over it.",
        show_default="default",
    ),
]
Samples = Annotated[int | None, common(help="Molecules drawn per spectrum.", show_default="100")]
Steps = Annotated[
    int | None, common(help="Denoising steps per molecule, 1 to 500.", show_default="10")
]
Seed = Annotated[
    int | None, sampling(help="Random seed: same seed, same candidates.", show_default="0")
]
Weights = Annotated[
    str | None, machine(help="Weights file or name. By default those that come with duallgd.")
]
Device = Annotated[str, machine(help="auto, cpu, cuda, cuda:1 or mps.")]
Precision = Annotated[str, machine(help="auto, float32 or bfloat16.")]
Threads = Annotated[
    int | None,
    machine(help="CPU threads. By default the physical cores that the process may use."),
]
Workers = Annotated[
    int | None,
    machine(
        min=1,
        metavar="K",
        help="Processes that predict spectra; results do not depend on them. By default one a "
        "thread and 3 GiB of memory, and beside a GPU at most 16, one for 2 GiB of its memory.",
    ),
]
MaxMemory = Annotated[
    int | None,
    machine(metavar="MIB", help="Working memory of the network, MiB.", show_default="1024"),
]
TimeoutPerSpectrum = Annotated[
    float | None,
    long(
        metavar="SECONDS",
        help="Give up on a spectrum after this time; its row says so.",
        show_default="no limit",
    ),
]
Database = Annotated[
    list[str] | None,
    known(
        metavar="FILE|NAME",
        help="Structures that the molecule may be, in files as for --analogues or under a name "
        "('duallgd database add'): those with the formula stand among the candidates, in one list "
        "with one probability; may be repeated.",
    ),
]
DatabaseShare = Annotated[
    float | None,
    known(
        metavar="P",
        help="How probable it is, before anything is measured, that the compound is in the "
        "--database: above 0, at most 1.",
        show_default="0.6",
    ),
]
DatabaseOnly = Annotated[
    bool,
    known("--database-only", help="Candidates are structures of the --database and nothing else."),
]
ExcludeKnown = Annotated[
    bool | None,
    known(
        "--exclude-known",
        help="Leave out the molecules that come with the weights, some thousands of public "
        "spectral libraries: for spectra that match no library.",
    ),
]
Resume = Annotated[
    bool,
    long(
        "--resume",
        help="Continue an interrupted run of the same settings; what is finished is kept.",
    ),
]
Shard = Annotated[
    str | None,
    long(
        metavar="I/N", help="Predict the I-th of N parts, for job arrays; duallgd merge joins them."
    ),
]
Parts = Annotated[
    bool,
    output(
        "--parts",
        help="Write OUT.parts.csv, too: sugars, ring systems, functional groups ... that a "
        "structure contains, with probabilities. JSON lines hold them as well.",
    ),
]
Summary = Annotated[
    list[str] | None,
    output(
        metavar="FOR",
        help="Write a table for another program beside the output, too: sirius "
        "(OUT.structure_identifications.tsv), mzmine (OUT.mzmine.csv) or gnps (OUT.gnps.tsv, nodes "
        "for Cytoscape). Repeat for several.",
    ),
]
Features = Annotated[
    Path | None,
    output(
        metavar="TABLE",
        help="Table of features of mzmine, MS-DIAL, SIRIUS, XCMS, OpenMS, MetaboScape, Progenesis "
        "QI or Compound Discoverer. It comes back as OUT.features.csv, answers beside its own "
        "columns; its adducts hold where the spectra name none.",
    ),
]
Names = Annotated[
    Path | None,
    output(
        metavar="TABLE",
        help="TSV of InChIKey (or its first block), name and class: what candidates in it are "
        "called stands in tables, JSON lines and the page.",
    ),
]
Quiet = Annotated[bool, messages("--quiet", "-q", help="Show errors only.")]
Config = Annotated[Path | None, messages(help="YAML file of settings.")]
Assignments = Annotated[
    list[str] | None,
    messages(
        "--set", metavar="NAME=VALUE", help="Any setting by its dotted name; may be repeated."
    ),
]


# The settings that an option stands for.
_SETTINGS: Final = {
    **{name: (name,) for name in ("top_k", "certain", "seed", "group_by", "adduct", "formula")},
    **{name: (name,) for name in ("formula_candidates", "require", "forbid")},
    **{name: (f"sampling.{name}",) for name in ("core", "samples", "steps", "exclude_known")},
    **{name: (f"features.{name}",) for name in ("by", "rt_window", "rt", "mz")},
    **{name: (f"features.{name}",) for name in ("min_peaks", "min_intensity")},
    "max_memory": ("sampling.max_memory_mib",),
    "timeout_per_spectrum": ("sampling.timeout_s",),
    "formula_col": ("formula_column",),
    "elements": ("formula_search.elements",),
    "precursor_ppm": ("limits.precursor_ppm", "formula_search.precursor_ppm"),
    "ppm": ("annotation.ppm", "annotation.orbitrap_ppm", "annotation.qtof_ppm"),
}


def by_setting() -> dict[str, str]:
    """The option that stands for each setting or file that has one, by dotted setting."""
    files = {"library": ("libraries",), "guide": ("tables",), "database": ("databases",)}
    files |= {"formulas": ("formulas",), "analogues": ("analogues",)}
    return {
        setting: f"--{name.replace('_', '-')}"
        for name, settings in {**_SETTINGS, **files}.items()
        for setting in settings
    }


def given(context: typer.Context, below: str = "") -> dict[str, object]:
    """Values of the options that a command has, by dotted setting; a list of nothing is None.

    Only of settings `below` a prefix, such as ``sampling.``.
    """
    return {
        setting: None if isinstance(value, list | tuple) and not value else value
        for name, value in context.params.items()
        for setting in _SETTINGS.get(name, ())
        if setting.startswith(below)
    }


def reads(
    *, config: Path | None = None, weights: str | None = None
) -> tuple[tuple[str, str | Path], ...]:
    """What a command reads of settings and weights, with what it is, for `files.claim`.

    Raises:
        WeightsError: There are no such weights.
    """
    from duallgd_cli.checkpoint import resolve_weights

    return (
        *((("an input, the settings", config),) if config is not None else ()),
        *((("an input, the weights", resolve_weights(weights)),) if weights is not None else ()),
    )


def guide_files(**files: Sequence[Path | str] | None) -> "GuideFiles | None":
    """Files that say what is known, by the names of `GuideFiles`; None without any."""
    from duallgd_cli.sources.known import GuideFiles

    given = {name: tuple(map(str, paths)) for name, paths in files.items() if paths}
    return GuideFiles(**given) if given else None


def prediction_of(context: typer.Context, config: Path | None) -> "PredictSettings":
    """The settings that the options of a command stand for, which may have any of them.

    Raises:
        ConfigError: A setting is unknown, of the wrong type or out of range.
        UsageError: Options exclude each other, or there is no such preset.
    """
    from duallgd_cli.formulas import MOST_PPM
    from duallgd_cli.predict.settings import PredictSettings, preset_of

    values, asked = context.params, given(context)
    if values.get("precursor_ppm") is not None:
        asked["formula_search.precursor_ppm"] = min(values["precursor_ppm"], MOST_PPM)
    share, only = values.get("database_share"), values.get("database_only")
    if only and share is not None:
        raise UsageError("--database-only is --database-share 1; give one of them")
    if (only or share is not None) and not values.get("database"):
        option = "--database-only" if only else "--database-share"
        raise UsageError(f"{option} needs a --database FILE of structures, or its name")
    asked["sampling.database_share"] = 1.0 if only else share
    preset = {"sampling": preset_of(values.get("preset"))}
    return settings_of(PredictSettings, config, asked, values["set_"] or (), preset)


def settings_of(
    cls: type[S],
    file: Path | None,
    given: Mapping[str, object],
    assignments: Sequence[str],
    preset: Mapping[str, object] | None = None,
) -> S:
    """Settings from a preset, then a YAML file, then options, then ``--set``; else defaults.

    Options stand by their dotted settings, None where they were not given.

    Raises:
        ConfigError: A setting is unknown, of the wrong type or out of range.
    """
    from duallgd_cli import config

    values = config.merge(preset or {}, config.read_mapping(file) if file is not None else {})
    for path, value in given.items():
        if value is not None:
            values = config.merge(values, config.nested(path, value))
    return config.parse(cls, config.merge(values, config.assigned(assignments)))
