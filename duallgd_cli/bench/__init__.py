"""How fast it is: growth of time and memory with the number of atoms, and throughput of predict."""
