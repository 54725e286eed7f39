import pytest

from duallgd_cli.evaluate import EvaluateSettings
from duallgd_cli.evaluate.assess import assembly_recovers, decompose
from tests.scored_entries import scored

SETTINGS = EvaluateSettings(mces=False, workers=1)
SMILES = ("CCO", "CCN", "CCC", "CC(=O)O")


@pytest.mark.parametrize(
    ("smiles", "recovered"),
    [
        ("CC(=O)Oc1ccccc1C(=O)O", True),
        ("c1ccc2[nH]ccc2c1", True),
        ("O=[N+]([O-])c1ccccc1", True),
        ("CCO.CC", False),  # a bond matrix cannot say that there are two molecules
        ("[Fe]", False),
    ],
)
def test_a_perfect_matrix_is_worth_the_molecule_wherever_it_can_express_it(smiles, recovered):
    assert assembly_recovers(smiles) is recovered


def test_shares_fall_from_the_perfect_matrix_to_the_first_candidate():
    drawn = (["CCO"], ["C"] * 4 + ["CCN"], ["C"] * 20 + ["CCC"], [])
    ours, knowing = (
        scored([(s, s, s, one) for s, one in zip(SMILES, ranked, strict=True)], SETTINGS)
        for ranked in (drawn, [[smiles] for smiles in SMILES])
    )

    shares = decompose(ours, knowing)

    assert {name: share.mean for name, share in shares.items()} == {
        "perfect bond matrix, assembled": 1.0,
        "true fingerprint, any sample": 1.0,
        "true fingerprint, first candidate": 1.0,
        "predicted fingerprint, any sample": 0.75,
        "predicted fingerprint, first 10": 0.5,
        "predicted fingerprint, first 1": 0.25,
    }
    assert not any("true" in name for name in decompose(ours))
