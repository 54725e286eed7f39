"""Spectrum encoders: annotated peaks to fingerprint logits."""
