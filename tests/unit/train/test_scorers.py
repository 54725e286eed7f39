"""A fragment model learns what spectra show, and fragments learn to tell molecules apart."""

import numpy as np
import pytest
import torch
from torch.nn.functional import logsigmoid

from duallgd_cli.checkpoint.format import Checkpoint, save
from duallgd_cli.chem.adduct import ADDUCTS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import charge_free_smiles, fingerprint, inchikey_block, parse_smiles
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.data.fragmentation import N_INPUTS, SHIFTS, fragment_features, fragments
from duallgd_cli.data.molecular_graph import graph_of
from duallgd_cli.data.prepared import load_decoys
from duallgd_cli.data.simulation import FragmentModel
from duallgd_cli.data.structures import prepare_molecule
from duallgd_cli.errors import UnreadableError
from duallgd_cli.scores import environments, known_environments
from duallgd_cli.sources.collection import known_molecules, molecule_of
from duallgd_cli.train import scorers
from duallgd_cli.train.scorers import Case, fit_simulator, fragments_of
from tests.made_prepared import ESTERS, made_decoys, made_spectra, molecules_of
from tests.made_simulation import ORBITRAP, drawn_by, ion
from tests.made_training import small_model

# Acids that show one peak each: what is left when hydroxide goes.
ACIDS = {
    "CC(=O)O": "C2H3O", "CCC(=O)O": "C3H5O", "CCCC(=O)O": "C4H7O", "CC(C)C(=O)O": "C4H7O",
    "CCCCC(=O)O": "C5H9O", "OC(=O)c1ccccc1": "C7H5O", "OC(=O)Cc1ccccc1": "C8H7O",
    "OC(=O)C1CCCCC1": "C7H11O",
}  # fmt: skip
CLASSMATES = ("CC(=O)OCC", "CCC(=O)OC", "CC(=O)OCCC", "CCCC(=O)OCC", "CC(=O)OCCCC", "CCCC(=O)OCCO")


def made(folder, *rows):
    """Spectra of SMILES, peak, energy, adduct and fold; what is left out is as usual."""
    usual = ("", "C2H3O", "20", "[M+H]+", "train")
    whole = [(*row, *usual[len(row) :]) for row in rows]
    return made_spectra(folder, *((a, adduct, b, ev, fold) for a, b, ev, adduct, fold in whole))


@pytest.fixture(scope="module")
def esters(tmp_path_factory):
    return made(tmp_path_factory.mktemp("esters") / "e", *ESTERS.items())


def test_a_fragment_that_is_always_seen_becomes_the_likeliest(tmp_path):
    spectra = made(tmp_path / "acids", *ACIDS.items())
    fitted, record = fit_simulator(spectra, steps=80)
    molecules = molecules_of("CCCCCC(=O)O")
    found = fragments(graph_of(molecules, 0), np.random.default_rng(1))

    with torch.no_grad():
        log_odds, mean = fitted(torch.from_numpy(fragment_features(found, ion())))

    assert (fitted.training, record["val"]) == (False, {})  # nothing is dropped any more
    row, column = divmod(int(log_odds.argmax()), len(SHIFTS))
    acyl = Formula.parse("C6H11O").array
    np.testing.assert_array_equal(found.counts[row], acyl)
    assert SHIFTS[column] == -1
    best, second = torch.sigmoid(log_odds).flatten().topk(2).values
    assert best > 0.5 > 2 * second
    assert float(mean[row, column]) == pytest.approx(0, abs=0.5)  # always the base peak
    draw = scorers.simulator_of(fitted.state_dict(), spectra)
    drawn = [drawn_by(draw, molecules, 0, np.random.default_rng(n)).subformula for n in range(40)]
    assert np.mean([(rows == acyl).all(1).any() for rows in drawn]) > 0.5


def test_a_fit_remembers_the_ions_of_fold_train_molecules_alike_and_says_how_well_it_does(spectra):
    told = []
    fitted, record = fit_simulator(spectra, 3, 7, told.append)

    assert (record["spectra"], record["steps"], record["seed"], told) == (5, 3, 7, [1, 1, 1])
    assert 0 < record["val"]["cosine"] < 1
    draw, share = scorers.simulator_of(fitted.state_dict(), spectra), {}
    for one, weight in zip(draw.ions, np.diff(draw.share_up_to, prepend=0), strict=True):
        assert one.instrument == ORBITRAP
        key = f"{ADDUCTS[one.adduct].name} {one.energy_ev}"
        share[key] = share.get(key, 0) + weight
    assert share == pytest.approx({
        "[M+H]+ 20.0": 1 / 9, "[M+H]+ 40.0": 1 / 9, "[M-H]- nan": 1 / 9,
        "[M+H]+ 30.0": 1 / 3, "[M+H]+ 10.0": 1 / 3,
    })  # fmt: skip


def test_measured_spectra_are_those_of_a_fold_that_can_be_simulated(spectra, tmp_path):
    numbers = [
        len(scorers.list_measured(spectra, fold, np.random.default_rng(1)))
        for fold in ("train", "val", "dev")
    ]
    # Two oxygens at the ends of a chain: no cut leaves them alone.
    rows = [("CC(=O)O",), ("CC(=O)O", "C2H", "40"), ("OCCO", "H3O2")]
    found = scorers.list_measured(made(tmp_path / "some", *rows), "train", np.random.default_rng(1))

    assert numbers == [5, 1, 0]
    assert [(one.ion.energy_ev, one.weight) for one in found] == [(20.0, 0.5), (40.0, 0.5)]
    with pytest.raises(UnreadableError, match="none of fold train that can be simulated"):
        fit_simulator(made(tmp_path / "none", ("CC(=O)O", "C2H3O", "20", "[M+Na]+")), 1)


def graph_of_smiles(smiles):
    return prepare_molecule(parse_smiles(smiles)).graph


def cases_of(*isomers):
    """Each ester beside the others, with what it shows: its acyl cation."""
    for one in isomers:
        acyl = one.partition("O")[0].count("C")
        counts = Formula.parse(f"C{acyl}H{2 * acyl - 1}O").array.astype(np.int16)
        graphs = map(graph_of_smiles, (one, *(other for other in isomers if other != one)))
        yield Case([*graphs], ((ion(), counts[None], np.ones(1, np.float32)),))


def first(model, cases):
    """How many molecules have a higher score than all their decoys."""
    with torch.no_grad():
        generator = np.random.default_rng(1)
        drawn = [fragments_of(scorers.drawn_from(case, generator)) for case in cases]
        scores, _ = scorers.scores_of(model.eval(), drawn)
    return sum(bool(one[0] > one[1:].max() + 0.05) for one in scores)


@pytest.mark.slow
def test_molecules_are_told_from_decoys_that_were_never_seen():
    """Of the isomers of each unseen ester, the one whose acyl cation is seen comes first."""
    known = [*cases_of("CCCC(=O)OCC", "CCC(=O)OCCC", "CC(=O)OCCCC", "CCCCC(=O)OC")]
    unseen = [*cases_of("CCC(=O)OCCCC", "CC(=O)OCCCCC", "CCCCC(=O)OCC", "CCCC(=O)OCCC")]
    torch.manual_seed(1)
    model = scorers.ScorerModel(FragmentModel(96))
    before = first(model, known)

    record = scorers.fit_against_decoys(model, known * 40)

    assert record["told_apart"] == 160
    assert record["first_of_rivals"] > 0.8  # of which chance would give 0.25
    assert (before, first(model, known)) == (0, 4)
    assert first(model, unseen) >= 3


@torch.no_grad()
def test_a_fragment_speaks_at_first_by_how_likely_it_is_a_peak():
    torch.manual_seed(1)
    model, there = scorers.ScorerModel(FragmentModel(8)).eval(), torch.rand(9, len(SHIFTS)) < 0.5
    torch.nn.init.normal_(model.presence.weight)

    log_odds, values = model(torch.randn(9, N_INPUTS), there)

    likelihood = torch.where(there, 0.1 * (logsigmoid(log_odds) + 4), 0.3 * logsigmoid(-log_odds))
    torch.testing.assert_close(values, likelihood)


def test_fragments_of_a_case_are_those_of_each_of_its_molecules():
    """Also of molecules with other numbers of bonds, which are not made together."""
    mixed = ("CCCC(=O)OCC", "C1CCCC(O)C1O", "CC(=O)OCCCC", "C1CCC(O)C1CO")
    (case, *_) = cases_of(*mixed)

    together = fragments_of(case)

    for graph, (features, there) in zip(case.molecules, together, strict=True):
        ((alone, peaks),) = fragments_of(Case([graph], case.spectra))
        np.testing.assert_array_equal(features, alone)
        np.testing.assert_array_equal(there, peaks)


def rows_of(spectra, *smiles):
    """Row of each molecule."""
    names = spectra.molecules.inchikey.astype(str).tolist()
    return [names.index(inchikey_block(parse_smiles(text))) for text in smiles]


def test_the_record_says_how_many_were_told_apart(esters):
    structures, told = molecules_of(*ESTERS), []
    acids, rows = ("CCCCC(=O)O", "CC(C)C(=O)O"), rows_of(esters, *ESTERS)
    smiles = {row: (one, *acids) for row, one in zip(rows, ESTERS, strict=True)}
    smiles[0] = ()  # of one there are none
    decoys, none = (made_decoys(own, len(esters.molecules)) for own in (smiles, {}))

    known = known_environments(environments(parse_smiles(one)) for one in ESTERS)
    tensors, record = scorers.fit_evidence(structures, known, esters, decoys, 3, 1, told.append)
    by_two, _ = scorers.fit_evidence(structures, known, esters, decoys, 3, workers=2)
    plain, alone = scorers.fit_evidence(structures, known, esters, none, 3)

    assert all(torch.equal(tensor, by_two[name]) for name, tensor in tensors.items())
    assert (record["told_apart"], "told_apart" in alone) == (len(ESTERS) - 1, False)
    assert told == [1] * (3 + 6)  # rounds of one step
    assert tensors.keys() == plain.keys()
    assert (plain["worth.weight"] == 0).all()
    assert not any(name.startswith("intensity") for name in tensors)
    assert all(torch.isfinite(tensor).all() for tensor in tensors.values())


def test_decoys_are_made_of_one_spectrum_of_each_molecule_of_fold_train_by_any_processes(tmp_path):
    train = [(smiles, peak, ev) for smiles, peak in ESTERS.items() for ev in "12"]
    others = [
        ("CCCCCC(=O)OC", "C6H11O", "20", "[M+H]+", "val"),
        ("CCCCCC(=O)OCC", "C6H11O", "20", "[M+Na]+"),
    ]
    spectra, told = made(tmp_path / "spectra", *train, *others), []
    model, weights = small_model(), tmp_path / "w"
    templates = known_molecules(spectra.molecules, 99).tensors()
    save(weights, Checkpoint(model.settings, model.state_dict(), templates=templates))

    for workers in (1, 2):
        scorers.prepare_decoys(
            spectra, model.encoder.eval(), weights, tmp_path / f"by {workers}", 1, workers,
            told.append,
        )  # fmt: skip
    by_one, by_two = (
        load_decoys(tmp_path / f"by {workers}", len(spectra.molecules)) for workers in (1, 2)
    )

    assert told == [1] * 2 * len(ESTERS)
    np.testing.assert_equal(*(own.molecules.arrays() for own in (by_one, by_two)))
    assert by_one.start.tolist() == by_two.start.tolist()
    counts = np.diff(by_one.start)
    assert set(np.flatnonzero(counts)) == set(rows_of(spectra, *ESTERS))
    assert counts.max() > 2
    for row in np.flatnonzero(counts).tolist():
        graphs = [graph_of(by_one.molecules, decoy) for decoy in by_one.rows(row)]
        named = [charge_free_smiles(molecule_of(graph)) for graph in graphs]
        assert named[0] == charge_free_smiles(molecule_of(graph_of(spectra.molecules, row)))
        assert named.count(named[0]) == 1  # the molecule itself is no decoy
        for decoy, graph in zip(by_one.rows(row), graphs, strict=True):
            bits = fingerprint(molecule_of(graph)).tolist()
            assert by_one.molecules.bits_of(np.array([decoy]))[1].tolist() == bits


def test_where_no_decoy_is_made_there_are_none(tmp_path):
    spectra, model = made(tmp_path / "s", ("CCO", "C2H5O")), small_model()
    templates = known_molecules(molecules_of("c1ccccc1", "Oc1ccccc1"), 99).tensors()
    save(tmp_path / "w", Checkpoint(model.settings, model.state_dict(), templates=templates))

    scorers.prepare_decoys(spectra, model.encoder.eval(), tmp_path / "w", tmp_path / "none", 1)

    assert not len(scorers.Cases(spectra, load_decoys(tmp_path / "none", 1)))


def decoys_by_smiles(smiles, seed=1, known=CLASSMATES):
    """What `decoys_of` makes by logits that know the fourth ester by heart."""
    logits = np.full(4096, -6.0, np.float32)
    logits[fingerprint(parse_smiles(CLASSMATES[3]))] = 6.0
    templates, formula = known_molecules(molecules_of(*known), 99), formula_of(parse_smiles(smiles))
    made = scorers.decoys_of(graph_of_smiles(smiles), formula, logits, (seed, 0), templates)
    assert all((fingerprint(molecule_of(one.graph)) == one.bits).all() for one in made)
    return [charge_free_smiles(molecule_of(one.graph)) for one in made]


def test_the_molecule_comes_first_and_its_decoys_are_others_of_its_formula():
    itself, *others = one = decoys_by_smiles(CLASSMATES[3])
    again, other = (decoys_by_smiles(CLASSMATES[3], seed) for seed in (1, 2))

    assert itself == charge_free_smiles(parse_smiles(CLASSMATES[3]))
    assert len({itself, *others}) == 1 + len(others) > 9
    assert {(text.count("C"), text.count("O")) for text in others} == {(6, 2)}
    assert one == again != other
    assert decoys_by_smiles("C" * 48 + "(=O)OCC") == []  # too large


def test_no_decoy_is_a_change_of_the_molecule_itself():
    """Ethyl butyrate, if no other is known, has blocks that are put together to nothing else."""
    alone, (one, *others) = (
        decoys_by_smiles(CLASSMATES[3], known=(CLASSMATES[3], other))
        for other in ("c1ccccc1", CLASSMATES[4])
    )

    assert one not in others
    assert 1 <= len(alone) < len(others)
