"""How a run tells what it is doing."""

from typing import Protocol

from duallgd_cli.predict.prediction import Case


class Progress(Protocol):
    """Told about a run as it goes; what it does with that is its own business."""

    def started(self, description: str) -> None:
        """Work on a stage begins, such as ``predicting`` or ``writing``."""
        ...

    def finished(self, case: Case, n_spectra: int) -> None:
        """One hypothesis of a feature is in the journal.

        Args:
            case: The feature with this outcome alone.
            n_spectra: Spectra newly accounted for by it; 0 for further hypotheses.
        """
        ...

    def skipped(self, n_spectra: int) -> None:
        """A feature with this many spectra was found finished in the journal."""
        ...


class Silent:
    """Progress that nobody watches."""

    def started(self, description: str) -> None:
        """Do nothing."""

    def finished(self, case: Case, n_spectra: int) -> None:
        """Do nothing."""

    def skipped(self, n_spectra: int) -> None:
        """Do nothing."""
