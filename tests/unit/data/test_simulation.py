"""Simulated spectra obey the arithmetic that measured ones do, and follow the fragment model."""

import math

import numpy as np
import pytest
import torch

from duallgd_cli.chem.adduct import ADDUCTS, BY_NAME
from duallgd_cli.chem.elements import ELECTRON_MASS_DA, HYDROGEN, MASSES_DA, N_HEAVY
from duallgd_cli.data import prepared, simulation
from duallgd_cli.data.fragmentation import N_INPUTS, SHIFTS, fragments
from duallgd_cli.data.molecular_graph import graph_of
from duallgd_cli.data.peaks import prepared_batch
from duallgd_cli.data.prepared import FOLDS, load_molecules, load_spectra
from duallgd_cli.data.simulation import FragmentModel, prepare_simulated
from duallgd_cli.data.structures import prepare_structures
from duallgd_cli.errors import UnreadableError
from duallgd_cli.spectra.annotation import LEAST_EXCESS, AnnotationSettings, excess
from duallgd_cli.spectra.types import INSTRUMENTS
from tests.made_prepared import SMILES, molecules_of, structures_folder, verify
from tests.made_simulation import ORBITRAP, QTOF, drawn_by, ion, simulator

ASPIRIN = 4


@pytest.fixture(scope="module")
def molecules():
    return molecules_of()


@pytest.fixture
def cuts_alone(monkeypatch):
    """Fragments of one spectrum alone, with chances as the model says them."""
    none = {"_MERGED_SHARE": 0.0, "_UNREACHABLE_SHARE": (0.0,) * 3, "_CHANCE_SPREAD": 0.0}
    for name, value in none.items():
        monkeypatch.setattr(simulation, name, value)


def seeded(seed=1):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("row", range(len(SMILES)))
def test_every_peak_is_a_part_of_the_ion_at_its_mass_but_for_an_error(molecules, row):
    for seed in range(12):
        rows = drawn_by(simulator(), molecules, row, seeded(seed))

        assert ((rows.subformula >= 0) & (rows.subformula <= rows.parent)).all()
        assert rows.subformula[:, :N_HEAVY].any(1).all()
        adduct = ADDUCTS[int(rows.adduct)]
        np.testing.assert_array_equal(rows.parent[0], molecules.atom_counts[row] + [*adduct.change])
        exact = rows.subformula.numpy().astype(float) @ np.array(MASSES_DA)
        exact -= adduct.charge * ELECTRON_MASS_DA
        off = 1 + rows.ppm.numpy() * 1e-6
        np.testing.assert_allclose(rows.mz, exact * off, rtol=1e-6)


@pytest.mark.parametrize(("instrument", "least", "most"), [(ORBITRAP, 0.3, 2.5), (QTOF, 3.0, 9.0)])
def test_mass_errors_are_those_of_the_instrument(molecules, instrument, least, most):
    """Of the whole ion, alone in its place, so that nothing else explains the peak."""
    draw = simulator(ion(instrument=instrument), log_odds=-50)

    drawn = [drawn_by(draw, molecules, ASPIRIN, seeded(s)).ppm[0] for s in range(100)]

    assert least < np.std(drawn) < most
    assert abs(np.median(drawn)) < np.std(drawn) / 4
    allowed = AnnotationSettings().tolerance_ppm(INSTRUMENTS[instrument])
    assert np.abs(drawn).max() <= allowed + 1e-3


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

    rows = drawn_by(simulator(ion(drawn)), molecules, 0, seeded())

    assert ADDUCTS[int(rows.adduct)].name == is_a
    change = np.array(BY_NAME[is_a].change)
    np.testing.assert_array_equal(rows.parent[0], molecules.atom_counts[0] + change)


@pytest.mark.usefixtures("cuts_alone")
@pytest.mark.parametrize(
    ("adduct", "shift"), [("[M+H]+", -1), ("[M-H]-", 1), ("[M+H]+", 0), ("[M+H]+", 5)]
)
def test_peaks_are_the_fragments_that_the_model_names_if_they_can_be_ions(molecules, adduct, shift):
    """Ethanol with five hydrogens more is none: it alone is left."""
    possible = fragments(graph_of(molecules, 0), seeded()).counts
    possible[:, HYDROGEN] += simulation.CARRIED[BY_NAME[adduct].index] + shift

    drawn = simulator(ion(adduct), log_odds=50, shift=shift)
    rows = drawn_by(drawn, molecules, 0, seeded())

    parent = rows.parent[0].numpy()
    able = (possible >= 0).all(1) & (possible <= parent).all(1)
    able &= excess(possible) >= LEAST_EXCESS
    expected = {tuple(row) for row in possible[able]} or {tuple(parent)}
    assert {tuple(row) for row in rows.subformula.numpy()} == expected


def test_unreachable_peaks_are_no_cut_and_keep_their_electrons_paired(molecules):
    """Cuts of aspirin and the ions of them with paired electrons: neither is what is drawn."""
    found = fragments(graph_of(molecules, ASPIRIN), seeded())
    seen = found.counts[excess(found.counts) % 2 == 1]

    drawn = [simulation._unreachable(seen, found, seeded(s))[0] for s in range(20)]

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
    return made / "out", prepare_simulated(
        made / "structures", simulator(), made / "out", {}, seed=3
    )


def test_every_structure_has_one_spectrum_of_fold_train(folder):
    out, manifest = folder
    verify(out)
    spectra, given = load_spectra(out), load_molecules(out.with_name("structures"))

    assert spectra.molecule.tolist() == list(range(len(SMILES) - 1))
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
        got, expected = prepared_batch(few, [place]), prepared_batch(whole, [row])
        torch.testing.assert_close(vars(got), vars(expected), rtol=0, atol=0, equal_nan=True)
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

    expected = 0.0
    for log_odds, mean, value in zip(
        *(x.flatten().tolist() for x in (*model(features), intensity)), strict=True
    ):
        chance = 1 / (1 + math.exp(-log_odds))
        expected -= math.log(chance if value else 1 - chance)
        if value:  # fainter than a thousandth counts as a thousandth
            expected += (
                0.5 * ((mean - math.log(max(value, 1e-3))) / simulation.LOG_INTENSITY_SPREAD) ** 2
            )

    assert float(simulation.fragment_loss(model, features, intensity)) == pytest.approx(
        expected / 3
    )
