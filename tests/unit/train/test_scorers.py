"""Decoys, and how fragments and fingerprint bits learn to tell molecules from them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from duallgd_cli.chem.adduct import BY_NAME
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import charge_free_smiles, fingerprint, inchikey_block, parse_smiles
from duallgd_cli.chem.molecule import disassemble
from duallgd_cli.data.fragmentation import N_INPUTS, SHIFTS, Ion
from duallgd_cli.data.molecular_graph import Rival, graph_of_bonds
from duallgd_cli.data.peaks import from_prepared, peak_batch
from duallgd_cli.data.simulation import FragmentModel
from duallgd_cli.model.encoder import FormulaTransformer
from duallgd_cli.model.settings import EncoderSettings
from duallgd_cli.scores.substructures import known_environments
from duallgd_cli.sources.collection import known_molecules, molecule_of
from duallgd_cli.train import isomer_encoder
from duallgd_cli.train.fragment_scorer import (
    Case,
    ScorerModel,
    _fragments_of,
    decoys_of,
    fit_against_decoys,
    fit_evidence,
    one_of_each,
    scores_of,
)
from duallgd_cli.train.isomer_encoder import bit_sums, fit_isomer_encoder
from tests.made_prepared import ESTERS, made_spectra, molecules_of

PROTONATED = BY_NAME["[M+H]+"].index


def rows(esters, fold="train"):
    return [(smiles, "[M+H]+", peak, "20", fold) for smiles, peak in esters.items()]


@pytest.fixture(scope="module")
def spectra(tmp_path_factory):
    return made_spectra(tmp_path_factory.mktemp("made") / "spectra", *rows(ESTERS))


def rival(smiles):
    mol = parse_smiles(smiles)
    parts = disassemble(mol)
    return Rival(graph_of_bonds(parts.formula, parts.bond_class), fingerprint(mol))


def fresh():
    torch.manual_seed(1)
    return ScorerModel(FragmentModel(N_INPUTS, len(SHIFTS), width=96))


def first(model, rivals):
    """How many molecules have a higher score than all their rivals."""
    with torch.no_grad():
        generator = np.random.default_rng(1)
        scores, _ = scores_of(model.eval(), [list(_fragments_of(c, generator)) for c in rivals])
    return sum(bool(one[0] > one[1:].max() + 0.05) for one in scores)


@pytest.mark.slow
def test_molecules_are_told_from_rivals_that_were_never_seen():
    """Of the isomers of each unseen ester, the one whose acyl cation is seen comes first."""
    isomers = ("CCCC(=O)OCC", "CCC(=O)OCCC", "CC(=O)OCCCC", "CCCCC(=O)OC")
    known = [
        Case((rival(one), *(rival(other) for other in isomers if other != one)), peak_of(one))
        for one in isomers
    ]
    longer = ("CCC(=O)OCCCC", "CC(=O)OCCCCC", "CCCCC(=O)OCC", "CCCC(=O)OCCC")
    unseen = [
        Case((rival(one), *(rival(other) for other in longer if other != one)), peak_of(one))
        for one in longer
    ]
    model = fresh()
    before = first(model, known)

    record = fit_against_decoys(model, known * 40)

    assert record["told_apart"] == 160
    assert record["first_of_rivals"] > 0.8  # of which chance would give 0.25
    assert (before, first(model, known)) == (0, 4)
    assert first(model, unseen) >= 3


def peak_of(smiles):
    """What an ester shows: its acyl cation."""
    acyl = smiles.partition("O")[0].count("C")
    counts = Formula.parse(f"C{acyl}H{2 * acyl - 1}O").array.astype(np.int16)
    ion = Ion(adduct=PROTONATED, instrument=1, energy_ev=20.0)
    return ((ion, counts[None], np.ones(1, np.float32)),)


def test_the_record_says_how_many_were_told_apart(spectra):
    structures, told = molecules_of(*ESTERS), []
    names = [spectra.molecules.inchikey[row].decode() for row in range(len(ESTERS))]
    smiles = {inchikey_block(parse_smiles(one)): one for one in ESTERS}
    rivals = {
        row: (rival(smiles[name]), *map(rival, {"CCCCC(=O)O", "CC(C)C(=O)O"}))
        for row, name in enumerate(names[:-1])
    }
    rivals[len(names) - 1] = ()  # of one there are none

    known = known_environments(map(parse_smiles, ESTERS))
    tensors, record = fit_evidence(structures, known, spectra, rivals, 3, 1, told.append)
    plain, alone = fit_evidence(structures, known, spectra, {}, 3)

    assert record["told_apart"] == len(ESTERS) - 1
    assert "told_apart" not in alone
    assert len(told) == 3 + 6  # rounds of one step
    assert tensors.keys() == plain.keys()
    assert (plain["worth.weight"] == 0).all()
    assert not any(name.startswith("intensity") for name in tensors)
    assert all(torch.isfinite(tensor).all() for tensor in tensors.values())


def test_one_spectrum_of_each_molecule_of_fold_train_is_taken(tmp_path):
    train = [
        (smiles, "[M+H]+", peak, ev, "train") for smiles, peak in ESTERS.items() for ev in "12"
    ]
    others = [
        ("CCCCCC(=O)OC", "[M+H]+", "C6H11O", "20", "val"),
        ("CCCCCC(=O)OCC", "[M+Na]+", "C6H11O", "20", "train"),
    ]
    spectra = made_spectra(tmp_path / "spectra", *train, *others)

    one, again, other = (one_of_each(spectra, seed) for seed in (1, 1, 2))

    assert len(one) == len(set(spectra.molecule[one])) == len(ESTERS)
    assert one == again != other


def bits(smiles):
    return fingerprint(parse_smiles(smiles))


def rivals_of_all(spectra):
    """Of each molecule, itself and the other esters of its formula."""
    names = [name.decode() for name in spectra.molecules.inchikey.tolist()]
    row = {one: names.index(inchikey_block(parse_smiles(one))) for one in ESTERS}
    others = {one: [two for two in ESTERS if len(two) == len(one) and two != one] for one in ESTERS}
    return {row[one]: [Rival(None, bits(two)) for two in (one, *others[one])] for one in ESTERS}


def test_scores_of_bits_are_summed_molecule_by_molecule():
    scores = torch.arange(8, dtype=torch.float32).reshape(2, 4)
    first = [np.array([0, 3], np.uint16), np.array([1], np.uint16)]
    second = [np.array([], np.uint16), np.array([2, 3], np.uint16), np.array([0], np.uint16)]

    got = bit_sums(scores, [first, second])

    assert [one.tolist() for one in got] == [[3, 1], [0, 13, 4]]


def test_molecules_are_told_from_rivals_by_their_peaks(spectra, monkeypatch):
    """Chance would put 3 of 8 first; the encoder itself is left as it was."""
    rates = replace(isomer_encoder._RATES, learning_rate=3e-3)
    quick = {"_SPECTRA": 16, "_RATES": rates, "_DROPOUT": 0.0}
    for name, value in quick.items():
        monkeypatch.setattr(isomer_encoder, name, value)
    torch.manual_seed(1)
    encoder = FormulaTransformer(EncoderSettings(layers=1, width=32, heads=2, summary=32)).eval()
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    rivals, told = rivals_of_all(spectra), []

    tensors, record = fit_isomer_encoder(encoder, spectra, rivals, 1, told.append, steps=150)

    assert (record["contrasted"], len(told)) == (150 * 16, 150)
    assert all(torch.equal(before[name], one) for name, one in encoder.state_dict().items())
    encoder.load_state_dict(tensors)
    assert first_of_rivals(encoder, spectra, rivals) == len(ESTERS)


def first_of_rivals(encoder, spectra, rivals):
    firsts = 0
    for spectrum, molecule in enumerate(spectra.molecule.tolist()):
        with torch.no_grad():
            said = encoder(peak_batch([from_prepared(spectra, [spectrum])]))
        (scores,) = bit_sums(said, [[one.bits for one in rivals[molecule]]])
        firsts += bool((scores[0] > scores[1:]).all())
    return firsts


def test_without_rivals_there_is_nothing_to_learn(spectra):
    encoder = FormulaTransformer(EncoderSettings(layers=1, width=16, heads=2, summary=16))

    assert fit_isomer_encoder(encoder, spectra, {0: (Rival(None, bits("CCO")),), 1: ()}) == ({}, {})


CLASSMATES = ("CC(=O)OCC", "CCC(=O)OC", "CC(=O)OCCC", "CCCC(=O)OCC", "CC(=O)OCCCC", "CCCC(=O)OCCO")
LARGE = "C" * 48 + "(=O)OCC"


@pytest.fixture(scope="module")
def classmates(tmp_path_factory):
    rows = [(one, "[M+H]+", "C2H3O", "20", "train") for one in (*CLASSMATES, LARGE)]
    return made_spectra(tmp_path_factory.mktemp("made") / "spectra", *rows)


def knows_the_fourth(peaks):
    """Knows the fourth ester by heart."""
    logits = torch.full((1, 4096), -6.0)
    logits[0, torch.from_numpy(fingerprint(parse_smiles(CLASSMATES[3])).astype(int))] = 6.0
    return logits


def decoys(classmates, smiles, seed=1, known=CLASSMATES):
    block = inchikey_block(parse_smiles(smiles))
    blocks = [name.decode() for name in classmates.molecules.inchikey.tolist()]
    row = blocks.index(block)
    spectrum = classmates.molecule.tolist().index(row)
    templates = known_molecules(molecules_of(*known), max_atoms=99)
    made = decoys_of(classmates, spectrum, knows_the_fourth, templates, seed)
    assert all((fingerprint(molecule_of(one.graph)) == one.bits).all() for one in made)
    return [charge_free_smiles(molecule_of(one.graph)) for one in made]


def test_the_molecule_comes_first_and_its_rivals_are_others_of_its_formula(classmates):
    first, *others = decoys(classmates, CLASSMATES[3])

    assert first == charge_free_smiles(parse_smiles(CLASSMATES[3]))
    assert len({first, *others}) == 1 + len(others) > 9
    assert {one.count("C") for one in others} == {6}
    assert {one.count("O") for one in others} == {2}


def test_no_rival_is_a_change_of_the_molecule_itself(classmates):
    """Ethyl butyrate, if no other is known, has blocks that are put together to nothing else."""
    alone, (one, *others) = (
        decoys(classmates, CLASSMATES[3], known=known)
        for known in ([CLASSMATES[3], "c1ccccc1"], [CLASSMATES[3], CLASSMATES[4]])
    )

    assert one not in others
    assert 1 <= len(alone) < len(others)


def test_rivals_are_a_function_of_the_spectrum_and_the_seed(classmates):
    one, again, other = (decoys(classmates, CLASSMATES[3], seed) for seed in (1, 1, 2))

    assert one == again != other


def test_large_molecules_have_none(classmates):
    assert decoys(classmates, LARGE) == []
