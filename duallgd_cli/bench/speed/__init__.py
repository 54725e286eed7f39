"""The scalability study: time, memory and operations of the network against the number of atoms."""
