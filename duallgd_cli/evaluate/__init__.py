"""Metrics and statistics: from ranked candidates and the truth to numbers with intervals."""

from duallgd_cli.evaluate.metrics import Scores, score
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.tables import Predicted, Truth

__all__ = ["EvaluateSettings", "Predicted", "Scores", "Truth", "score"]
