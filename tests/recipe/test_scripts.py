"""The scripts of weights/recipe: structures like measured ones, cations, encoders judged, parts."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rdkit import Chem
from typer import Typer
from typer.testing import CliRunner

from duallgd_cli.checkpoint.format import Checkpoint, save
from duallgd_cli.chem import identity
from duallgd_cli.chem.elements import INDEX
from duallgd_cli.chem.identity import canonical_smiles, inchikey_block, parse_smiles
from duallgd_cli.chem.molecule import disassemble
from duallgd_cli.data.prepared import load_molecules, read_manifest
from duallgd_cli.errors import MissingInputError, UnreadableError, UsageError
from duallgd_cli.model.duallgd import DualLGD
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictRequest
from tests.labelled_table import packed
from tests.made_graphs import small_settings
from tests.made_prepared import SPECTRA, molecules_of, spectra_folder, structures_folder, verify
from tests.made_runs import rows_of
from tests.stub_model import stub_model
from tests.unit.predict.test_ranking import outcome, structure
from weights.recipe import parts as recipe
from weights.recipe.cations import CATION_TYPES, cations
from weights.recipe.cations import main as write_cations
from weights.recipe.judge_encoders import difference, entropy, scaled
from weights.recipe.judge_encoders import main as judge
from weights.recipe.select_structures import (
    domain_classifier,
    log_odds,
    morgan_bits,
    select_structures,
)

ESTERS = [f"{'C' * n}OC(=O){'C' * m}" for n in range(1, 9) for m in range(1, 6)]
CHLORIDES = [f"{'C' * n}C(Cl){'C' * m}" for n in range(1, 9) for m in range(1, 6)]


def measured(path, *smiles):
    rows = [(one, "[M+H]+", "C2H5", "20", "train") for one in smiles]
    return spectra_folder(path, *rows)


def bits_of(*smiles):
    molecules = molecules_of(*smiles)
    return morgan_bits(molecules, np.arange(len(molecules)))


def test_the_classifier_is_where_the_penalised_loss_is_least():
    known, others = bits_of("CCO", "CCCO", "CCN"), bits_of("CCCl", "CCCCl", "CCO")
    weight = domain_classifier(known, others).requires_grad_()

    loss = torch.nn.functional.softplus(-log_odds(known, weight)).mean()
    loss = loss + torch.nn.functional.softplus(log_odds(others, weight)).mean()
    (loss + 0.001 * weight[:-1].square().sum()).backward()

    assert weight.grad.abs().max() < 1e-4


def test_molecules_like_measured_ones_are_chosen(tmp_path):
    structures = structures_folder(tmp_path / "all", *ESTERS[::2], *CHLORIDES)
    like = measured(tmp_path / "measured", *ESTERS[1::2])

    select_structures(structures, tmp_path / "alike", like, 15)

    chosen, manifest = load_molecules(tmp_path / "alike"), read_manifest(tmp_path / "alike")
    verify(tmp_path / "alike")
    assert len(chosen) == manifest["molecules"] == 15
    esters = chosen.atom_counts[:, INDEX["Cl"]] == 0
    # By chance it would be five.
    assert esters.sum() >= 12
    assert manifest["mean_log_odds"] > manifest["mean_log_odds_before"]


def test_held_out_folds_are_kept_whole_and_order_stays(tmp_path):
    folds = [0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 3, 3]
    structures = structures_folder(tmp_path / "all", fold=folds)
    like = spectra_folder(tmp_path / "measured", *SPECTRA)

    select_structures(structures, tmp_path / "alike", like, 2)

    chosen, before = load_molecules(tmp_path / "alike"), load_molecules(structures)
    assert chosen.fold.tolist() == [0, 0, 1, 1, 2, 3, 3, 3]
    places = [before.inchikey.tolist().index(key) for key in chosen.inchikey.tolist()]
    assert places == sorted(places)


def test_only_structures_of_the_sizes_wanted_are_chosen(tmp_path):
    structures = structures_folder(tmp_path / "all", *ESTERS)
    like = measured(tmp_path / "measured", "CCCOC(=O)CC", "CCO")

    select_structures(structures, tmp_path / "alike", like, 99, min_atoms=8, max_atoms=9)

    n_heavy = load_molecules(structures).n_heavy
    chosen = load_molecules(tmp_path / "alike").n_heavy.tolist()
    assert chosen == [n for n in n_heavy.tolist() if n in (8, 9)]


def test_measured_molecules_are_kept_once_if_wanted(tmp_path):
    structures = structures_folder(tmp_path / "all", "CCCCCOC(=O)CC", "CCOC(=O)CCC", "CCCl")
    like = measured(tmp_path / "measured", "CCCCCOC(=O)CCC", "CCCCCOC(=O)CC", "CCO")

    select_structures(structures, tmp_path / "alike", like, 99, min_atoms=8, with_measured=True)

    chosen, manifest = load_molecules(tmp_path / "alike"), read_manifest(tmp_path / "alike")
    verify(tmp_path / "alike")
    assert chosen.n_heavy.tolist() == [11, 10, 8]
    assert manifest["molecules"] == len(set(chosen.inchikey.tolist())) == 3
    expected = molecules_of("CCCCCOC(=O)CCC", "CCCCCOC(=O)CC", "CCOC(=O)CCC")
    for place in range(3):
        own = [m for m in range(3) if expected.inchikey[m] == chosen.inchikey[place]]
        for name in ("bond_class", "fingerprint_bits"):
            known = getattr(expected, name)(own[0])
            np.testing.assert_array_equal(getattr(chosen, name)(place), known)


def test_a_seed_draws_the_same_again_and_another_another(tmp_path):
    structures = structures_folder(tmp_path / "all", *ESTERS)
    like = measured(tmp_path / "measured", "CCO", "CCOC")

    def chosen(seed):
        select_structures(structures, tmp_path / f"alike{seed}", like, 10, seed=seed)
        return load_molecules(tmp_path / f"alike{seed}").inchikey.tolist()

    assert chosen(1) == chosen(1)
    assert chosen(1) != chosen(2)


def test_what_cannot_be_chosen_from_is_refused(tmp_path):
    structures = structures_folder(tmp_path / "all")
    like = spectra_folder(tmp_path / "measured")

    for first, reference, out, message in (
        (like, like, "alike", "holds spectra"),
        (structures, structures, "alike", "not spectra"),
        (structures, like, "all", "give another output"),
        (structures, like, "measured", "give another output"),
    ):
        with pytest.raises(UsageError, match=message):
            select_structures(first, tmp_path / out, reference, 3)
    verify(structures)
    verify(like)


@pytest.mark.parametrize("which", ["structures", "spectra"])
def test_nothing_to_train_on_is_said(tmp_path, which):
    fold = [3] * 12 if which == "structures" else None
    structures = structures_folder(tmp_path / "all", fold=fold)
    rows = [(*row[:-1], "val") for row in SPECTRA] if which == "spectra" else SPECTRA
    like = spectra_folder(tmp_path / "measured", *rows)

    with pytest.raises(UnreadableError, match=r"no molecule of fold train .* --min-atoms"):
        select_structures(structures, tmp_path / "alike", like, 3)


CYANIDIN_GLUCOSIDE = "OCC1OC(Oc2cc3c(O)cc(O)cc3[o+]c2-c2ccc(O)c(O)c2)C(O)C(O)C1O"
ISOQUERCITRIN = "OCC1OC(Oc2c(-c3ccc(O)c(O)c3)oc3cc(O)cc(O)c3c2=O)C(O)C(O)C1O"


def made(tmp_path, *smiles, limit=100, seed=1, fold="train"):
    """Pairs of SMILES and type, in order, and the counts."""
    source = tmp_path / "neutral.tsv"
    rows = "".join(f"{text}\t{fold}\n" for text in smiles)
    source.write_text("smiles\tfold\n" + rows)
    found = cations(source, limit, seed)
    return found, Counter(kind for _, kind in found)


def test_a_flavonol_glycoside_becomes_the_anthocyanin(tmp_path):
    rows, counts = made(tmp_path, ISOQUERCITRIN)

    assert rows == [(canonical_smiles(parse_smiles(CYANIDIN_GLUCOSIDE)), "flavylium")]
    assert counts == {"flavylium": 1}


@pytest.mark.parametrize(
    ("smiles", "kind", "charged"),
    [
        ("CCCCBr", "phosphonium", "[P+](c1ccccc1)(c1ccccc1)c1ccccc1"),
        ("CN(C)CCc1ccccc1", "ammonium", "[N+]"),
        ("CCCCn1ccnc1", "imidazolium", "[n+]"),
        ("NC(=O)c1cccnc1", "pyridinium", "[n+]"),
    ],
)
def test_each_kind_is_made_at_its_own_site(tmp_path, smiles, kind, charged):
    """Whatever alkylates it; every atom of the structure but a halogen stays."""
    for seed in range(12):
        ((text, named),), _ = made(tmp_path, smiles, seed=seed)

        mol, before = parse_smiles(text), parse_smiles(smiles)
        assert named == kind
        assert Chem.GetFormalCharge(mol) == 1
        assert mol.HasSubstructMatch(Chem.MolFromSmarts(charged))
        assert sum(atom.GetNumRadicalElectrons() for atom in mol.GetAtoms()) == 0
        rings = [Chem.GetSSSR(one) for one in (mol, before)]
        assert len(rings[0]) - len(rings[1]) in {0, 1, 3}  # benzyl, triphenylphosphine
        assert disassemble(mol).formula.charge == 1  # a bond matrix can express it
        kept = sum(atom.GetSymbol() != "Br" for atom in before.GetAtoms())
        assert mol.GetNumAtoms() > kept


@pytest.mark.parametrize(
    "smiles",
    ["CCO", "CC(=O)N(C)C", "CN(C)c1ccccc1", "c1ccoc1", "CC=CCl", "CS(=O)(=O)N(C)C", "N#CN(C)C"],
)
def test_what_has_no_such_site_is_left_alone(tmp_path, smiles):
    with pytest.raises(UnreadableError, match="no structure that a cation could be made of"):
        made(tmp_path, smiles)


def test_no_kind_is_more_than_its_share(tmp_path):
    amines = [f"CN(C){'C' * n}O" for n in range(1, 9)]

    _, counts = made(tmp_path, *amines, ISOQUERCITRIN, limit=3 * len(CATION_TYPES))

    assert counts == {"ammonium": 3, "flavylium": 1}


def test_held_out_folds_and_what_is_no_molecule_give_nothing(tmp_path):
    with pytest.raises(UnreadableError):
        made(tmp_path, "CN(C)CCO", fold="dev")
    rows, _ = made(tmp_path, "CN(C", "CN(C)CCO", "C1=")

    assert len(rows) == 1


def test_the_same_seed_makes_the_same_cations(tmp_path):
    amines = [f"CN(C){'C' * n}O" for n in range(1, 9)]

    one, other = (made(tmp_path, *amines, seed=4)[0] for _ in range(2))
    third = made(tmp_path, *amines, seed=5)[0]

    assert one == other != third
    assert len({inchikey_block(parse_smiles(text)) for text, _ in one}) == len(one)


def test_a_file_of_them_is_written_whole_or_not_at_all(tmp_path, capsys):
    (tmp_path / "neutral.smi").write_text("CCO\n")
    (tmp_path / "amine.smi").write_text("CN(C)CCO\nCCCCBr\n")

    for source, out, error, message in (
        ("neutral.smi", "x.smi", UnreadableError, "no structure that a cation could be made of"),
        ("none.smi", "x.smi", MissingInputError, "none.smi does not exist"),
        ("neutral.smi", "neutral.smi", UsageError, "give another output"),
        ("amine.smi", "none/x.smi", UsageError, "cannot write"),
    ):
        with pytest.raises(error, match=message):
            write_cations(tmp_path / source, tmp_path / out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["amine.smi", "neutral.smi"]
    write_cations(tmp_path / "amine.smi", tmp_path / "made.smi")

    assert "1 ammonium, 1 phosphonium in" in capsys.readouterr().err
    lines = (tmp_path / "made.smi").read_text().splitlines()
    assert [line.split()[1] for line in lines] == ["ammonium", "phosphonium"]


def test_logits_that_differ_by_a_factor_alone_are_as_good():
    generator = torch.Generator().manual_seed(1)
    truth = (torch.rand(50, 40, generator=generator) < 0.3).float()
    logits = truth - 0.7 + torch.randn(50, 40, generator=generator)

    best, less = (float(entropy(scaled(z, truth), truth).mean()) for z in (logits, 0.95 * logits))

    assert best < float(entropy(logits, truth).mean())
    assert abs(best - less) < 0.05


def test_spectra_of_one_molecule_count_once():
    change, error = difference(
        torch.tensor([1.0, 1.0, 1.0, 3.0]), torch.zeros(4), np.array([7, 7, 7, 9])
    )

    assert (change, error) == (2.0, 1.0)


def test_an_encoder_is_no_better_than_itself(tmp_path):
    weights = tmp_path / "w.safetensors"
    torch.manual_seed(1)
    settings = small_settings(layers=1)
    save(weights, Checkpoint(settings, dict(DualLGD(settings).state_dict())))
    app = Typer()
    app.command()(judge)
    data = spectra_folder(tmp_path / "spectra")

    done = CliRunner().invoke(app, [str(weights), "--data", str(data)])

    assert done.exit_code == 0, done.output
    _, alone, together = (line.split("\t") for line in done.stdout.splitlines())
    assert alone[3] == together[3] == "+0.00"
    assert alone[1:3] == together[1:3]


EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PHENOLS = [f"{'C' * n}c1ccc(O)cc1" for n in range(1, 9)]


@pytest.fixture
def data(tmp_path):
    """The two tables that the recipe learns from; a row of another fold must not count."""
    known = [{"smiles": one, "source": "unpd", "fold": "train"} for one in ESTERS + PHENOLS]
    packed(tmp_path / "structures" / "structures.tsv.xz", list(known[0]), known)
    measured = [
        {"smiles": PHENOLS[0], "inchikey": "A", "fold": "train"},
        {"smiles": "CCN", "inchikey": "B", "fold": "val"},
    ]
    packed(tmp_path / "massbank" / "massbank.tsv.xz", list(measured[0]), measured)
    return tmp_path


@pytest.fixture
def run(tmp_path):
    """A run of a stand-in for the model, and the table of the truth."""
    output, truth = tmp_path / "out.csv", tmp_path / "truth.tsv"
    inputs, formulas = (str(EXAMPLES / "spectra.mgf"),), EXAMPLES / "formulas.csv"
    predict(PredictRequest(inputs=inputs, output=str(output), formulas=formulas), stub_model())
    found = {row["spectrum_id"]: row["smiles"] for row in rows_of(output)}
    lines = ["identifier\tsmiles\tinchikey"]
    for name, smiles in found.items():
        key = identity.inchikey(identity.parse_smiles(smiles))
        lines.append(f"{name}\t{smiles}\t{key}")
    truth.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return output, truth


def test_rows_of_other_folds_are_not_read(data):
    assert recipe.known_molecules(data) == (ESTERS + PHENOLS, [PHENOLS[0]])


def test_it_writes_what_the_package_reads_and_prints_how_good_it_is(data, run, monkeypatch, capsys):
    monkeypatch.setattr(recipe, "load", lambda _: SimpleNamespace(ranking={}))
    output, truth = run

    recipe.main(data, [output], truth, output=data / "parts.npz")
    said = capsys.readouterr().out
    written, shipped = dict(np.load(data / "parts.npz")), dict(recipe.likely._fitted())

    assert written.keys() == shipped.keys()
    assert {name: value.shape for name, value in written.items()} == {
        name: value.shape for name, value in shipped.items()
    }
    assert np.isfinite(written["weights"]).all()
    assert "fold val, all samples" in said
    assert "area under precision-recall" in said


def test_average_precision_is_one_where_all_true_ones_come_first():
    has = np.array([True, True, False, False])

    assert recipe.average_precision(np.array([0.9, 0.8, 0.2, 0.1]), has) == 1.0
    assert recipe.average_precision(np.array([0.1, 0.2, 0.8, 0.9]), has) == pytest.approx(
        (1 / 3 + 2 / 4) / 2
    )


def drawn_twice(sampled=100):
    """A feature of 100 samples: 50 became A, 30 B (10 repaired), 2 C, the rest no molecule."""
    structures = (
        structure("A", 50),
        structure("B", 30, repaired=10),
        structure("C", 2),
    )
    return (outcome(*structures, sampled=sampled),)


@pytest.mark.parametrize("n", [1, 7, 99])
def test_a_part_of_the_samples_is_one_that_might_have_been_drawn(n):
    (part,) = recipe.part_of(drawn_twice(), n, np.random.default_rng(0))

    assert part.sampled == n
    assert sum(one.samples for one in part.structures) <= n
    assert all(one.samples for one in part.structures)
    assert all(one.repaired <= one.samples for one in part.structures)


def test_parts_are_right_on_average_and_all_samples_are_themselves():
    drawn, generator = drawn_twice(), np.random.default_rng(1)

    parts = [recipe.part_of(drawn, 10, generator)[0].structures for _ in range(2000)]

    counts = {
        name: np.mean([sum(one.samples for one in part if one.smiles == name) for part in parts])
        for name in "AB"
    }
    assert counts == pytest.approx({"A": 5.0, "B": 3.0}, abs=0.15)
    assert tuple(recipe.part_of(drawn, 100, generator)) == drawn
