"""The noising process over bonds, and the drawing of graphs from it."""
