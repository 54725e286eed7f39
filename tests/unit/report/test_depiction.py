"""Drawings: turned alike, in the page's colours, and nothing for what is no molecule."""

import numpy as np
import pytest

from duallgd_cli.chem.parts import molecule
from duallgd_cli.report import depiction

CAFFEINE = "Cn1c(=O)c2c(ncn2C)n(C)c1=O"
PLACES = (1, 3, 6, 8, 10, 13)
THEOPHYLLINE = "Cn1c(=O)c2[nH]cnc2n(C)c1=O"


def depictions(*smiles):
    """Drawings, with their atoms as arrays."""
    drawings = depiction.depictions([molecule(text) for text in smiles])
    return [one and one | {"atoms": np.array(one["atoms"])} for one in drawings]


@pytest.mark.parametrize(
    ("smiles", "labels"),
    [
        ("C", [(0, "C", 4, 0)]),  # nothing else would show it
        ("CC", []),
        ("[NH4+]", [(0, "N", 4, 1)]),
        ("[C-]#[O+]", [(0, "C", 0, -1), (1, "O", 0, 1)]),
        ("C[N+](C)(C)CCO", [(1, "N", 0, 1), (6, "O", 1, 0)]),
        ("CCCl", [(2, "Cl", 0, 0)]),
        (CAFFEINE, [(at, element, 0, 0) for at, element in zip(PLACES, "NONNNO", strict=True)]),
    ],
)
def test_labels_say_element_hydrogens_and_charge_and_all_is_inside_the_box(smiles, labels):
    (drawing,) = depictions(smiles)
    mol = molecule(smiles)

    assert [tuple(label[:4]) for label in drawing["labels"]] == labels
    assert drawing["atoms"].shape == (mol.GetNumAtoms(), 2)
    assert len(drawing["bonds"]) == mol.GetNumBonds()
    assert ((drawing["atoms"] >= 0) & (drawing["atoms"] <= drawing["box"])).all()


def test_hydrogens_stand_where_no_neighbour_is():
    (drawing,) = depictions("OCCCCCCO")

    left, right = sorted(drawing["labels"], key=lambda label: drawing["atoms"][label[0], 0])
    assert (left[-1], right[-1]) == ("l", "r")


def test_aromatic_bonds_are_single_and_double_and_the_second_line_is_inside_the_ring():
    benzene, ketone = depictions("c1ccccc1", "CC(C)=O")
    atoms, doubles = benzene["atoms"], [bond for bond in benzene["bonds"] if bond[2] == 2]

    assert [bond[2] for bond in benzene["bonds"]].count(1) == len(doubles) == 3
    for one, other, _, side in doubles:
        middle, way = (atoms[one] + atoms[other]) / 2, atoms[other] - atoms[one]
        to_centre = atoms.mean(0) - middle
        assert to_centre @ [-way[1], way[0]] * side > 0
    # At an end there is a line on each side.
    assert [bond for bond in ketone["bonds"] if bond[2] == 2] == [[1, 3, 2, 0]]


def test_candidates_are_turned_like_the_first_where_they_share_rings():
    shapes = []
    # N(methyl), C=O and both fusion atoms of the purine, in the numbering of each SMILES.
    for drawing, atoms in zip(
        depictions(CAFFEINE, THEOPHYLLINE), ([1, 2, 4, 5], [1, 2, 4, 8]), strict=True
    ):
        away = drawing["atoms"][atoms[1:]] - drawing["atoms"][atoms[0]]
        shapes.append(away / np.linalg.norm(away, axis=1)[:, None])

    assert shapes[0] == pytest.approx(shapes[1], abs=0.05)


def test_what_is_no_molecule_has_no_drawing_and_costs_no_other():
    drawings = depictions("not a molecule", "CCO", "", "O", "CC(C)CO")  # chains, too

    assert [one and len(one["atoms"]) for one in drawings] == [None, 3, None, 1, 5]
