"""Weights files in other formats than ours, which packages of their own read.

A package names an object with the functions of `Plugin` in the entry-point group `GROUP`. Plug-ins
are looked for only where a weights file is not in our format.
"""

from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from duallgd_cli.checkpoint.format import foreign_network
from duallgd_cli.errors import WeightsError, clip, quote

if TYPE_CHECKING:
    from duallgd_cli.predict.model import LoadedModel
    from duallgd_cli.runtime import Runtime

GROUP: Final = "duallgd.weights"
# What a file calls the network whose plug-in is in the repository.
_IN_REPOSITORY: Final = "reference"
_ZIP: Final = b"PK\x03\x04"  # how files of torch.save begin


class Plugin(Protocol):
    """What a plug-in does with weights files; a module with these functions is one."""

    def can_load(self, path: Path) -> bool:
        """Whether a file is one of the plug-in's; never raises."""

    def load(self, path: Path, runtime: "Runtime") -> "LoadedModel":
        """Load the file for prediction; WeightsError if it is broken, or cannot predict."""

    def describe(self, path: Path) -> Mapping[str, Any]:
        """The facts that `duallgd info` prints of a file, by title, nested; WeightsError if broken.

        ``weights`` has ``name``, ``sha256`` and ``network``; ``parameters`` counts them by module.
        """


def plugin_for(path: Path) -> Plugin | None:
    """The installed plug-in that reads a weights file; None for a file in our format.

    That nothing which is installed reads it is a WeightsError with the next step.
    """
    try:
        network = foreign_network(path)
        if network is None:
            return None
        refusal = WeightsError(
            f"weights {path} hold the authors' network, which a plug-in reads; in a clone of "
            "duallgd run 'pip install ./plugins/authors_network'"
            if network == _IN_REPOSITORY
            else f"weights {path} hold the network {quote(network)}, which nothing that is "
            "installed reads; install the package that wrote them"
        )
    except WeightsError as error:
        if not path.is_file():
            raise
        refusal = error
        with path.open("rb") as stream:
            if stream.read(len(_ZIP)) == _ZIP:
                refusal = WeightsError(
                    f"weights {path} are a file of torch.save, which is not read here; in a clone "
                    "of duallgd run 'pip install ./plugins/authors_network', then convert a "
                    "checkpoint of the authors by 'python -m duallgd_authors_network convert'"
                )
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            plugin: Plugin = entry.load()
        except Exception as error:
            raise WeightsError(
                f"the plug-in {quote(entry.name)} cannot be imported ({clip(str(error))}); install "
                "it again or uninstall it"
            ) from error
        if plugin.can_load(path):
            return plugin
    raise refusal
