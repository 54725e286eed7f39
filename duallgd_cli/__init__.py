"""Ranked molecular structures for a tandem mass spectrum of an unknown."""

__version__ = "0.1.0"
