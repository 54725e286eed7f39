"""Simulated spectra obey the arithmetic that measured ones do, and follow the fragment model."""

import math

import numpy as np
import pytest
import torch

from duallgd_cli.chem.adduct import ADDUCTS, BY_NAME
from duallgd_cli.chem.elements import ELECTRON_MASS_DA, HYDROGEN, MASSES_DA, N_HEAVY
from duallgd_cli.chem.formula import Formula
from duallgd_cli.data import prepared, simulation
from duallgd_cli.data.fragmentation import (
    N_INPUTS,
    SHIFTS,
    fragment_features,
    fragments,
    measured_intensity,
)
from duallgd_cli.data.molecular_graph import graph_of
from duallgd_cli.data.peaks import from_prepared
from duallgd_cli.data.prepared import FOLDS, load_molecules, load_spectra
from duallgd_cli.data.simulation import (
    LOG_INTENSITY_SPREAD,
    FragmentModel,
    Simulator,
    fragment_loss,
    prepare_simulated,
)
from duallgd_cli.data.structures import prepare_structures
from duallgd_cli.errors import UnreadableError
from duallgd_cli.spectra.annotation import LEAST_EXCESS, AnnotationSettings, excess
from duallgd_cli.spectra.types import INSTRUMENTS
from tests.made_prepared import SMILES, molecules_of, structures_folder, verify
from tests.made_simulation import ORBITRAP, QTOF, drawn_by, ion, model_of, simulator

ASPIRIN = 4


@pytest.fixture(scope="module")
def molecules():
    return molecules_of()


@pytest.fixture
def cuts_alone(monkeypatch):
    """Fragments of one spectrum alone, with chances as the model says them."""
    monkeypatch.setattr(simulation, "_MERGED_SHARE", 0.0)
    monkeypatch.setattr(simulation, "_UNREACHABLE_SHARE", (0.0, 0.0, 0.0))
    monkeypatch.setattr(simulation, "_CHANCE_SPREAD", 0.0)


def found_in(smiles):
    return fragments(graph_of(molecules_of(smiles), 0), np.random.default_rng(1))


def measured(found, one, **intensities):
    """Non-zero intensities, by the formula of a fragment and its hydrogen shift."""
    subformula = np.array([Formula.parse(text).array for text in intensities], np.uint8)
    given = np.array(list(intensities.values()), np.float16)
    got = measured_intensity(found, one, subformula.reshape(-1, HYDROGEN + 1), given)
    assert got.shape == (len(found.counts), len(SHIFTS))
    return {
        (str(Formula(tuple(found.counts[c].astype(int).tolist()))), SHIFTS[s]): float(got[c, s])
        for c, s in np.argwhere(got)
    }


ACID = "OC(=O)c1ccccc1"


@pytest.mark.parametrize(
    ("smiles", "adduct", "peaks", "expected"),
    [
        # Counted from the hydrogens that carry the charge.
        ("CCO", "[M+H]+", {"C2H5": 1.0, "H3O": 0.5}, {("C2H5", -1): 1.0, ("HO", 1): 0.5}),
        ("CCO", "[M-H]-", {"C2H5": 1.0, "H3O": 0.5}, {("C2H5", 1): 1.0, ("HO", 3): 0.5}),
        ("CCO", "[M]+", {"C2H5": 1.0, "H3O": 0.5}, {("C2H5", 0): 1.0, ("HO", 2): 0.5}),
        # Of fragments of its heavy atoms the cheapest: not CH2, for which two bonds are cut.
        ("CCO", "[M+H]+", {"CH3": 0.5}, {("CH3", -1): 0.5}),
        # C3 is propyl at one end, for one cut, or C3H2 in the middle of the chain, for two.
        ("CCCC#CCO", "[M+H]+", {"C3H3": 1.0}, {("C3H2", 0): 1.0}),
        ("CCCC#CCO", "[M+H]+", {"C3H7": 1.0}, {("C3H7", -1): 1.0}),
        # None explains it.
        (ACID, "[M+H]+", {"C8H5": 1.0, "CH9": 1.0, "N": 1.0}, {}),
        (ACID, "[M+H]+", {}, {}),
        (ACID, "[M+H]+", {"C8H5": 1.0, "C7H5O": 0.25}, {("C7H5O", -1): 0.25}),
        # Hydrogens more or less by five at most.
        ("CCO", "[M+H]+", {"C2H": 1.0}, {("C2H5", -5): 1.0}),
        ("CCO", "[M+H]+", {"C2": 1.0}, {}),
        ("CCO", "[M+H]+", {"C2H11": 1.0}, {("C2H5", 5): 1.0}),
    ],
)
def test_a_peak_goes_to_the_fragment_that_explains_it_best(smiles, adduct, peaks, expected):
    assert measured(found_in(smiles), ion(adduct), **peaks) == expected


def test_features_tell_fragment_ion_and_energy_apart():
    found = found_in("CCO")
    known = fragment_features(found, ion())

    assert known.shape == (len(found.counts), N_INPUTS)
    assert np.isfinite(known).all()
    assert len(np.unique(known, axis=0)) == len(known)
    for other in (ion("[M-H]-"), ion(energy_ev=30), ion(instrument=QTOF), ion(energy_ev=0)):
        assert not np.array_equal(fragment_features(found, other), known)
    unknown, zero = (fragment_features(found, ion(energy_ev=ev)) for ev in (float("nan"), 0.0))
    assert np.isfinite(unknown).all()
    assert not np.array_equal(unknown, zero)


@pytest.mark.parametrize("row", range(len(SMILES)))
def test_every_peak_is_a_part_of_the_ion_at_its_mass_but_for_an_error(molecules, row):
    for seed in range(12):
        rows = drawn_by(simulator(), molecules, row, np.random.default_rng(seed))

        assert ((rows.subformula >= 0) & (rows.subformula <= rows.parent)).all()
        assert rows.subformula[:, :N_HEAVY].any(1).all()
        change = np.array(ADDUCTS[rows.adduct].change)
        np.testing.assert_array_equal(rows.parent, molecules.atom_counts[row] + change)
        charge = ADDUCTS[rows.adduct].charge
        exact = rows.subformula.astype(float) @ np.array(MASSES_DA) - charge * ELECTRON_MASS_DA
        ppm = rows.numbers[:, 1]
        np.testing.assert_allclose(rows.numbers[:, 2], exact * (1 + ppm * 1e-6), rtol=1e-6)


@pytest.mark.parametrize(("instrument", "least", "most"), [(ORBITRAP, 0.3, 2.5), (QTOF, 3.0, 9.0)])
def test_mass_errors_are_those_of_the_instrument(molecules, instrument, least, most):
    """Of the whole ion, alone in its place, so that nothing else explains the peak."""
    draw = simulator(ion(instrument=instrument), log_odds=-50)

    drawn = [drawn_by(draw, molecules, ASPIRIN, np.random.default_rng(s)) for s in range(100)]

    ppm = np.array([rows.numbers[0, 1] for rows in drawn])
    assert least < ppm.std() < most
    assert abs(np.median(ppm)) < ppm.std() / 4
    assert np.abs(ppm).max() <= AnnotationSettings().tolerance_ppm(INSTRUMENTS[instrument]) + 1e-3


def test_ions_are_drawn_by_their_weights(molecules):
    ions = [ion(energy_ev=10), ion(energy_ev=20), ion("[M-H]-")]
    draw = Simulator(model_of(-50), ions, np.array([0.5, 0.2, 0.3]))

    generator = np.random.default_rng(1)
    drawn = [drawn_by(draw, molecules, 0, generator) for _ in range(150)]

    seen = [(ADDUCTS[rows.adduct].name, float(rows.numbers[0, 4])) for rows in drawn]
    share = [seen.count(one) / 150 for one in (("[M+H]+", 10), ("[M+H]+", 20), ("[M-H]-", 20))]
    np.testing.assert_allclose(share, [0.5, 0.2, 0.3], atol=0.1)


@pytest.mark.parametrize(
    ("smiles", "drawn", "is_a"),
    [
        ("CCO", "[M]+", "[M+H]+"),
        ("ClC(Cl)(Cl)Cl", "[M-H]-", "[M+H]+"),
        ("C[N+](C)(C)CCO", "[M+H]+", "[M]+"),
        ("C[N+](C)(C)CCO", "[M-H]-", "[M]+"),
    ],
)
def test_a_molecule_becomes_no_ion_that_it_cannot_be(smiles, drawn, is_a):
    molecules = molecules_of(smiles)

    rows = drawn_by(simulator(ion(drawn)), molecules, 0, np.random.default_rng(1))

    assert ADDUCTS[rows.adduct].name == is_a
    change = np.array(BY_NAME[is_a].change)
    np.testing.assert_array_equal(rows.parent, molecules.atom_counts[0] + change)


@pytest.mark.parametrize(("adduct", "shift"), [("[M+H]+", -1), ("[M-H]-", 1), ("[M+H]+", 0)])
def test_peaks_are_the_fragments_that_the_model_names(cuts_alone, molecules, adduct, shift):
    found = fragments(graph_of(molecules, 0), np.random.default_rng(1))
    expected = found.counts.copy()
    expected[:, HYDROGEN] += simulation.CARRIED[BY_NAME[adduct].index] + shift

    rows = drawn_by(
        simulator(ion(adduct), log_odds=50, shift=shift), molecules, 0, np.random.default_rng(1)
    )

    possible = (expected >= 0).all(1) & (expected <= rows.parent).all(1)
    assert {tuple(row) for row in rows.subformula} == {tuple(row) for row in expected[possible]}


def test_every_peak_that_is_recorded_can_be_explained(cuts_alone, molecules):
    """Ethanol with five hydrogens more is no ion: nothing would explain such a peak."""
    rows = drawn_by(simulator(log_odds=50, shift=5), molecules, 0, np.random.default_rng(1))

    assert len(rows.carrier)
    assert (excess(rows.subformula) >= LEAST_EXCESS).all()


def test_unreachable_peaks_are_no_cut_and_keep_their_electrons_paired(molecules):
    """Cuts of aspirin and the ions of them with paired electrons: neither is what is drawn."""
    found = fragments(graph_of(molecules, ASPIRIN), np.random.default_rng(1))
    seen = found.counts[excess(found.counts) % 2 == 1]

    drawn = [simulation._unreachable(seen, found, np.random.default_rng(s))[0] for s in range(20)]

    unreachable = np.concatenate(drawn)
    assert len(unreachable) > 50
    cut = {tuple(row) for row in found.counts[:, :N_HEAVY]}
    assert not cut & {tuple(row) for row in unreachable[:, :N_HEAVY]}
    assert (excess(unreachable) % 2 == 1).all()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Simulated spectra of structures of which one was held out, and the manifest."""
    made = tmp_path_factory.mktemp("made")
    (made / "structures.smi").write_text("\n".join(SMILES))
    held_out = frozenset({"BSYNRYMUTXBXSQ", "AAAAAAAAAAAAAA"})  # aspirin, none of these
    prepare_structures([made / "structures.smi"], made / "structures", holdout=held_out)
    manifest = prepare_simulated(made / "structures", simulator(), made / "out", {}, seed=3)
    return made / "out", manifest


def test_every_structure_has_one_spectrum_of_fold_train(folder):
    out, manifest = folder
    verify(out)
    spectra, given = load_spectra(out), load_molecules(out.with_name("structures"))

    assert len(spectra) == len(spectra.molecules) == len(SMILES) - 1
    assert spectra.molecule.tolist() == list(range(len(spectra)))
    assert set(spectra.spectrum_fold.tolist()) == {FOLDS.index("train")}
    for name, expected in given.arrays().items():
        np.testing.assert_array_equal(getattr(spectra.molecules, name), expected)
    assert (manifest["holdout_keys"], manifest["holdout_removed"]) == (2, 1)
    assert manifest["source"]["simulated"]["file"] == "structures.smi"


def test_a_limit_and_blocks_change_no_spectrum(tmp_path, folder, monkeypatch):
    out, manifest = folder
    source, told = out.with_name("structures"), []
    prepare_simulated(source, simulator(), tmp_path / "4", {}, limit=4, seed=3, advance=told.append)
    monkeypatch.setattr(prepared, "BLOCK", 3)
    blocks = prepare_simulated(source, simulator(), tmp_path / "99", {}, limit=99, seed=3)

    whole, few = load_spectra(out), load_spectra(tmp_path / "4")
    names = whole.molecules.inchikey.tolist()
    rows = [names.index(name) for name in few.molecules.inchikey.tolist()]
    assert len(rows) == sum(told) == 4
    assert rows == sorted(set(rows)) != list(range(4))
    for place, row in enumerate(rows):
        got, expected = from_prepared(few, [place]), from_prepared(whole, [row])
        np.testing.assert_array_equal(got.numbers, expected.numbers)
    assert blocks["arrays"] == manifest["arrays"]


@pytest.mark.parametrize(("fold", "max_atoms"), [([1, 2], 50), ([0, 0], 2)])
def test_without_a_structure_to_simulate_it_says_so(tmp_path, fold, max_atoms):
    structures = structures_folder(tmp_path / "s", "CCO", "CCN", fold=fold)

    with pytest.raises(UnreadableError, match="s holds no structure of fold train"):
        prepare_simulated(structures, simulator(), tmp_path / "out", {}, max_atoms=max_atoms)

    assert not (tmp_path / "out").exists()


@torch.no_grad()
def test_the_loss_is_read_peak_by_peak():
    torch.manual_seed(1)
    model, features = FragmentModel(12).eval(), torch.randn(4, N_INPUTS)
    torch.nn.init.normal_(model.presence.weight)
    intensity = torch.zeros(4, len(SHIFTS))
    intensity[0, 3], intensity[2, 5], intensity[2, 6] = 1.0, 0.2, 1e-6
    presence, mean = (values.tolist() for values in model(features))

    expected = 0.0
    for row, values in enumerate(intensity.tolist()):
        for column, value in enumerate(values):
            chance = 1 / (1 + math.exp(-presence[row][column]))
            expected -= math.log(chance if value else 1 - chance)
            if value:  # fainter than a thousandth counts as a thousandth
                off = mean[row][column] - math.log(max(value, 1e-3))
                expected += 0.5 * (off / LOG_INTENSITY_SPREAD) ** 2

    assert float(fragment_loss(model, features, intensity)) == pytest.approx(expected / 3)
