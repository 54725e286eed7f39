"""Public benchmarks: where their files are, how they are read, and what was published on them."""
