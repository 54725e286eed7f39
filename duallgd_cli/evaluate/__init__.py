"""Metrics and statistics: from ranked candidates and the truth to numbers with intervals."""

from duallgd_cli.evaluate.metrics import Entry, Scores, score
from duallgd_cli.evaluate.settings import EvaluateSettings

__all__ = ["Entry", "EvaluateSettings", "Scores", "score"]
