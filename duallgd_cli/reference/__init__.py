"""The authors' network, number for number, so that their released weights give their results.

Padding is masked throughout, so a graph's result does not depend on its batch, and what no output
depends on exists as parameters only. It reads the true order of the atoms when it is run as the
authors run it; it is never the default.
"""
