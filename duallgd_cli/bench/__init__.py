"""Benchmarks: accuracy on public data sets, speed, and ablations."""
