"""Laws of formulas and adducts, and of molecules taken apart and put together."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rdkit import Chem

from duallgd_cli.chem.adduct import ADDUCTS, fits, infer_adduct, parse_adduct, precursor_mz
from duallgd_cli.chem.elements import N_ELEMENTS, N_HEAVY
from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.identity import canonical_smiles, tanimoto
from duallgd_cli.chem.molecule import assemble, formula_of
from duallgd_cli.chem.repair import repair
from duallgd_cli.errors import Failure, FormulaError
from tests.made_molecules import another_order, moved

FORMULAS = st.builds(
    Formula, st.tuples(*[st.integers(0, 60)] * N_ELEMENTS).filter(any), st.integers(-3, 3)
)
SEEDS = st.integers(0, 1 << 30)


@st.composite
def matrices(draw):
    """Any bond matrix over the heavy atoms of any small formula."""
    n = draw(st.integers(1, 9))
    heavy = draw(st.lists(st.integers(0, N_HEAVY - 1), min_size=n, max_size=n))
    counts = np.bincount(heavy, minlength=N_ELEMENTS)
    counts[-1] = draw(st.integers(0, 2 * n + 2))
    formula = Formula(tuple(counts.tolist()), draw(st.integers(-1, 1)))
    n_pairs = n * (n - 1) // 2
    # Mostly unbonded pairs, as otherwise nothing but "valence" would be met.
    classes = st.sampled_from([0, 0, 0, 0, 1, 1, 1, 2, 3, 4])
    bonds = draw(st.lists(classes, min_size=n_pairs, max_size=n_pairs))
    return formula, np.array(bonds, dtype=np.int8)


@given(FORMULAS, st.text(max_size=20))
def test_a_printed_formula_reads_back_as_itself_and_any_text_is_one_or_an_error(formula, text):
    assert Formula.parse(str(formula)) == formula
    with suppress(FormulaError):
        assert min(Formula.parse(text).counts) >= 0


@given(matrices(), SEEDS)
def test_any_matrix_is_rejected_or_becomes_a_molecule_of_the_formula_and_so_does_a_repair(
    case, seed
):
    formula, bond_class = case
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, (bond_class.size, 5))
    order = another_order(formula.atom_class, rng)

    mol, again = assemble(formula, bond_class), assemble(formula, moved(bond_class, order))
    fixed = repair(formula, bond_class, logits - np.logaddexp.reduce(logits, 1, keepdims=True))

    assert fixed is None or not isinstance(assemble(formula, fixed), str)
    if isinstance(mol, str):
        assert again == mol
        return
    assert formula_of(mol) == formula
    assert len(Chem.GetMolFrags(mol)) == 1
    assert not any(atom.GetNumRadicalElectrons() for atom in mol.GetAtoms())
    assert canonical_smiles(mol) == canonical_smiles(again)


BITS = st.sets(st.integers(0, 4095))


@given(BITS, BITS)
def test_similarity_is_that_of_sets(one, other):
    a, b = (np.array(sorted(bits), dtype=np.uint16) for bits in (one, other))

    expected = len(one & other) / len(one | other) if one | other else 1.0
    assert tanimoto(a, b) == tanimoto(b, a) == pytest.approx(expected)


@st.composite
def closed_shells(draw):
    """Formulas of C, N, O, S, H with something for every adduct to take."""
    c, n, o, s = (draw(st.integers(*span)) for span in ((1, 40), (0, 8), (1, 12), (0, 3)))
    return Formula.parse(f"C{c}H{2 * c + n + 2 - 2 * draw(st.integers(0, c))}N{n}O{o}S{s}")


@given(closed_shells(), st.sampled_from(ADDUCTS), st.integers(0, 5), st.data())
def test_an_adduct_comes_back_from_a_precursor_and_from_any_case_and_blanks(
    formula, adduct, at, data
):
    text = "".join(data.draw(st.sampled_from([c.lower(), c.upper()])) for c in adduct.name)

    assert parse_adduct(text) == parse_adduct(f"{adduct.name[:at]} {adduct.name[at:]} ") == adduct
    if fits(formula, adduct):
        mz = precursor_mz(formula, adduct)
        assert adduct in infer_adduct(formula, mz, adduct.polarity, 1)


NEUTRAL = st.sampled_from(["ACN", "H2O", "NH3", "MeOH", "FA", "CO2", "DMSO", "HBr"])
CHARGED = {1: ["H", "Na", "K", "Li", "NH4", "Ag"], -1: ["Cl", "Br", "CF3COO", "HCOO", "NO3"]}


@st.composite
def adducts(draw):
    """Texts of adducts: molecules, up to two neutral groups, and groups that carry a charge."""
    polarity, size = draw(st.sampled_from([1, -1])), draw(st.integers(1, 3))
    neutral = draw(st.lists(st.tuples(st.sampled_from("+-"), NEUTRAL).map("".join), max_size=2))
    carriers = [f"+{draw(st.sampled_from(CHARGED[polarity]))}" for _ in range(size)]
    if polarity < 0 and draw(st.booleans()):
        carriers = [f"-{size}H"]
    groups = "".join(draw(st.permutations([*neutral, *carriers])))
    return f"[{draw(st.sampled_from(['', '2', '3']))}M{groups}]{size}{'+' if polarity > 0 else '-'}"


@given(closed_shells(), adducts())
def test_an_adduct_is_read_back_from_its_name_and_a_mass_from_its_mz(formula, text):
    adduct = parse_adduct(text)

    again, mass = parse_adduct(adduct.name), adduct.neutral_mass(precursor_mz(formula, adduct))

    assert (again, again.name) == (adduct, adduct.name)
    assert abs(adduct.charge) == int(text[-2])
    assert adduct.trained.polarity == adduct.polarity
    assert mass == pytest.approx(formula.mass, abs=1e-9)
    first, whole = adduct.carriers[0], adduct.carriers[-1]
    assert first[:3] == (0, "", 0)
    assert (whole.molecules, whole.charge) == (adduct.molecules - 1, adduct.charge)


@given(st.text(max_size=30) | st.text("M[]()+-0123456789HNaKClOC2.* ", max_size=40))
def test_any_text_is_an_adduct_or_a_failure(text):
    adduct = parse_adduct(text)

    assert isinstance(adduct, Failure) or parse_adduct(adduct.name) == adduct
