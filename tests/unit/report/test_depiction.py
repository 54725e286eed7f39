"""Drawings: turned alike, in the page's colours, and nothing for what is no molecule."""

import numpy as np
import pytest

from duallgd_cli.report.depiction import depictions

CAFFEINE = "Cn1c(=O)c2c(ncn2C)n(C)c1=O"
THEOPHYLLINE = "Cn1c(=O)c2[nH]cnc2n(C)c1=O"


def test_a_drawing_places_every_atom_inside_its_box():
    (drawing,) = depictions([CAFFEINE])
    atoms, (width, height) = np.array(drawing["atoms"]), drawing["box"]

    assert atoms.shape == (14, 2)
    assert len(drawing["bonds"]) == 15
    assert (atoms >= 0).all()
    assert (atoms <= [width, height]).all()
    assert {kind.split()[0] for kind, _ in drawing["paths"]} == {"s", "f"}


def ring_shape(drawing, atoms):
    """Directions from the first to the other atoms."""
    places = np.array(drawing["atoms"])[atoms]
    away = places[1:] - places[0]
    return away / np.linalg.norm(away, axis=1)[:, None]


def test_candidates_are_turned_like_the_first_where_they_share_rings():
    first, other = depictions([CAFFEINE, THEOPHYLLINE])
    # N(methyl), C=O and both fusion atoms of the purine, in the numbering of each SMILES.
    ours, theirs = [1, 2, 4, 5], [1, 2, 4, 8]

    assert ring_shape(first, ours) == pytest.approx(ring_shape(other, theirs), abs=0.05)


def test_what_is_no_molecule_has_no_drawing_and_costs_no_other():
    drawings = depictions(["not a molecule", "CCO", "", "O", "CC(C)CO"])  # chains, too

    assert drawings[0] is None
    assert drawings[2] is None
    assert len(drawings[1]["atoms"]) == 3
    assert [len(drawing["atoms"]) for drawing in drawings[3:]] == [1, 5]
