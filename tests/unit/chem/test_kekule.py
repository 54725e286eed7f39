import itertools

from duallgd_cli.chem.valence import match


def neighbours_of(n, bonds):
    masks = [0] * n
    for a, b in bonds:
        masks[a] |= 1 << b
        masks[b] |= 1 << a
    return masks


def ring(n):
    return [(i, (i + 1) % n) for i in range(n)]


def mask(atoms):
    return sum(1 << atom for atom in atoms)


def test_a_first_choice_that_fails_is_taken_back():
    # Two rings joined by a bond that a greedy pairing may not use.
    bonds = [*ring(6), *((a + 6, b + 6) for a, b in ring(6)), (0, 6)]

    for excluded in itertools.combinations(range(12), 2):
        atoms = mask(set(range(12)) - set(excluded))
        found = match(atoms, neighbours_of(12, bonds))
        assert (found is not None) == pairs_exist(set(range(12)) - set(excluded), bonds)


def pairs_exist(atoms, bonds):
    if not atoms:
        return True
    atom = min(atoms)
    partners = {a if b == atom else b for a, b in bonds if atom in (a, b)} & atoms
    return any(pairs_exist(atoms - {atom, partner}, bonds) for partner in partners - {atom})
