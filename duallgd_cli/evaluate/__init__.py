"""Metrics and statistics: from ranked candidates and the truth to numbers with intervals."""

from duallgd_cli.evaluate.scoring import Entry, Scorer, Scores, score

__all__ = ["Entry", "Scorer", "Scores", "score"]
