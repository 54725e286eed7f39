"""Arguments and options, those that several commands share written once, and what they stand for.

That is settings, a request, and the model that it is for.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from duallgd_cli.cli import display
from duallgd_cli.errors import UsageError
from duallgd_cli.files import STANDARD_STREAM, unpacked_name
from duallgd_cli.runtime import Runtime

if TYPE_CHECKING:
    from duallgd_cli.predict.model import LoadedModel
    from duallgd_cli.predict.settings import PredictRequest, PredictSettings

# Options by panel and name: type, help, and what else `typer.Option` is told. One that is not given
# is None (False of a flag), unless a default stands here: settings have theirs. What stands in the
# panel of arguments has no dashes, and must be given unless a default stands here.
Options: TypeAlias = Mapping[str, Mapping[str, tuple[Any, ...]]]
REQUIRED: Final = {"default": inspect.Parameter.empty}
ARGUMENTS: Final = "Arguments"
OPTIONS: Final = "Options"  # the panel of those that stand in no other
# What several commands share.
_SHARED: Final[Options] = {
    ARGUMENTS: {
        "spectra": (list[str], "MGF, mzML, mzXML, MSP, SIRIUS .ms, mzSpecLib, JSON or MassSpecGym "
            "TSV files, plain or .gz, .xz or .bz2, or folders of them; - reads standard input."),
    },
    "Common options": {
        "formula_col": (str, "Field of the file that holds the molecular formula. By default "
            "FORMULA, then MOLECULAR_FORMULA, then any field with FORMULA in its name."),
        "formula": (str, "One formula for every spectrum, such as C9H8O4; the word predict ignores "
            "the formulas of the files."),
        "formulas": (Path, "CSV or TSV table of formulas by feature id, as SIRIUS and msbuddy "
            "export it; several rows a feature are all tried."),
        "preset": (str, "fast, default or thorough: 30 samples in 6 steps, 100 in 10, 300 in 20. "
            "--samples, --steps and --config win over it.", {"show_default": "default"}),
        "samples": (int, "Molecules drawn per spectrum.", {"show_default": "100"}),
        "steps": (int, "Denoising steps per molecule, 1 to 500.", {"show_default": "10"}),
    },
    "Output": {
        "format": (str, "csv, tsv, jsonl, sdf or mztab; by default from the output's ending."),
        "top_k": (int, "Candidates written per spectrum.", {"show_default": "10"}),
        "certain": (float, "Probability from which on an answer counts as certain, for the column "
            "level.", {"metavar": "P", "show_default": "0.7"}),
        "report": (Path, "Write a page to look at, too: spectra, explained peaks, drawn "
            "candidates.", {"metavar": "HTML"}),
        "parts": (bool, "Write OUT.parts.csv, too: sugars, ring systems, functional groups ... "
            "that a structure contains, with probabilities. JSON lines hold them as well."),
        "summary": (list[str], "Write a table for another program beside the output, too: sirius "
            "(OUT.structure_identifications.tsv), mzmine (OUT.mzmine.csv) or gnps (OUT.gnps.tsv, "
            "nodes for Cytoscape). Repeat for several.", {"metavar": "FOR"}),
        "features": (Path, "Table of features of mzmine, MS-DIAL, SIRIUS, XCMS, OpenMS, "
            "MetaboScape, Progenesis QI or Compound Discoverer. It comes back as OUT.features.csv, "
            "answers beside its own columns; its adducts hold where the spectra name none.",
            {"metavar": "TABLE"}),
        "names": (Path, "TSV of InChIKey (or its first block), name and class: what candidates in "
            "it are called stands in tables, JSON lines and the page.", {"metavar": "TABLE"}),
        "force": (bool, "Replace files that exist."),
    },
    "Checks and peaks": {
        "adduct": (str, "Adduct of every spectrum, such as '[2M+Na]+' or '[M+K-2H]-', whatever the "
            "file says."),
        "formula_candidates": (int, "Most predicted formulas that structures are drawn for, 1 to "
            "20; those that hold 95 % of the probability share the samples.",
            {"show_default": "5"}),
        "elements": (str, "Elements of the formulas that are looked for, each with its largest "
            "number if one follows, such as CHNOPS or CHNOCl2.",
            {"show_default": "CHNOPSFClBrIBSiSe"}),
        "precursor_ppm": (float, "Largest difference between precursor m/z and formula, ppm. Where "
            "formulas are predicted, by default 5 for Orbitraps, and 100 at most.",
            {"show_default": "10.0"}),
        "ppm": (float, "Mass tolerance for explaining peaks, ppm. By default it follows the "
            "instrument: 7 for Orbitraps, 20 for Q-TOF instruments, else 10."),
    },
    "Scans of a run": {
        "group_by": (str, "run: scans of one ion that elutes (mzML, mzXML) are read together, and "
            "in other files spectra with the same feature id and precursor; feature: the latter "
            "alone; none: each spectrum alone.", {"show_default": "run"}),
        "by": (str, "compound: of ions of a run that surely are of one molecule the best alone is "
            "predicted; feature: all are.", {"show_default": "compound"}),
        "rt_window": (float, "Most time between one MS2 scan of a feature and the next. By default "
            "MS1 shows where an ion elutes; without MS1, three times the usual time between "
            "repeats.", {"metavar": "SECONDS"}),
        "rt": (str, "Retention times to read, in seconds: 60-600, 60-.", {"metavar": "FROM-TO"}),
        "mz": (str, "Precursor m/z to read: 100-800, -800.", {"metavar": "FROM-TO"}),
        "min_peaks": (int, "Fewest peaks of an MS2 scan that is read.", {"show_default": "1"}),
        "min_intensity": (float, "Least intensity of the precursor in MS1, or as the file gives "
            "it."),
    },
    "What you know": {
        "core": (str, "A substructure that is certain: candidates without it are left out. With "
            "attachment points (*) its other atoms have no further bonds.", {"metavar": "SMILES"}),
        "require": (list[str], "SMARTS, or a name such as hexose, that every candidate must have; "
            "may be repeated, as --forbid.", {"metavar": "PART"}),
        "forbid": (list[str], "SMARTS or name that no candidate may have.", {"metavar": "PART"}),
        "analogues": (list[Path], "Molecules that are like the unknown ones, to start samples "
            "from: .smi, .csv (smiles, name, feature_id) or .sdf; may be repeated, as --library.",
            {"metavar": "FILE"}),
        "library": (list[Path], "Spectral library with structures (.msp, .mgf, .json, ...). The "
            "structure of the best match is a candidate, as probable as such matches are right; "
            "those of similar spectra are analogues.", {"metavar": "FILE"}),
        "database": (list[str], "Structures that the molecule may be, in files as for --analogues "
            "or under a name ('duallgd database add'): those with the formula stand among the "
            "candidates, in one list with one probability; may be repeated.",
            {"metavar": "FILE|NAME"}),
        "database_share": (float, "How probable it is, before anything is measured, that the "
            "compound is in the --database: above 0, at most 1.",
            {"metavar": "P", "show_default": "0.6"}),
        "database_only": (bool, "Candidates are structures of the --database and nothing else."),
        "guide": (list[Path], "CSV or TSV of what is known of single features: feature_id, core, "
            "require, forbid, analogue; several values with | between them.", {"metavar": "FILE"}),
        "exclude_known": (bool, "Leave out the molecules that come with the weights, some "
            "thousands of public spectral libraries: for spectra that match no library.",
            {"default": None}),
    },
    "Sampling": {
        "seed": (int, "Random seed: same seed, same candidates.", {"show_default": "0"}),
    },
    "Machine": {
        "weights": (str, "Weights file or name. By default those that come with duallgd."),
        "device": (str, "auto, cpu, cuda, cuda:1 or mps.", {"default": "auto"}),
        "precision": (str, "auto, float32 or bfloat16.", {"default": "auto"}),
        "threads": (int, "CPU threads. By default the physical cores that the process may use."),
        "workers": (int, "Processes that predict spectra; results do not depend on them. By "
            "default one a thread and 3 GiB of memory, and beside a GPU at most 16, one for 2 GiB "
            "of its memory.", {"metavar": "K", "min": 1}),
        "max_memory": (int, "Working memory of the network, MiB.",
            {"metavar": "MIB", "show_default": "1024"}),
    },
    "Long runs": {
        "timeout_per_spectrum": (float, "Give up on a spectrum after this time; its row says so.",
            {"metavar": "SECONDS", "show_default": "no limit"}),
        "resume": (bool, "Continue an interrupted run of the same settings; what is finished is "
            "kept."),
        "shard": (str, "Predict the I-th of N parts, for job arrays; duallgd merge joins them.",
            {"metavar": "I/N"}),
        "journal": (Path, "Where finished spectra are kept as they come. By default beside the "
            "output."),
    },
    "Settings and messages": {
        "strict": (bool, "Exit with 1 if a spectrum was skipped."),
        "quiet": (bool, "Show errors only.", {"short": "-q"}),
        "config": (Path, "YAML file of settings."),
        "set_": (list[str], "Any setting by its dotted name; may be repeated.",
            {"metavar": "NAME=VALUE"}),
    },
}  # fmt: skip
# The settings that an option stands for: those of its own name by where they are, and others.
_BY_PLACE: Final = {
    "": "top_k certain seed group_by adduct formula formula_candidates require forbid",
    "sampling.": "core samples steps exclude_known",
    "features.": "by rt_window rt mz min_peaks min_intensity",
    "formula_search.": "elements",
}
_SETTINGS: Final = {
    **{name: (place + name,) for place, names in _BY_PLACE.items() for name in names.split()},
    "max_memory": ("sampling.max_memory_mib",),
    "timeout_per_spectrum": ("sampling.timeout_s",),
    "formula_col": ("formula_column",),
    "precursor_ppm": ("limits.precursor_ppm", "formula_search.precursor_ppm"),
    "ppm": ("annotation.ppm", "annotation.orbitrap_ppm", "annotation.qtof_ppm"),
}


def examples(text: str) -> str:
    """What stands below the help of a command: an example a line, then what is said of them."""
    lines, _, below = text.strip().partition("\n\n")
    return "\n\n".join(["**Examples**", *(f"- {line}" for line in lines.split("\n")), below])


def takes(
    names: str, own: Options = MappingProxyType({})
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command arguments and options by name, which its help has in this order.

    The command takes them as ``**keywords``, or as parameters with their plain types, and the
    context if it has one.
    """

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        context = inspect.signature(command).parameters.get("context")
        made = [] if context is None else [context]
        made += [_listed(name, own) for name in names.split()]
        command.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in made}
        return command

    return with_options


def _listed(name: str, own: Options) -> inspect.Parameter:
    """An argument, or an option; a flag that is off by default has no ``--no-`` of its own."""
    panels = (*own.items(), *_SHARED.items())
    panel, (kind, text, *more) = next((p, each[name]) for p, each in panels if name in each)
    default = inspect.Parameter.empty if panel == ARGUMENTS else False if kind is bool else None
    about = {"default": default, "help": text, "rich_help_panel": panel, **dict(*more)}
    default, short = about.pop("default"), about.pop("short", None)
    names = [f"--{name.strip('_').replace('_', '-')}", *filter(None, [short])]
    if panel == ARGUMENTS:
        described: object = typer.Argument(**{"show_default": False} | about)
    else:
        described = typer.Option(*(() if default is True else names), **about)
    keyword, annotation = inspect.Parameter.KEYWORD_ONLY, kind | None if default is None else kind
    annotation = Annotated[annotation, described]
    return inspect.Parameter(name, keyword, default=default, annotation=annotation)


def runtime_of(context: typer.Context, compile: str = "auto") -> Runtime:
    """Device, precision and threads that the options of a command stand for."""
    named = {name: context.params.get(name) for name in ("device", "precision", "threads")}
    given = {name: value for name, value in named.items() if value is not None}
    return Runtime.resolve(compile=compile, **given)


def by_setting() -> dict[str, str]:
    """The option that stands for each setting or file that has one, by dotted setting."""
    files = {"library": ("libraries",), "guide": ("tables",), "database": ("databases",)}
    files |= {"formulas": ("formulas",), "analogues": ("analogues",)}
    return {
        setting: f"--{name.replace('_', '-')}"
        for name, settings in (_SETTINGS | files).items()
        for setting in settings
    }


def reads(values: Mapping[str, Any]) -> tuple[Path, ...]:
    """Where a command reads settings and weights, for `files.claim`."""
    from duallgd_cli.checkpoint import resolve_weights

    config, weights = values.get("config"), values.get("weights")
    places = (config, None if weights is None else resolve_weights(weights))
    return tuple(place for place in places if place is not None)


def prediction_of(
    context: typer.Context, own: Mapping[str, object] = MappingProxyType({})
) -> "PredictSettings":
    """The settings of a command, which may have any of the options that stand for them.

    They come from a preset, then a YAML file, then options and the command's `own` values, by
    dotted setting and None where not given, then ``--set``; else they have their defaults.

    Raises:
        ConfigError: A setting is unknown, of the wrong type or out of range.
        UsageError: Options exclude each other, or there is no such preset.
    """
    from duallgd_cli import config
    from duallgd_cli.formulas import MOST_PPM
    from duallgd_cli.predict.settings import PredictSettings, preset_of

    values = context.params
    asked = {to: values[name] for name, stands in _SETTINGS.items() for to in stands
             if name in values}  # fmt: skip
    if (ppm := values.get("precursor_ppm")) is not None:
        asked["formula_search.precursor_ppm"] = min(ppm, MOST_PPM)
    share, only = values.get("database_share"), values.get("database_only")
    if only and share is not None:
        raise UsageError("--database-only is --database-share 1; give one of them")
    if (only or share is not None) and not values.get("database"):
        option = "--database-only" if only else "--database-share"
        raise UsageError(f"{option} needs a --database FILE of structures, or its name")
    asked["sampling.database_share"] = 1.0 if only else share
    plain: dict[str, Any] = {"sampling": preset_of(values.get("preset"))}
    if (file := values.get("config")) is not None:
        plain = config.merge(plain, config.read_mapping(file))
    for path, value in {**asked, **own}.items():
        if value not in (None, [], ()):  # nothing of an option that may be repeated
            plain = config.merge(plain, config.nested(path, value))
    return config.parse(
        PredictSettings, config.merge(plain, config.assigned(values.get("set_") or ()))
    )


def default_output(
    inputs: Sequence[str], format_name: str | None, results: str = "structures"
) -> str:
    """Where results go if nobody says: standard output for piped input, else a file here.

    The file is named after the first input and the kind of results, and lies in the working folder,
    since the folder of the data is often not the user's to write to.
    """
    if STANDARD_STREAM in inputs:
        return STANDARD_STREAM
    name = Path(inputs[0])
    name = name if name.name.strip(".") else name.resolve()  # a folder may be called . or ..
    return f"{Path(unpacked_name(name)).stem}.{results}.{format_name or 'csv'}"


def request_of(
    context: typer.Context,
    results: str = "structures",
    own: Mapping[str, object] = MappingProxyType({}),
) -> "PredictRequest":
    """What the options of a command ask for; see `default_output` and `prediction_of`."""
    from duallgd_cli.predict.settings import PredictRequest, Shard
    from duallgd_cli.sources.known import GuideFiles
    from duallgd_cli.spectra.reading import spectrum_files

    values = context.params

    def texts(name: str) -> tuple[str, ...]:
        return tuple(map(str, values.get(name) or ()))

    spectra = texts("spectra")
    guide = GuideFiles(texts("analogues"), texts("library"), texts("guide"), texts("database"))
    same = ("formulas", "features", "names", "resume", "journal", "parts", "force")
    return PredictRequest(
        inputs=spectrum_files(spectra) if spectra else texts("runs"),
        output=values["output"] or default_output(spectra, values["format"], results),
        format=values["format"] or "",
        guide=guide if guide != GuideFiles() else None,
        settings=prediction_of(context, own),
        shard=Shard.parse(values.get("shard") or "1/1"),
        workers=values.get("workers") or 1,
        summaries=texts("summary"),
        page=values.get("report"),
        reads=reads(values),
        **{name: values[name] for name in same if name in values},
    )


def load(
    context: typer.Context, request: "PredictRequest"
) -> "tuple[PredictRequest, LoadedModel, int | None]":
    """The model of a request, which gets as many workers as the machine takes unless the user said.

    With them comes how many spectra there are for a bar to count; None where nobody watches one,
    since the whole input is read for that.
    """
    from duallgd_cli.predict import api
    from duallgd_cli.spectra.features import count_spectra

    values = context.params
    runtime = runtime_of(context)
    if values["workers"] is None:
        request = replace(request, workers=runtime.default_workers)
    model = api.load(values["weights"], runtime=runtime)
    if not display.is_interactive(values["quiet"]):
        return request, model, None
    counted = request.inputs, *request.settings.grouping, request.shard.holds
    return request, model, count_spectra(*counted)
