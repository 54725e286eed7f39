"""`duallgd report`: a finished run to look at."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from duallgd_cli.cli import display, options
from duallgd_cli.errors import counted
from duallgd_cli.stopping import interruptible, loading

EPILOG = options.examples("""
`duallgd report out.csv -o out.html`, then open out.html in a browser
`duallgd report out.csv` (after `duallgd predict ... -o out.csv --shard 1/8` to `8/8`)
`duallgd predict spectra.mgf -o out.csv --report out.html` (both at once)
`duallgd report out.csv --names names.tsv` (InChIKey, name and class of what you know)
""")

logger = logging.getLogger(__name__)

_OPTIONS: Final[options.Options] = {
    options.ARGUMENTS: {
        "runs": (list[Path], "Output of a finished run, its journal beside it; or the journals by "
            "name."),
    },
    options.OPTIONS: {
        "output": (Path, "HTML file to write. By default the output's name with .html at its end.",
            {"short": "-o"}),
        "top_k": (int, "Candidates drawn per feature, if the run wrote as many. By default 10; of "
            "more than 1,000 features 3, and 7 are listed.", {"min": 1}),
    }
}  # fmt: skip


@options.takes("runs output top_k names force quiet", _OPTIONS)
def report(
    *,
    runs: list[Path],
    output: Path | None,
    top_k: int | None,
    names: Path | None,
    force: bool,
    quiet: bool,
) -> None:
    """Write a page that shows spectra, explained peaks and candidates of a finished run.

    One file that opens in any browser, without a server and without the network; of more than
    1,000 features an index, and a folder of pages beside it. Features can be sorted and searched;
    pointing at a candidate marks its peaks, pointing at a peak marks its atoms. All of it is in the
    journal of the run: the spectra are not read again.
    """
    display.configure_logging(quiet)
    with loading():
        from duallgd_cli.predict.settings import ENDING
        from duallgd_cli.writers.names import Names
    with interruptible("nothing was written; the same command starts again"):
        if names is not None:
            Names.read(names)
        run = runs[0].with_name(runs[0].name.removesuffix(ENDING))
        write_page(runs, output or run.with_suffix(".html"), names, top_k, force=force)


def write_page(
    runs: Sequence[Path],
    page: Path,
    names: Path | None,
    top_k: int | None = None,
    *,
    force: bool = False,
) -> None:
    """Write the page of a finished run, and say in one line how to look at it."""
    from duallgd_cli.predict.run import workers_for
    from duallgd_cli.report import write_report

    given, workers = options.by_setting(), workers_for(runs)
    report = write_report(runs, page, top_k, workers, names=names, options=given, force=force)
    mib = report.size_bytes / (1 << 20)
    pages = f" and {counted(report.n_pages, 'page')} in {report.folder}" if report.n_pages else ""
    logger.info(
        "%s, %.1f MiB -> %s%s; open it in a browser",
        *(counted(report.n_features, "feature"), mib, report.page, pages),
    )
