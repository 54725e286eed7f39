"""The attention study, from weights whose answer is known to files."""

import json
import math
from dataclasses import replace

import asymmetry
import numpy as np
import pytest
import torch
from asymmetry import (
    KnownMolecule,
    NoiseLevels,
    Selection,
    first_weights,
    known_molecules,
    load_studied,
    watched,
)
from attention import attention
from attention import study as study_of
from bond_statistics import EQUAL, UNEQUAL, order_effect, summarise, views
from bond_statistics import asymmetry as asymmetry_of
from hypothesis import given
from hypothesis import strategies as st

from duallgd_authors_network import weights_file as reference
from duallgd_authors_network.denoiser import ReferenceDenoiser
from duallgd_authors_network.settings import ReferenceDenoiserSettings, ReferenceSettings
from duallgd_cli.checkpoint import format as own_format
from duallgd_cli.checkpoint.format import Checkpoint, save
from duallgd_cli.chem.elements import BOND_SINGLE, HEAVY
from duallgd_cli.data.prepared import load_molecules
from duallgd_cli.errors import UsageError
from tests.made_graphs import condition, noisy_bonds, small_settings, stirred
from tests.made_prepared import SMILES, spectra_folder, structures_folder

C, N, OX, P, S, B, SI, SE = (HEAVY.index(x) for x in ("C", "N", "O", "P", "S", "B", "Si", "Se"))


def two_atoms(low, high, first, bond=BOND_SINGLE, key="MADE"):
    """One pair, with the lower atom's weight at one layer and level."""
    weight = np.full((1, 1, 1), first)
    return asymmetry_of(key, np.array([low, high]), np.array([bond]), weight)


@pytest.mark.parametrize(
    ("low", "high", "kind", "expected"),
    [
        (C, OX, "C-O", math.log2(0.25 / 0.75)),
        (C, S, "C-S", math.log2(0.25 / 0.75)),
        (C, P, "P-C", math.log2(0.75 / 0.25)),
        (OX, S, "S-O", math.log2(0.75 / 0.25)),
        (OX, SI, "Si-O", math.log2(0.75 / 0.25)),
        (C, B, "B-C", math.log2(0.75 / 0.25)),
    ],
)
def test_the_ratio_is_of_the_less_over_the_more_electronegative_end(low, high, kind, expected):
    seen = two_atoms(low, high, 0.25)

    assert seen.kind == (kind,)
    np.testing.assert_allclose(seen.log_ratio, expected)
    np.testing.assert_allclose(seen.by_row, math.log2(0.25 / 0.75))


@given(first=st.floats(1e-6, 1 - 1e-6), ends=st.sampled_from([(C, OX), (C, P), (C, C), (N, S)]))
def test_swapping_the_weights_flips_the_sign(first, ends):
    one, other = two_atoms(*ends, first), two_atoms(*ends, 1 - first)

    np.testing.assert_allclose(one.log_ratio, -other.log_ratio, atol=1e-9)


def test_the_coin_of_equal_ends_is_the_same_each_time_and_falls_on_both_sides():
    keys = [f"KEY{number}" for number in range(200)]
    signs = [float(np.sign(two_atoms(C, C, 0.25, key=key).log_ratio[0, 0])) for key in keys]
    again = [float(np.sign(two_atoms(C, C, 0.25, key=key).log_ratio[0, 0])) for key in keys]

    assert signs == again
    assert 70 < signs.count(1.0) < 130


def test_weights_are_averaged_before_the_ratio_is_taken():
    first = np.array([[[0.1], [0.3]], [[0.5], [0.7]]])  # two layers, two levels, one pair

    np.testing.assert_allclose(views(first), [[0.4, 0.2, 0.6, 0.3, 0.5]])
    seen = asymmetry_of("MADE", np.array([C, OX]), np.array([1]), first)
    np.testing.assert_allclose(seen.log_ratio[0, 0], math.log2(0.4 / 0.6))


def many(effect, count=60, seed=1):
    """Molecules C-C-O whose C-O bonds prefer O by `effect`, and whose C-C bonds prefer nobody."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        logit = rng.normal(0, 0.3, 3) - np.array([0, effect / 3, effect])
        first = 1 / (1 + 2.0**-logit)
        found.append(
            asymmetry_of(f"M{number}", np.array([C, C, OX]), np.array([1, 0, 1]), first[None, None])
        )
    return found


def test_a_planted_preference_is_found_and_equal_ends_have_none():
    kinds = {kind["kind"]: kind for kind in summarise(many(0.8), ("layer 1", "t = 50"))}

    assert list(kinds) == [UNEQUAL, EQUAL, "C-C", "C-O"]
    polar, control = kinds["C-O"], kinds["C-C"]
    assert polar["mean"]["low"] - 0.05 < -0.8 < polar["mean"]["high"] + 0.05
    assert polar["median"]["low"] <= polar["median"]["mean"] <= polar["median"]["high"] < 0
    assert polar["verdict"] == "high"
    assert polar["share_negative"] > 0.9
    assert polar["p_value"] < 1e-6
    assert (polar["bonds"], polar["molecules"]) == (60, 60)
    assert set(polar["by_view"]) == {"layer 1", "t = 50"}
    np.testing.assert_allclose(polar["unbonded"]["mean"], -0.8 / 3, atol=0.1)
    assert control["mean"]["low"] < 0 < control["mean"]["high"]
    assert control["verdict"] == "neither"
    assert control["p_value"] > 0.01
    assert math.isnan(control["unbonded"]["mean"])
    assert kinds[UNEQUAL]["mean"] == polar["mean"]


def test_an_order_that_the_network_sees_shows_between_equal_ends():
    blind = [two_atoms(C, C, 0.5 + 0.01 * (-1) ** n, key=str(n)) for n in range(40)]
    seeing = [two_atoms(C, C, 0.6, key=str(n)) for n in range(40)]
    none = [two_atoms(C, OX, 0.6)]

    assert order_effect(blind).low < 0 < order_effect(blind).high
    assert order_effect(seeing).low == pytest.approx(math.log2(0.6 / 0.4))
    assert math.isnan(order_effect(none).mean)


CPU = torch.device("cpu")
NOISE = NoiseLevels((50, 500), draws=3)
REFERENCE = {"layers": 2, "condition_width": 16, "atom_width": 16, "edge_width": 8, "heads": 2}


def molecule(formula="C4H7NO2S", key="MADE"):
    known = condition([formula])
    n = known.atom_class.shape[1]
    return KnownMolecule(key, known.atom_class[0].numpy(), noisy_bonds(n).numpy(), known)


def own():
    return asymmetry.ours(stirred(small_settings()), CPU)


def authors(**changes):
    settings = ReferenceSettings(ReferenceDenoiserSettings(**(REFERENCE | changes)))
    torch.manual_seed(1)
    return asymmetry.authors(ReferenceDenoiser(settings.denoiser).eval(), None, settings, CPU)


@pytest.mark.parametrize("studied", [own(), authors()], ids=["default", "reference"])
def test_weights_come_by_layer_level_and_pair_and_watching_changes_nothing(studied):
    known = molecule()
    noisy = noisy_bonds(8, seed=4).expand(2, -1)
    before = studied.denoiser(known, 2)(noisy, 50)

    with watched(studied.network) as seen:
        within = studied.denoiser(known, 2)(noisy, 50)

    assert torch.equal(within, before)
    assert [tuple(first.shape[:2]) for first in seen] == [(2, 28)] * 2
    studied.denoiser(known, 3)(noisy_bonds(8).expand(3, -1), 50)
    assert [len(first) for first in seen] == [2, 2]  # nobody looks any more
    first = first_weights(studied, known, NOISE, [0, 1])
    assert (first.shape, first.dtype) == ((2, 2, 28), np.float64)
    assert ((first > 0) & (first < 1)).all()
    np.testing.assert_array_equal(first_weights(studied, known, NOISE, [1]), first[1:])


@pytest.mark.parametrize(
    ("variant", "layers", "message"),
    [
        ({"synchronisation": "atoms"}, [0], "do not attend to their two atoms"),
        ({"synchronisation": "none"}, [0], "do not attend to their two atoms"),
        ({"synchronisation": "unmasked"}, [0], "layer 1 of this network no pair attends to its"),
    ],
)
def test_ablations_without_this_attention_are_refused(variant, layers, message):
    with pytest.raises(UsageError, match=message):
        first_weights(authors(**variant), molecule(), NOISE, layers)


def test_both_kinds_of_weights_files_are_studied(tmp_path):
    model = stirred(small_settings())
    ours, theirs = tmp_path / "ours.safetensors", tmp_path / "theirs.safetensors"
    own_format.save(ours, own_format.Checkpoint(model.settings, model.state_dict()))
    network = authors()
    settings = ReferenceSettings(network.network.settings)
    tensors = {f"denoiser.{name}": t for name, t in network.network.state_dict().items()}
    reference.save(theirs, reference.ReferenceCheckpoint(settings, tensors))
    fine_tuned = tmp_path / "fine.safetensors"
    projection = torch.nn.Linear(4096, 16)
    more = {f"projection.{name}": t for name, t in projection.state_dict().items()}
    reference.save(fine_tuned, reference.ReferenceCheckpoint(settings, tensors | more))

    found = [first_weights(load_studied(path, CPU, False), molecule(), NOISE, [0, 1])
             for path in (ours, theirs, fine_tuned)]  # fmt: skip

    expected = first_weights(asymmetry.ours(model, CPU), molecule(), NOISE, [0, 1])
    np.testing.assert_array_equal(found[0], expected)
    np.testing.assert_array_equal(found[1], first_weights(network, molecule(), NOISE, [0, 1]))
    assert not np.allclose(found[2], found[1])
    with pytest.raises(UsageError, match="--condition true"):
        load_studied(theirs, CPU, predicted=True)


def test_a_pre_trained_decoder_reads_the_fingerprint_folded_to_its_width():
    known = molecule()
    folded, further = (
        replace(known, condition=replace(known.condition, bit=torch.tensor([bits])))
        for bits in ([0, 3], [3, 16, 35])
    )

    first, again, other = (
        first_weights(authors(), one, NOISE, [1]) for one in (folded, further, known)
    )

    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return structures_folder(tmp_path_factory.mktemp("data") / "made", fold=[3] * len(SMILES))


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "small.safetensors"
    model = stirred(small_settings())
    save(path, Checkpoint(model.settings, model.state_dict()))
    return path


@pytest.fixture
def request_(folder, weights, tmp_path):
    noise = NoiseLevels((50, 500), draws=1)
    return {
        "data": folder, "output": tmp_path / "out", "weights": weights, "noise": noise,
        "selection": Selection(), "device": torch.device("cpu"), "untrained": 1, "plot": False,
    }  # fmt: skip


@pytest.mark.slow
def test_a_study_gives_the_same_bytes_again_and_others_with_another_seed(request_, tmp_path):
    found = study_of(**request_)
    study_of(**request_ | {"output": tmp_path / "again"})
    noise = NoiseLevels((50, 500), 1, seed=1)
    study_of(**request_ | {"output": tmp_path / "other", "noise": noise})

    texts = [(tmp_path / name / "results.json").read_text() for name in ("out", "again", "other")]
    assert texts[0] == texts[1] != texts[2]
    assert json.loads(texts[0]) == found
    assert found["data"] == {"folder": "made", "fold": "dev", "molecules": len(SMILES)}
    assert found["condition"] == "true fingerprints"
    assert found["layers"] == [1, 2]
    assert len(found["untrained"]) == 1
    kinds = {kind["kind"] for kind in found["kinds"]}
    assert {"C-C", "C:C", "C-O", "C=O", "C-N", "C:N", "S=O", "C-Br"} <= kinds


def test_both_figures_are_drawn(request_):
    pytest.importorskip("matplotlib", reason="needs the evaluate extra")

    study_of(**request_ | {"plot": True})

    for name in ("asymmetry_molecule", "asymmetry_kinds"):
        assert (request_["output"] / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (request_["output"] / f"{name}.svg").read_text()


def test_predicted_fingerprints_change_the_numbers(request_, tmp_path):
    spectra = spectra_folder(tmp_path / "spectra")
    chosen = request_ | {"data": spectra, "untrained": 0}
    predicted = study_of(**chosen | {"selection": Selection("train", peaks=True)})
    true = study_of(**chosen | {"selection": Selection("train")})

    assert predicted["condition"] == "predicted fingerprints"
    assert predicted["kinds"][0]["bonds"] == true["kinds"][0]["bonds"]
    assert predicted["kinds"][0]["mean"] != true["kinds"][0]["mean"]


def test_molecules_come_with_all_their_bonds_and_their_own_fingerprint(folder):
    prepared = load_molecules(folder)
    rows = {key.decode(): row for row, key in enumerate(prepared.inchikey)}

    for molecule in known_molecules(folder, Selection())[0]:
        row = rows[molecule.key]
        assert molecule.bond_class.tolist() == prepared.bond_class(row).tolist()
        assert molecule.condition.bit[0].tolist() == prepared.fingerprint_bits(row).tolist()
        assert molecule.places().shape == (len(molecule.atom_class), 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--t", "50,x"], "--t takes numbers"),
        (["--t", "0"], "noise levels must be 1 to 500"),
        (["--layers", "7"], "layers must be 1 to 2"),
        (["--condition", "best"], "condition must be true or predicted"),
        (["--condition", "predicted"], "holds no spectra"),
        (["--fold", "val"], "no molecule of fold val"),
    ],
)
def test_wrong_options_get_one_sentence(study, folder, weights, options, message):
    done = study(attention, "--data", folder, "-o", "out", "--weights", weights, *options)

    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err


def test_the_command_prints_its_table(study, folder, weights, tmp_path):
    done = study(
        attention, "--data", folder, "-o", "out", "--weights", weights, "--limit", "9", "--t",
        "20, 400", "--layers", "2", "--device", "cpu", "--untrained", "1", "--no-plot",
    )  # fmt: skip

    assert done.code == 0, done.err
    assert "Attention of bonds to their ends, 9 molecules" in done.out
    assert "unequal electronegativity" in done.out
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert found["noise"] == {"steps": [20, 400], "draws": 2, "seed": 0}
    assert found["layers"] == [2]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "attention.md", "results.json",
    ]  # fmt: skip
