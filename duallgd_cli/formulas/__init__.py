"""Formulas of an unknown: every one its precursor allows, ranked with probabilities."""
