"""What becomes of a matrix that was drawn: a molecule as it stands, one after repair, or none."""

import numpy as np
import pytest
import torch

from duallgd_cli.chem.identity import canonical_smiles
from duallgd_cli.chem.molecule import is_internal_salt
from duallgd_cli.diffusion.sampler import Samples
from duallgd_cli.errors import OutOfTimeError
from duallgd_cli.predict.pipeline import merge
from duallgd_cli.results import HypothesisResult
from duallgd_cli.sources import network
from tests.made_molecules import another_order, disassembled, moved
from tests.made_queries import query

ASPIRIN, ISOMER = "CC(=O)Oc1ccccc1C(=O)O", "O=C(O)c1ccc(C(=O)CO)cc1"
SALT, ETHER = "C[N+](C)(C)CCC(O)C[O-]", "COCC(O)CCN(C)C"
CARNITINE = "C[N+](C)(C)CC(O)CC(=O)[O-]"  # also as an alkoxide


def matrix(smiles):
    return disassembled(smiles).bond_class


def changed(old, new):
    """Aspirin with the first bond of a class changed."""
    bonds = matrix(ASPIRIN).copy()
    bonds[np.flatnonzero(bonds == old)[0]] = new
    return bonds


def proposed(formula, rows, log_likelihood=None, knows=None, check=lambda: None):
    """Proposals of bonds that were drawn; others are all but certain where the network `knows`."""
    bonds = torch.from_numpy(np.stack(rows)).long()
    of_bonds, else_ = (bonds.numpy(), -60_000.0) if knows is None else (knows[None], -8.0)
    certain = np.where(np.eye(5, dtype=bool)[of_bonds], 0.0 if knows is None else -0.01, else_)
    likelihood = torch.arange(0.0, -len(rows), -1) if log_likelihood is None else log_likelihood
    drawn = Samples(bonds, likelihood, torch.from_numpy(certain.astype(np.float32)))
    return network.assembled("noise", query(formula, check=check), drawn)


def facts(proposals):
    """SMILES, log-likelihood, whether repaired, and why there is none."""
    smiles = [one.mol and canonical_smiles(one.mol) for one in proposals]
    return [(text, *one[2:]) for text, one in zip(smiles, proposals, strict=True)]


def test_each_sample_is_a_proposal_and_equal_matrices_are_assembled_once(monkeypatch):
    seen, assemble = [], network.assemble
    monkeypatch.setattr(network, "assemble", lambda *given: seen.append(1) or assemble(*given))
    aspirin, nothing = matrix(ASPIRIN), np.zeros_like(matrix(ASPIRIN))

    found = proposed("C9H8O4", [aspirin, nothing, matrix(ISOMER), aspirin, nothing])

    broken = (None, False, "disconnected")
    told = [(ASPIRIN, False, ""), broken, (ISOMER, False, ""), (ASPIRIN, False, ""), broken]
    assert [(text, *more) for text, _, *more in facts(found)] == told
    assert [(one.source, one.log_likelihood) for one in found] == [("noise", -n) for n in range(5)]
    assert len(seen) == 4  # and one with rare kinds of atoms for what is broken


# Without one of its bonds it falls apart; with a single bond for a double one all valences hold,
# but two hydrogens are missing, which only rare kinds of atoms make up.
@pytest.mark.parametrize(("old", "new"), [(1, 0), (2, 1)])
def test_a_bond_drawn_wrong_is_mended_and_not_made_up_for_by_a_carbocation(old, new):
    found = proposed("C9H8O4", [changed(old, new)], knows=matrix(ASPIRIN))

    assert facts(found) == [(ASPIRIN, 0.0, True, "")]


def test_rare_kinds_of_atoms_are_the_last_resort(monkeypatch):
    monkeypatch.setattr(network, "repair", lambda *_: None)

    ((smiles, _, is_repaired, why),) = facts(proposed("C9H8O4", [changed(2, 1)]))

    assert ("+]" in smiles, is_repaired, why) == (True, False, "")


def test_a_salt_that_nobody_meant_is_mended_and_another_stays():
    (mended,) = proposed("C7H17NO2", [matrix(SALT)], knows=matrix(ETHER))
    (meant,) = facts(proposed("C7H15NO3", [matrix(CARNITINE)]))

    assert (mended.is_repaired, is_internal_salt(mended.mol)) == (True, False)
    assert meant == (CARNITINE, 0.0, False, "")


def test_the_order_of_atoms_makes_no_difference():
    aspirin = disassembled(ASPIRIN)
    order = another_order(aspirin.formula.atom_class, np.random.default_rng(0))
    rows = [aspirin.bond_class, matrix(ISOMER)]

    assert facts(proposed("C9H8O4", [moved(row, order) for row in rows])) == facts(
        proposed("C9H8O4", rows)
    )


def test_time_that_is_up_is_noticed_while_molecules_are_made_and_while_they_are_merged():
    def late():
        raise OutOfTimeError

    made = proposed("C9H8O4", [matrix(ASPIRIN)])

    with pytest.raises(OutOfTimeError):
        proposed("C9H8O4", [matrix(ASPIRIN)], check=late)
    with pytest.raises(OutOfTimeError):
        merge(HypothesisResult("ok"), made, query("C9H8O4", check=late), (), frozenset())
