"""The network: torch alone, no chemistry beyond the counts it is given."""
