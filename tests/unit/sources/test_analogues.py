"""Molecules of the user: read, found again, turned towards a formula, told from a candidate."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import fingerprint, parse_smiles, tanimoto
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.chem.valence import bonds_of
from duallgd_cli.data.structures import StructureRow
from duallgd_cli.errors import UnreadableError, UsageError
from duallgd_cli.sources import structures
from duallgd_cli.sources.collection import exchanged, starts
from duallgd_cli.sources.known import Known
from duallgd_cli.sources.structures import Analogues, difference
from duallgd_cli.writers.formats import likeness

pytestmark = pytest.mark.usefixtures("databases")

QUERCETIN = "O=c1c(O)c(-c2ccc(O)c(O)c2)oc2cc(O)cc(O)c12"
ISORHAMNETIN = "COc1cc(-c2oc3cc(O)cc(O)c3c(=O)c2O)ccc1O"
MORIN = "O=c1c(O)c(-c2ccc(O)cc2O)oc2cc(O)cc(O)c12"
TELLS_NOTHING = np.full(FINGERPRINT_BITS, 0.01, np.float32)
KNOWN = (QUERCETIN, "CCCCO", "Cn1cnc2c1c(=O)[nH]c(=O)n2C", "c1ccccc1C(=O)O", "NCCc1ccccc1")


def read(path, text):
    path.write_text(text)
    return Analogues.read(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.smi", "CCCCO butanol\nOCC\n"),
        ("a.csv", "name,smiles,feature_id\nbutanol,CCCCO,7\n,OCC,\n"),
    ],
)
def test_names_and_features_are_read_with_the_molecules(tmp_path, name, text):
    made = read(tmp_path / name, text)

    assert (list(made.smiles), list(made.names)) == (["CCCCO", "OCC"], ["butanol", ""])
    limited = name.endswith("csv")
    assert made.of_feature(["7"]).tolist() == [True, True]
    assert made.of_feature(["8"]).tolist() == [not limited, True]


def test_reading_many_molecules_holds_arrays_and_no_objects(tmp_path, monkeypatch):
    path = tmp_path / "many.smi"
    rows = (f"{'C' * (2 + n % 40)}O molecule-number-{n}\n" for n in range(20_000))
    path.write_text("".join(rows))
    # What is looked at here is what is held, not what RDKit makes of a SMILES.
    mol = parse_smiles("CCO")
    monkeypatch.setattr(structures, "parse_smiles", lambda text: mol)

    tracemalloc.start()
    made = Analogues.read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(made) == 20_000
    assert peak / len(made) < 200  # bytes; of these 60 are their texts, which objects doubled


def test_a_second_reading_takes_what_was_kept_and_a_broken_cache_is_made_again(tmp_path):
    first = read(tmp_path / "a.smi", "CCO ethanol\nCCC\n")
    (kept,) = (tmp_path / "cache" / "guide").iterdir()
    second, whole = Analogues.read(tmp_path / "a.smi"), kept.read_bytes()
    kept.write_bytes(b"broken")
    third = Analogues.read(tmp_path / "a.smi")
    method = whole.index(b"PK\x01\x02") + 10  # of compression, one that does not exist
    kept.write_bytes(whole[:method] + b"?" + whole[method + 1 :])
    fourth = Analogues.read(tmp_path / "a.smi")

    for other in (second, third, fourth):
        assert list(other.smiles) == list(first.smiles)
        assert (other.bits == first.bits).all()
        assert (other.counts == first.counts).all()


@pytest.mark.parametrize("n", [1, 2])
def test_molecules_without_name_or_feature_are_asked_for_every_feature(tmp_path, n):
    (tmp_path / "a.smi").write_text("CCO\n" * n)

    for _ in ("read", "kept"):
        found = Analogues.read(tmp_path / "a.smi")
        assert (len(found), [*found.names], [*found.features]) == (n, [""] * n, [""] * n)
        assert found.of_feature(["7"]).all()


def test_rows_that_are_no_molecule_are_counted_each_time(tmp_path, caplog):
    read(tmp_path / "a.smi", "CCO\nno(\n[Fe]\nC.C\n")
    caplog.clear()
    Analogues.read(tmp_path / "a.smi")

    assert "1 molecule left out (not a molecule)" in caplog.text
    assert "Fe" in caplog.text
    assert "2 fragments" in caplog.text


def test_of_many_it_is_said_how_many_are_read(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(structures, "_AT_ONCE", 2)
    caplog.set_level("INFO")

    read(tmp_path / "a.smi", "CCO\nCCN\nCCC\nCCS\nCO\n")

    assert caplog.messages == ["2 of 5 molecules read", "4 of 5 molecules read"]


@pytest.mark.parametrize(
    ("name", "text", "error", "said"),
    [
        ("a.smi", "", UsageError, "holds no molecule that can be used: it is empty"),
        ("a.smi", "xx(\n", UsageError, "1 molecule left out"),
        ("a.csv", "name\nx\n", UnreadableError, "has no column smiles"),
        ("a.pdf", "x", UnreadableError, "is not .tsv, .csv, .smi or .sdf"),
        ("a.smi", "C\n" * 4, UsageError, "holds more than 3 molecules"),
    ],
)
def test_what_is_of_no_use_is_one_sentence(tmp_path, monkeypatch, name, text, error, said):
    monkeypatch.setattr(structures, "_MOST_ROWS", 3)

    with pytest.raises(error) as refused:
        read(tmp_path / name, text)

    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@given(st.sampled_from(KNOWN), st.lists(st.booleans(), min_size=len(KNOWN), max_size=len(KNOWN)))
def test_the_nearest_has_the_highest_tanimoto_of_those_allowed(tmp_path_factory, smiles, mask):
    path = tmp_path_factory.mktemp("known") / "a.smi"
    made = read(path, "\n".join(KNOWN))
    bits = [fingerprint(parse_smiles(one)) for one in KNOWN]
    own = fingerprint(parse_smiles(smiles))
    alike = [tanimoto(own, b) if m else -1 for b, m in zip(bits, mask, strict=True)]

    found = made.near(TELLS_NOTHING, Formula.parse("C7H6O2"), np.array(mask)).nearest(smiles)

    if not any(mask):
        assert found is None
    else:
        assert found["tanimoto"] == pytest.approx(max(alike), abs=1e-4)


@given(seed=st.integers(0, 1000), most=st.integers(1, 4), first=st.integers(1, 4))
def test_the_most_alike_are_found_whichever_are_looked_at_first(seed, most, first):
    made = Analogues.of([StructureRow(smiles, "train", 1) for smiles in KNOWN])
    formula, chance = Formula.parse("C8H10N4O2"), np.random.default_rng(seed).random(4096) ** 9
    chance = chance.astype(np.float32)

    def alike(smiles):
        mol = parse_smiles(smiles)
        bits, wanted = fingerprint(mol), np.array(formula.counts[:-1])
        apart = np.abs(np.array(formula_of(mol).counts[:-1]) - wanted).sum()
        common = chance[bits].sum()
        return common / (chance.sum() + len(bits) - common) - 0.02 * apart

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(structures, "_AT_ONCE", first)
        patched.setattr(structures, "_COMPARED", most)
        found = made.near(chance, formula, np.ones(len(made), np.bool_))

    assert list(found.smiles) == sorted(KNOWN, key=alike, reverse=True)[:most]
    assert found.bits.tolist() == [
        bit for one in found.smiles for bit in fingerprint(parse_smiles(one))
    ]


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ("C15H10O7", "C21H20O12", "+C6H10O5"),
        ("C21H20O12", "C15H10O7", "-C6H10O5"),
        ("C6H6O", "C6H5ClO", "+Cl -H"),
        ("C6H6O", "C6H6O", ""),
        ("C6H6O", "C20H13Br3", "+C14H7Br3 -O"),
    ],
)
def test_what_was_changed_is_a_difference_of_formulas(before, after, change):
    assert difference(Formula.parse(before), Formula.parse(after)) == change


def test_the_nearest_molecule_says_what_was_changed_of_it(tmp_path):
    made = read(tmp_path / "a.smi", f"{QUERCETIN} quercetin\n")

    for smiles, change, said in (
        (QUERCETIN, "the same molecule", "is quercetin"),
        (ISORHAMNETIN, "+CH2", "like quercetin: +CH2, Tanimoto 0."),
        (MORIN, "isomer", "like quercetin: isomer, Tanimoto 0."),
    ):
        nearest = made.nearest(smiles)
        assert nearest["change"] == change
        assert likeness(nearest).startswith(said)


@pytest.mark.parametrize(
    ("name", "said"),
    [("isomer", "like phenol: isomer, Tanimoto 0.50"), ("the same molecule", "is phenol")],
)
def test_journals_of_before_say_the_same(name, said):
    before = {"smiles": "Oc1ccccc1", "name": "phenol", "tanimoto": 0.5}

    assert likeness({**before, "change": "", "change_name": name}) == said
    changed = {**before, "change": "+CH2", "change_name": "methylation"}
    assert likeness(changed) == "like phenol: +CH2, Tanimoto 0.50"
    assert likeness({}) == ""


def test_a_glycoside_starts_from_its_aglycone(tmp_path):
    made = read(tmp_path / "a.smi", f"{QUERCETIN}\nCCCCO\n")
    formula, everyone = Formula.parse("C21H20O12"), np.ones(2, np.bool_)

    graphs = [graph for _, graph in made.towards(TELLS_NOTHING, formula, everyone)]
    begun = starts(graphs, formula, 6, seed=1)

    assert len(graphs) == 1
    assert begun.shape == (6, 33 * 32 // 2)
    assert {np.count_nonzero(one) for one in begun} == {24}  # bonds of quercetin
    assert (begun == starts(graphs, formula, 6, seed=1)).all()
    assert not made.towards(TELLS_NOTHING, formula, ~everyone)


def test_surplus_atoms_become_those_that_lack(tmp_path):
    made = read(tmp_path / "a.smi", "NCCc1ccccc1\n")
    everyone, formula = np.ones(1, np.bool_), Formula.parse("C8H10O")
    ((_, graph),) = made.towards(TELLS_NOTHING, formula, everyone)

    wanted = np.array(formula.counts[:12])
    found = exchanged(graph, wanted, np.random.default_rng(0))

    assert (np.bincount(found.element, minlength=12) == wanted).all()
    bonds = bonds_of(9, starts([found], formula, 1, 0)[0])
    assert len(bonds) == len(graph.pair)


def test_a_database_within_some_formulas_holds_their_molecules_alone(tmp_path):
    database = read(tmp_path / "a.smi", "CCCCO a\nCCO b\nCC(C)CO c\nCOC d\nc1ccccc1 e\n")
    known = Known(None, databases=(database, database))
    formulas = [Formula.parse(text) for text in ("C2H6O", "C4H10O", "C4H10O", "CH4")]

    for asked, names in ((formulas, ["a", "b", "c", "d"]), (formulas[1:2], ["a", "c"]), ([], [])):
        within = known.within(asked)
        assert [list(one.names) for one in within.databases] == [names, names]
        for formula in asked:
            of_all, own = (list(map(formula_of, one.isomers(formula))) for one in (known, within))
            assert of_all == own
