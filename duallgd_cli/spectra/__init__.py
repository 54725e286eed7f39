"""Spectra without tensors."""
