import numpy as np
import pytest

from duallgd_cli.evaluate.groups import describe, strata
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.tables import Truth
from tests.scored_entries import scored

NAPHTHYL = "CC(=O)Nc1ccc2ccccc2c1"
SETTINGS = EvaluateSettings(mces=False, workers=1)


def truth(spectrum_id, smiles="CCO", **fields):
    return Truth(spectrum_id, smiles, smiles, fields)


def groups(truths, by, notes=None):
    entries = [(t.spectrum_id, t.molecule, t.smiles, [t.smiles]) for t in truths]
    found = strata(scored(entries, SETTINGS, truths), ["accuracy@1"], notes or {})
    return [(group["label"], group["spectra"]) for group in found if group["by"] == by]


@pytest.mark.parametrize(
    ("smiles", "by_hand"),
    [
        ("CCO", (3, 0, 0, 1)),
        (NAPHTHYL, (14, 2, 2, 2)),
        ("C1CCCCC1c1ccncc1", (12, 2, 1, 1)),
        ("ClC(Cl)Cl", (4, 0, 0, 3)),
    ],
)
def test_atoms_and_rings_are_counted(smiles, by_hand):
    names = ("heavy_atoms", "rings", "aromatic_rings", "heteroatoms")
    assert describe(smiles) == dict(zip(names, by_hand, strict=True))


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


@pytest.mark.parametrize(
    ("by", "fields", "expected"),
    [
        (
            "polarity",
            ({"adduct": "[M+H]+"}, {"adduct": "[M-H]-"}, {"ion_mode": "negative"}, {}),
            [("negative", 2), ("positive", 1), ("missing", 1)],
        ),
        (
            "collision_energy",
            [{"collision_energy": text} for text in ("10", "10.5", "35", "120", "", "ramp")],
            [("<= 10 eV", 1), ("10-20 eV", 1), ("30-45 eV", 1), ("> 60 eV", 1), ("missing", 2)],
        ),
        ("nearest_training", ({}, {}, {}), [("<= 0.3", 1), ("0.7-0.85", 1), ("missing", 1)]),
        ("explained_peaks", ({}, {}, {}), [("0", 1), ("3-5", 1), ("missing", 1)]),
        ("instrument", ({},), []),  # a kind that no spectrum has
    ],
)
def test_spectra_are_grouped_by_columns_and_by_further_numbers(by, fields, expected):
    truths = [truth(str(number), **one) for number, one in enumerate(fields)]
    notes = {"nearest_training": {"0": 0.71, "1": 0.3}, "explained_peaks": {"0": 0.0, "2": 3.0}}

    assert groups(truths, by, notes) == expected


def test_every_kind_covers_every_spectrum_and_weighs_to_the_whole():
    truths = [truth(str(i), "C" * (i + 1), adduct="[M+H]+") for i in range(30)]
    entries = [
        (t.spectrum_id, t.molecule, t.smiles, [t.smiles][: i % 2]) for i, t in enumerate(truths)
    ]
    scores = scored(entries, SETTINGS, truths)

    found = strata(scores, ["accuracy@1"], {})

    for by in {group["by"] for group in found}:
        groups = [group for group in found if group["by"] == by]
        total = sum(one["spectra"] * one["estimates"]["accuracy@1"]["mean"] for one in groups)
        assert sum(one["spectra"] for one in groups) == 30
        assert total == pytest.approx(np.sum(scores.columns["accuracy@1"]))
