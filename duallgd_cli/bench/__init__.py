"""How time and memory of the network grow with the number of atoms."""
