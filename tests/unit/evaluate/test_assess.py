import pytest

from duallgd_cli.evaluate import EvaluateSettings
from duallgd_cli.evaluate.assess import assembly_recovers, decompose
from tests.scored_entries import scored

SETTINGS = EvaluateSettings(mces=False, workers=1)


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
    drawn = {"CCO": ["CCO"], "CCN": ["C"] * 4 + ["CCN"], "CCC": ["C"] * 20 + ["CCC"], "[Fe]": []}
    ours = scored([(s, s, s, one) for s, one in drawn.items()], SETTINGS)

    assert {name: share.mean for name, share in decompose(ours).items()} == {
        "perfect bond matrix, assembled": 0.75,
        "predicted fingerprint, any sample": 0.75,
        "predicted fingerprint, first 10": 0.5,
        "predicted fingerprint, first 1": 0.25,
    }
