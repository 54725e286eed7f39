import pytest

from duallgd_cli.evaluate import score
from duallgd_cli.evaluate.decomposition import assembly_recovers, decompose


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
    truths = ["CCO", "CCN", "CCC", "CC(=O)O"]
    entries = [(s, s, s) for s in truths]
    ranked = [["CCO"], ["C"] * 4 + ["CCN"], ["C"] * 20 + ["CCC"], []]
    scores = score([(*e, r) for e, r in zip(entries, ranked, strict=True)])
    knowing = score([(*e, [e[2]]) for e in entries])

    shares = decompose(truths, scores, knowing)

    assert {name: share.mean for name, share in shares.items()} == {
        "perfect bond matrix, assembled": 1.0,
        "true fingerprint, any sample": 1.0,
        "true fingerprint, first candidate": 1.0,
        "predicted fingerprint, any sample": 0.75,
        "predicted fingerprint, first 10": 0.5,
        "predicted fingerprint, first 1": 0.25,
    }


def test_without_the_second_run_its_steps_are_left_out():
    scores = score([("a", "a", "CCO", ["CCO"])])

    assert not any("true" in name for name in decompose(["CCO"], scores, None))
