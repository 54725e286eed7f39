"""Checkpoints: self-contained safetensors files that hold no classes."""
