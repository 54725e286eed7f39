"""Molecules of the user: read, kept, turned towards a formula, told from a candidate; a table."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.guide import Guide
from duallgd_cli.chem.identity import fingerprint, parse_smiles, tanimoto
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.chem.valence import bonds_of
from duallgd_cli.data.structures import StructureRow
from duallgd_cli.errors import UnreadableError, UsageError
from duallgd_cli.sources import database, structures
from duallgd_cli.sources import known as known_module
from duallgd_cli.sources.collection import exchanged, starts
from duallgd_cli.sources.database import read_analogues
from duallgd_cli.sources.known import GuideFiles, Knowledge, Known, read_guides
from duallgd_cli.sources.structures import Analogues, difference
from duallgd_cli.spectra.types import Feature
from duallgd_cli.writers.formats import likeness
from tests.made_spectra import made_spectrum

pytestmark = pytest.mark.usefixtures("databases")

QUERCETIN = "O=c1c(O)c(-c2ccc(O)c(O)c2)oc2cc(O)cc(O)c12"
ISORHAMNETIN = "COc1cc(-c2oc3cc(O)cc(O)c3c(=O)c2O)ccc1O"
MORIN = "O=c1c(O)c(-c2ccc(O)cc2O)oc2cc(O)cc(O)c12"
TELLS_NOTHING = np.full(FINGERPRINT_BITS, 0.01, np.float32)
KNOWN = (QUERCETIN, "CCCCO", "Cn1cnc2c1c(=O)[nH]c(=O)n2C", "c1ccccc1C(=O)O", "NCCc1ccccc1")


def read(path, text):
    path.write_text(text)
    return read_analogues(path)


def test_names_and_features_are_read_with_the_molecules(tmp_path):
    plain = read(tmp_path / "a.smi", "CCCCO butanol\nOCC\n")
    table = read(tmp_path / "a.csv", "name,smiles,feature_id\nbutanol,CCCCO,7\n,OCC,\n")

    for made, of_another in ((plain, [True, True]), (table, [False, True])):
        assert (list(made.smiles), list(made.names)) == (["CCCCO", "OCC"], ["butanol", ""])
        assert made.of_feature(["7"]).tolist() == [True, True]
        assert made.of_feature(["8"]).tolist() == of_another


@pytest.mark.parametrize(
    ("name", "text", "error", "said"),
    [
        ("a.smi", "", UsageError, "holds no molecule that can be used: it is empty"),
        ("a.smi", "xx(\n", UsageError, "1 molecule left out"),
        ("a.csv", "name\nx\n", UnreadableError, "has no column smiles"),
        ("a.pdf", "x", UnreadableError, "is not .tsv, .csv, .smi or .sdf"),
        ("a.smi", "CC\n" * 4, UsageError, "holds more than 3 molecules"),
    ],
)
def test_what_is_of_no_use_is_one_sentence(tmp_path, monkeypatch, name, text, error, said):
    monkeypatch.setattr(database, "_MOST_ANALOGUES", 3)

    with pytest.raises(error) as refused:
        read(tmp_path / name, text)

    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@given(
    smiles=st.sampled_from(KNOWN),
    allowed=st.lists(st.booleans(), min_size=len(KNOWN), max_size=len(KNOWN)),
    seed=st.integers(0, 1000),
    most=st.integers(1, 4),
)
def test_the_most_alike_are_found(smiles, allowed, seed, most):
    made = Analogues.of([StructureRow(text, "train", 1) for text in KNOWN])
    formula, chance = Formula.parse("C8H10N4O2"), np.random.default_rng(seed).random(4096) ** 9
    chance, allowed = chance.astype(np.float32), np.array(allowed)

    def alike(text):
        mol = parse_smiles(text)
        bits, wanted = fingerprint(mol), np.array(formula.counts[:-1])
        apart = np.abs(np.array(formula_of(mol).counts[:-1]) - wanted).sum()
        common = chance[bits].sum()
        return common / (chance.sum() + len(bits) - common) - 0.02 * apart

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(structures, "_COMPARED", most)
        near = made.near(chance, formula, allowed)
    every = made.near(TELLS_NOTHING, formula, allowed)

    fitting = [text for text, is_in in zip(KNOWN, allowed, strict=True) if is_in]
    assert list(near.smiles) == sorted(fitting, key=alike, reverse=True)[:most]
    bits = [fingerprint(parse_smiles(text)) for text in near.smiles]
    assert near.bits.tolist() == [bit for each in bits for bit in each]
    own = fingerprint(parse_smiles(smiles))
    best = [tanimoto(own, fingerprint(parse_smiles(text))) for text in fitting]
    nearest = every.nearest(smiles)
    assert (nearest is None) == (not fitting)
    assert not fitting or nearest["tanimoto"] == pytest.approx(max(best), abs=1e-4)


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
    assert likeness({}) == ""


def test_a_glycoside_starts_from_its_aglycone_and_the_most_alike_comes_first(tmp_path):
    made = read(tmp_path / "a.smi", f"{QUERCETIN}\nCCCCO\n")
    formula, everyone = Formula.parse("C21H20O12"), np.ones(2, np.bool_)

    graphs = [graph for _, graph in made.towards(TELLS_NOTHING, formula, everyone)]
    begun = starts(graphs, formula, 6, seed=1)

    assert len(graphs) == 1
    assert begun.shape == (6, 33 * 32 // 2)
    assert {np.count_nonzero(one) for one in begun} == {24}  # bonds of quercetin
    assert (begun == starts(graphs, formula, 6, seed=1)).all()
    assert not made.towards(TELLS_NOTHING, formula, ~everyone)
    files = [read(tmp_path / f"{n}.smi", text) for n, text in enumerate(("CCO\n", "CCCCO\n"))]
    known = Known(None, tuple((one, np.ones(1, np.bool_)) for one in files))
    chance = TELLS_NOTHING.copy()
    chance[fingerprint(parse_smiles("CCCCO"))] = 0.9
    found = known.graphs(chance, Formula.parse("C4H10O"))
    assert [len(graph.element) for graph in found] == [5, 3]


def test_surplus_atoms_become_those_that_lack(tmp_path):
    made, formula = read(tmp_path / "a.smi", "NCCc1ccccc1\n"), Formula.parse("C8H10O")
    ((_, graph),) = made.towards(TELLS_NOTHING, formula, np.ones(1, np.bool_))

    wanted = np.array(formula.counts[:12])
    found = exchanged(graph, wanted, np.random.default_rng(0))

    assert (np.bincount(found.element, minlength=12) == wanted).all()
    bonds = bonds_of(9, starts([found], formula, 1, 0)[0])
    assert len(bonds) == len(graph.pair)


def test_a_database_within_some_formulas_holds_their_molecules_alone(tmp_path):
    held = read(tmp_path / "a.smi", "CCCCO a\nCCO b\nCC(C)CO c\nCOC d\nc1ccccc1 e\n")
    known = Known(None, databases=(held, held))
    formulas = [Formula.parse(text) for text in ("C2H6O", "C4H10O", "C4H10O", "CH4")]

    for asked, names in ((formulas, ["a", "b", "c", "d"]), (formulas[1:2], ["a", "c"]), ([], [])):
        within = known.within(asked)
        assert [list(one.names) for one in within.databases] == [names, names]
        for formula in asked:
            of_all, own = (list(map(formula_of, one.isomers(formula))) for one in (known, within))
            assert of_all == own


HEAD = "feature_id,core,require,forbid,analogue\n"


def feature(name):
    return Feature((made_spectrum(spectrum_id="x", feature_id=name),))


def test_rows_and_tables_of_a_feature_add_up_to_what_holds_for_all(tmp_path):
    (tmp_path / "a.csv").write_text(
        HEAD + "1,c1ccccc1,hexose | indole,,CCO|CCN\n2,,,[F],\n1,C=O,,[Cl],\n"
    )
    (tmp_path / "b.txt").write_text(HEAD + "1,,,[I],CCN\n3,CCO,,,\n")
    tables = tuple(f"{tmp_path}/{name}" for name in ("a.csv", "b.txt"))

    for general in (None, Guide(forbid=("[Br]",))):
        known = Knowledge.read(general, GuideFiles(tables=tables))
        forbidden = () if general is None else general.forbid
        one, two, three, other = (known.of(feature(name)) for name in "1234")
        assert one.guide.core == "c1ccccc1.C=O"
        assert one.guide.require == ("hexose", "indole")
        assert one.guide.forbid == (*forbidden, "[Cl]", "[I]")
        assert two.guide == Guide(forbid=(*forbidden, "[F]"))
        assert three.guide == Guide("CCO", forbid=forbidden)
        assert other.guide == general
        assert [mask.sum() for _, mask in one.analogues] == [2, 1]
        assert not any(mask.any() for _, mask in two.analogues)


@pytest.mark.parametrize("name", ["guide.tsv", "guide.csv", "guide.txt"])
def test_a_table_with_tabs_and_few_columns_is_read(tmp_path, name):
    (tmp_path / name).write_text("Feature_ID\tforbid\n7\t[F,Cl]\n")

    assert read_guides(tmp_path / name) == ({"7": Guide(forbid=("[F,Cl]",))}, None)


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("", UnreadableError, "has no column feature_id; it has no columns"),
        ("id,smiles\n1,C\n", UnreadableError, "has no column feature_id; it has id, smiles"),
        ("feature_id,smiles\n1,C\n", UsageError, "fill core, require, forbid, analogue"),
        (HEAD, UsageError, "says nothing of any feature"),
        (HEAD + "1,,,,\n", UsageError, "says nothing of any feature"),
        (HEAD + ",CCO,,,\n", UsageError, "line 2: no feature_id"),
        (HEAD + "1,c1cc,,,\n", UsageError, "line 2: core 'c1cc' is not a SMILES"),
        (HEAD + "1,,C,,\n1,,hexoze,,\n", UsageError, "line 3: 'hexoze' is neither"),
        (HEAD + "1,,,,xx(\n", UsageError, "line 2: analogue 'xx(' is no molecule"),
        (HEAD + "1,C,,,\n" * 4, UsageError, "has more than 3 rows"),
        ("feature_id,core\n1,\udcff\n", UsageError, "line 2: core '\u00ff' is not a SMILES"),
        ("feature_id,core\n1\0" + "\1" * 99, UnreadableError, "is a binary file"),
    ],
)
def test_a_table_that_is_of_no_use_is_one_sentence(tmp_path, monkeypatch, text, error, said):
    monkeypatch.setattr(known_module, "_MOST_LINES", 3)
    (tmp_path / "guide.csv").write_bytes(text.encode("utf-8", "surrogateescape"))

    with pytest.raises(error) as refused:
        read_guides(tmp_path / "guide.csv")

    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
