import numpy as np
import pytest

from duallgd_cli.evaluate import score
from duallgd_cli.evaluate.stratify import Descriptors, describe, strata
from duallgd_cli.evaluate.tables import Truth

NAPHTHYL = "CC(=O)Nc1ccc2ccccc2c1"


def truth(spectrum_id, smiles="CCO", **fields):
    return Truth(spectrum_id, smiles, smiles, fields)


def groups(truths, by, extra=None):
    scores = score([(t.spectrum_id, t.molecule, t.smiles, [t.smiles]) for t in truths])
    found = strata(scores, truths, ["accuracy@1"], extra)
    return [(group.label, group.spectra) for group in found if group.by == by]


@pytest.mark.parametrize(
    ("smiles", "by_hand"),
    [
        ("CCO", Descriptors(3, 0, 0, 1)),
        (NAPHTHYL, Descriptors(14, 2, 2, 2)),
        ("C1CCCCC1c1ccncc1", Descriptors(12, 2, 1, 1)),
        ("ClC(Cl)Cl", Descriptors(4, 0, 0, 3)),
    ],
)
def test_atoms_and_rings_are_counted(smiles, by_hand):
    assert describe(smiles) == by_hand


def test_bins_of_the_paper():
    chains = {str(n): "C" * n for n in (15, 16, 20, 21, 45, 46)}
    truths = [truth(name, smiles) for name, smiles in chains.items()]

    assert groups(truths, "heavy_atoms") == [
        ("<= 15", 1),
        ("16-20", 2),
        ("21-25", 1),
        ("41-45", 1),
        (">= 46", 1),
    ]
    assert groups(truths, "rings") == [("0", 6)]


def test_polarity_follows_the_adduct_and_else_the_table():
    truths = [
        truth("a", adduct="[M+H]+"),
        truth("b", adduct="[M-H]-"),
        truth("c", ion_mode="negative"),
        truth("d"),
    ]

    assert groups(truths, "polarity") == [("negative", 2), ("positive", 1), ("missing", 1)]


def test_energies_are_binned_as_numbers_and_text_is_missing():
    texts = ("10", "10.5", "35", "120", "", "ramp")
    truths = [truth(str(i), collision_energy=text) for i, text in enumerate(texts)]

    assert groups(truths, "collision_energy") == [
        ("<= 10 eV", 1),
        ("10-20 eV", 1),
        ("30-45 eV", 1),
        ("> 60 eV", 1),
        ("missing", 2),
    ]


def test_further_numbers_may_be_missing():
    truths = [truth("a"), truth("b"), truth("c")]
    extra = {"nearest_training": {"a": 0.71, "b": 0.3}, "explained_peaks": {"a": 0.0, "c": 3.0}}

    assert groups(truths, "nearest_training", extra) == [
        ("<= 0.3", 1),
        ("0.7-0.85", 1),
        ("missing", 1),
    ]
    assert groups(truths, "explained_peaks", extra) == [("0", 1), ("3-5", 1), ("missing", 1)]


def test_a_kind_that_no_spectrum_has_is_left_out():
    assert groups([truth("a")], "instrument") == []


def test_every_kind_covers_every_spectrum_and_weighs_to_the_whole():
    truths = [truth(str(i), "C" * (i + 1), adduct="[M+H]+") for i in range(30)]
    entries = [
        (t.spectrum_id, t.molecule, t.smiles, [t.smiles][: i % 2]) for i, t in enumerate(truths)
    ]
    scores = score(entries)

    found = strata(scores, truths, ["accuracy@1"])

    for by in {group.by for group in found}:
        parts = [group for group in found if group.by == by]
        total = sum(group.spectra * group.estimates["accuracy@1"].mean for group in parts)
        assert sum(group.spectra for group in parts) == 30
        assert total == pytest.approx(np.sum(scores.columns["accuracy@1"]))
