"""From ranked candidates and the truth to numbers with intervals, and to a fitted ranking."""
