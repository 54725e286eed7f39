"""Molecules of the user: which are alike, turned towards a formula, told from a candidate."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.guide import Guide
from duallgd_cli.chem.identity import fingerprint, parse_smiles, tanimoto
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.data.structures import StructureRow
from duallgd_cli.errors import UnreadableError, UsageError
from duallgd_cli.sources import database, structures
from duallgd_cli.sources import known as known_module
from duallgd_cli.sources.collection import exchanged, starts
from duallgd_cli.sources.database import read_analogues
from duallgd_cli.sources.known import GuideFiles, Knowledge, Known, read_guides
from duallgd_cli.sources.structures import Analogues, difference
from duallgd_cli.spectra.types import Feature
from tests.made_queries import chances
from tests.made_spectra import made_spectrum

QUERCETIN = "O=c1c(O)c(-c2ccc(O)c(O)c2)oc2cc(O)cc(O)c12"
ISORHAMNETIN = "COc1cc(-c2oc3cc(O)cc(O)c3c(=O)c2O)ccc1O"
MORIN = "O=c1c(O)c(-c2ccc(O)cc2O)oc2cc(O)cc(O)c12"
GLYCOSIDE = Formula.parse("C21H20O12")
TELLS_NOTHING = chances()
KNOWN = (QUERCETIN, "CCCCO", "Cn1cnc2c1c(=O)[nH]c(=O)n2C", "c1ccccc1C(=O)O", "NCCc1ccccc1")


def of(*smiles):
    return Analogues.of([StructureRow(text, "train", 1, f"name of {text}") for text in smiles])


def towards(formula, *smiles, allowed=True):
    made = of(*smiles)
    found = made.towards(TELLS_NOTHING, Formula.parse(formula), np.full(len(made), allowed))
    return [graph for _, graph in found]


def test_an_analogue_is_of_every_feature_or_of_the_one_that_it_names(tmp_path):
    (tmp_path / "a.csv").write_text("name,smiles,feature_id\nbutanol,CCCCO,7\n,OCC,\n,no(,7\n")

    made = read_analogues(tmp_path / "a.csv")

    assert (list(made.smiles), list(made.names)) == (["CCCCO", "OCC"], ["butanol", ""])
    assert made.of_feature(["7"]).tolist() == [True, True]
    assert made.of_feature(["8"]).tolist() == [False, True]


@given(
    smiles=st.sampled_from(KNOWN),
    allowed=st.lists(st.booleans(), min_size=len(KNOWN), max_size=len(KNOWN)),
    seed=st.integers(0, 1000),
    most=st.integers(1, 4),
)
def test_the_most_alike_are_found(smiles, allowed, seed, most):
    formula, chance = Formula.parse("C8H10N4O2"), np.random.default_rng(seed).random(4096) ** 9
    chance, mask, made = chance.astype(np.float32), np.array(allowed), of(*KNOWN)

    def alike(text):
        mol = parse_smiles(text)
        bits, wanted = fingerprint(mol), np.array(formula.counts[:-1])
        apart = np.abs(np.array(formula_of(mol).counts[:-1]) - wanted).sum()
        common = chance[bits].sum()
        return common / (chance.sum() + len(bits) - common) - 0.02 * apart

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(structures, "_COMPARED", most)
        near = made.near(chance, formula, mask)
    nearest = made.near(TELLS_NOTHING, formula, mask).nearest(smiles)

    fitting = [text for text, is_in in zip(KNOWN, allowed, strict=True) if is_in]
    assert list(near.smiles) == sorted(fitting, key=alike, reverse=True)[:most]
    assert near.bits.tolist() == [bit for text in near.smiles for bit in bits_of(text)]
    best = [tanimoto(bits_of(smiles), bits_of(text)) for text in fitting]
    assert (nearest is None) == (not fitting)
    assert not fitting or nearest["tanimoto"] == pytest.approx(max(best), abs=1e-4)


def bits_of(smiles):
    return fingerprint(parse_smiles(smiles))


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ("C15H10O7", "C21H20O12", "+C6H10O5"), ("C21H20O12", "C15H10O7", "-C6H10O5"),
        ("C6H6O", "C6H5ClO", "+Cl -H"), ("C6H6O", "C6H6O", ""),
    ],
)  # fmt: skip
def test_what_was_changed_is_a_difference_of_formulas(before, after, change):
    assert difference(Formula.parse(before), Formula.parse(after)) == change


@pytest.mark.parametrize(
    ("smiles", "change"),
    [(QUERCETIN, "the same molecule"), (ISORHAMNETIN, "+CH2"), (MORIN, "isomer")],
)
def test_the_nearest_molecule_says_what_was_changed_of_it(smiles, change):
    nearest = of(QUERCETIN, "CCO").nearest(smiles)

    assert (nearest["name"], nearest["change"]) == (f"name of {QUERCETIN}", change)


def test_a_glycoside_starts_from_its_aglycone():
    graphs = towards("C21H20O12", QUERCETIN, "CCCCO")

    begun = starts(graphs, GLYCOSIDE, 6, seed=1)

    assert (len(graphs), begun.shape) == (1, (6, 33 * 32 // 2))
    assert {np.count_nonzero(one) for one in begun} == {24}  # bonds of quercetin
    assert (begun == starts(graphs, GLYCOSIDE, 6, seed=1)).all()
    assert not towards("C21H20O12", QUERCETIN, "CCCCO", allowed=False)


def test_the_most_alike_comes_first_of_whichever_file():
    known = Known(None, tuple((of(text), np.ones(1, np.bool_)) for text in ("CCO", "CCCCO")))

    found = known.graphs(chances("CCCCO"), Formula.parse("C4H10O"))

    assert [len(graph.element) for graph in found] == [5, 3]


def test_surplus_atoms_become_those_that_lack():
    (graph,), formula = towards("C8H10O", "NCCc1ccccc1"), Formula.parse("C8H10O")
    wanted = np.array(formula.counts[:12])

    found = exchanged(graph, wanted, np.random.default_rng(0))

    assert (np.bincount(found.element, minlength=12) == wanted).all()
    assert np.count_nonzero(starts([found], formula, 1, 0)) == len(graph.pair)


HEAD = "feature_id,core,require,forbid,analogue\n"


@pytest.mark.parametrize("general", [None, Guide(forbid=("[Br]",))])
def test_rows_and_tables_of_a_feature_add_up_to_what_holds_for_all(tmp_path, general):
    (tmp_path / "a.csv").write_text(
        HEAD + "1,c1ccccc1,hexose | indole,,CCO|CCN\n2,,,[F],\n1,C=O,,[Cl],\n"
    )
    (tmp_path / "b.txt").write_text(HEAD + "1,,,[I],CCN\n3,CCO,,,\n")
    tables = tuple(f"{tmp_path}/{name}" for name in ("a.csv", "b.txt"))
    forbidden = () if general is None else general.forbid

    known = Knowledge.read(general, GuideFiles(tables=tables))

    one, two, three, other = (
        known.of(Feature((made_spectrum(spectrum_id="x", feature_id=name),))) for name in "1234"
    )
    assert one.guide == Guide("c1ccccc1.C=O", ("hexose", "indole"), (*forbidden, "[Cl]", "[I]"))
    assert two.guide == Guide(forbid=(*forbidden, "[F]"))
    assert three.guide == Guide("CCO", forbid=forbidden)
    assert other.guide == general
    assert [mask.sum() for _, mask in one.analogues] == [2, 1]
    assert not any(mask.any() for _, mask in two.analogues)


# Of files of analogues, and of tables of guides.
OF_NO_USE = [
    ("a.smi", "xx(\n", UsageError, "1 molecule left out"),
    ("a.csv", "name\nx\n", UnreadableError, "has no column smiles"),
    ("a.pdf", "x", UnreadableError, "is not .tsv, .csv, .smi or .sdf"),
    ("a.smi", "CC\n" * 4, UsageError, "holds more than 3 molecules"),
    ("guide", "", UnreadableError, "has no column feature_id; it has no columns"),
    ("guide", "feature_id,smiles\n1,C\n", UsageError, "fill core, require, forbid, analogue"),
    ("guide", HEAD + "1,,,,\n", UsageError, "says nothing of any feature"),
    ("guide", HEAD + ",CCO,,,\n", UsageError, "line 2: no feature_id"),
    ("guide", HEAD + "1,c1cc,,,\n", UsageError, "line 2: core 'c1cc' is not a SMILES"),
    ("guide", HEAD + "1,,C,,\n1,,hexoze,,\n", UsageError, "line 3: 'hexoze' is neither"),
    ("guide", HEAD + "1,,,,xx(\n", UsageError, "line 2: analogue 'xx(' is no molecule"),
    ("guide", HEAD + "1,C,,,\n" * 4, UsageError, "has more than 3 rows"),
    ("guide", "feature_id,core\n1,\udcff\n", UsageError, "line 2: core '\u00ff' is not a SMILES"),
]


@pytest.mark.parametrize(("name", "text", "error", "said"), OF_NO_USE)
def test_what_is_of_no_use_is_one_sentence(tmp_path, monkeypatch, name, text, error, said):
    monkeypatch.setattr(database, "_MOST_ANALOGUES", 3)
    monkeypatch.setattr(known_module, "_MOST_LINES", 3)
    read, name = (read_guides, "guide.csv") if name == "guide" else (read_analogues, name)
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))

    with pytest.raises(error) as refused:
        read(tmp_path / name)

    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
