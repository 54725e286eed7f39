"""What commands that predict or write predictions share.

Where output goes, what is said at the end or after Ctrl-C, and the exit code.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import typer

from duallgd_cli.cli import options
from duallgd_cli.errors import InterruptedRunError, UnreadableError, counted
from duallgd_cli.files import PACKED_ENDINGS, STANDARD_STREAM

if TYPE_CHECKING:
    from duallgd_cli.predict.model import LoadedModel
    from duallgd_cli.predict.run import RunSummary
    from duallgd_cli.predict.settings import PredictRequest, PredictSettings

logger = logging.getLogger(__name__)


@contextmanager
def interruptible(kept: str) -> Iterator[None]:
    """Ctrl-C inside ends the command with one sentence: what is `kept` and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise InterruptedRunError(f"stopped; {kept}") from None


def default_output(inputs: list[str], format_name: str | None, results: str = "structures") -> str:
    """Where results go if nobody says: standard output for piped input, else a file here.

    The file is named after the first input and the kind of results, and lies in the working folder,
    since the folder of the data is often not the user's to write to.
    """
    if STANDARD_STREAM in inputs:
        return STANDARD_STREAM
    name = Path(inputs[0])
    name = name if name.name.strip(".") else name.resolve()  # a folder may be called . or ..
    stem = Path(name.stem).stem if name.suffix in PACKED_ENDINGS else name.stem
    return f"{stem}.{results}.{format_name or 'csv'}"


def request_of(
    context: typer.Context, results: str, own: Mapping[str, object] = MappingProxyType({})
) -> "PredictRequest":
    """What the options of a command that predicts ask for; see `default_output`, `prediction_of`.

    Raises:
        UsageError: A setting is wrong, options exclude each other, or the request is impossible.
        WeightsError: There are no such weights.
    """
    from duallgd_cli.spectra.reading import spectrum_files

    spectra, output = context.params["spectra"], context.params["output"]
    output = output or default_output(spectra, context.params["format"], results)
    return request(context, spectrum_files(spectra), output, options.prediction_of(context, own))


def request(
    context: typer.Context,
    inputs: tuple[str, ...],
    output: str,
    settings: "PredictSettings | None" = None,
) -> "PredictRequest":
    """What the options of a command ask for, with settings if it has any."""
    from duallgd_cli.predict.settings import PredictRequest, PredictSettings, Shard
    from duallgd_cli.sources.known import GuideFiles

    values = context.params
    guide = GuideFiles(
        *(
            tuple(map(str, values.get(kind) or ()))
            for kind in ("analogues", "library", "guide", "database")
        )
    )
    same = ("formulas", "features", "names", "resume", "journal", "parts", "force")
    return PredictRequest(
        inputs=inputs,
        output=output,
        format=values["format"] or "",
        guide=guide if guide != GuideFiles() else None,
        settings=settings or PredictSettings(),
        shard=Shard.parse(values.get("shard") or "1/1"),
        workers=values.get("workers") or 1,
        summaries=tuple(values.get("summary") or ()),
        page=values.get("report"),
        reads=options.reads(values),
        **{name: values[name] for name in same if name in values},
    )


def load(
    context: typer.Context, request: "PredictRequest"
) -> "tuple[PredictRequest, LoadedModel, int | None]":
    """Load the weights of a command that predicts.

    Returns:
        The request with as many workers as the machine takes, unless the user said; the model; and
        how many spectra there are for a bar to count, None where nobody watches.
    """
    from duallgd_cli.predict import api
    from duallgd_cli.spectra.features import count_spectra

    values = context.params
    runtime = options.runtime_of(context)
    if values["workers"] is None:
        request = replace(request, workers=runtime.default_workers)
    model = api.load(values["weights"], runtime=runtime)
    total = None if values["quiet"] else count_spectra(request.inputs, *request.settings.grouping)
    if total is not None:
        total = -(-total // request.shard.count)  # about: features go to shards in turn
    return request, model, total


def report(summary: "RunSummary", context: typer.Context) -> None:
    """Say in one line how it went, and end as the documented exit codes promise.

    Raises:
        UnreadableError: No record of the inputs could be read.
        typer.Exit: With 1, if spectra were skipped and that was to be an error.
    """
    logger.info("%s", sentence(summary))
    if summary.n_spectra and not summary.n_ok:
        logger.warning("%s", nothing_found(summary))
    elif n_broken := summary.counts["unreadable"]:
        why = summary.messages.get("unreadable", "see the rows")
        logger.warning("%s cannot be read: %s", counted(n_broken, "record"), why)
    if set(+summary.counts) == {"unreadable"}:
        raise UnreadableError(f"none of {summary.n_spectra} records could be read; see the rows")
    if (
        context.params["strict"]
        and summary.n_ok + summary.counts["same_compound"] < summary.n_spectra
    ):
        raise typer.Exit(1)


def nothing_found(summary: "RunSummary") -> str:
    """Why no spectrum has candidates: what the first of the commonest status says."""
    status, count = max(summary.counts.items(), key=lambda item: (item[1], item[0]))
    them = "it is" if summary.n_spectra == 1 else f"{count} of {summary.n_spectra} are"
    said = summary.messages.get(status, "see the messages of the rows")
    return f"no spectrum has candidates; {them} {status}: {said}"


def sentence(summary: "RunSummary") -> str:
    """A run in one line: spectra by status, candidates, time and where things are."""
    others = [f"{count} {status}" for status, count in summary.counts.items() if status != "ok"]
    spectra = counted(summary.n_spectra, "spectrum", "spectra")
    words = [f"{summary.n_ok} of {spectra} with candidates"]
    words += [f"({', '.join(others)})"] if others else []
    if 0 < summary.n_features < summary.n_spectra:
        words.append(f"read as {counted(summary.n_features, 'feature')}")
    words.append(counted(summary.n_candidates, "candidate"))
    if summary.n_own:
        words.append(f"{summary.n_own_ranked} of your {counted(summary.n_own, 'structure')} ranked")
    if summary.n_resumed:
        words.append(f"{counted(summary.n_resumed, 'feature')} taken from the journal")
    if summary.n_ms1:
        words.append(f"{counted(summary.n_ms1, 'MS1 spectrum', 'MS1 spectra')} read for isotopes")
    if summary.seconds:
        words.append(f"{summary.seconds:.1f} s")
    said = ", ".join(words).replace(", (", " (")
    if summary.output == STANDARD_STREAM:
        return said
    merging = f"{summary.journal}; when every shard is done, join them with duallgd merge"
    return f"{said} -> {summary.output or merging}"
