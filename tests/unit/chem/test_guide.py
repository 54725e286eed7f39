import numpy as np
import pytest
from duallgd_cli.predict.candidates import assemble_all, collect
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rdkit import Chem

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.guide import Guide, read_core
from duallgd_cli.chem.molecule import assemble, formula_of
from duallgd_cli.chem.parts import catalogue
from duallgd_cli.chem.valence import FREE
from duallgd_cli.errors import RefusedError, UsageError
from duallgd_cli.predict.model import Generated
from duallgd_cli.results import HypothesisResult

FLAVONE = "O=c1cc(-c2ccccc2)oc2ccccc12"
CORES = (FLAVONE, "c1ccccc1", "C1CCNCC1", "CC(=O)N", "C#CCO", "c1ccc2[nH]ccc2c1", "C[N+](=O)[O-]")


def squares(held, n):
    """Held classes as symmetric matrices, `FREE` on the diagonal."""
    found = np.full((len(held), n, n), FREE)
    first, second = np.triu_indices(n, 1)
    found[:, first, second] = found[:, second, first] = held
    return found


@settings(deadline=None)
@given(st.sampled_from(CORES), st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_the_bonds_of_a_core_are_held_between_atoms_of_its_elements(smiles, more, seed):
    core = read_core(smiles)
    counts = np.bincount(core.element, minlength=13) + more
    formula = Formula(tuple(int(n) for n in counts))

    places = core.places(formula, 3, seed)
    held = squares(core.held(formula, places), formula.n_heavy)

    assert len(held) == len(places)
    bonded = core.bonds[0] > 0
    for square in held:
        known = (square != FREE).any(1)
        assert known.sum() == len(core.element)
        assert sorted(formula.atom_class[known]) == sorted(core.element)
        ours = sorted(np.sort(square[known][:, known][square[known][:, known] > 0]))
        assert ours == sorted(core.bonds[0][bonded])


def test_a_molecule_that_is_all_core_is_held_whole():
    formula = Formula.parse("C15H10O2")

    core = read_core(FLAVONE)

    (held,) = core.held(formula, core.places(formula, 1, 0))

    (found,) = assemble(formula, held)
    assert Chem.MolToSmiles(found) == Chem.CanonSmiles(FLAVONE)


def test_fragments_are_held_each_and_are_free_between_them():
    core = read_core("c1ccccc1.C=O")

    between = core.bonds[0, :6, 6:]

    assert (between == FREE).all()
    assert (core.bonds[0, 6:, 6:] == [[0, 2], [2, 0]]).all()


def test_with_attachment_points_other_atoms_get_no_further_bonds():
    formula = Formula.parse("C8H10O")
    core = read_core("*c1ccccc1")

    square = squares(core.held(formula, core.places(formula, 1, 3)), formula.n_heavy)[0]

    closed = (square != FREE).sum(1) == formula.n_heavy - 1
    assert closed.sum() == 5


def test_the_atoms_of_a_core_are_the_first_of_their_element_in_any_order():
    formula, core = Formula.parse("C20H20O10"), read_core(FLAVONE)

    places = core.places(formula, 20, 5)

    assert (np.sort(places, 1) == [*range(15), 20, 21]).all()
    assert (formula.atom_class[places] == core.element).all()
    assert len(np.unique(places, axis=0)) == 20
    assert (places == core.places(formula, 20, 5)).all()


def test_every_fourth_sample_holds_another_tautomer():
    core, formula = read_core("Oc1ccccn1"), Formula.parse("C5H5NO")

    held = core.held(formula, core.places(formula, 1, 0).repeat(4, 0))

    found = [Chem.MolToSmiles(assemble(formula, one)[0]) for one in held]
    assert found[:3] == ["Oc1ccccn1"] * 3
    assert found[3] != "Oc1ccccn1"


def random_part(smiles, size, rng):
    """A connected part of a molecule, as SMILES."""
    mol = Chem.MolFromSmiles(smiles)
    atoms = [int(rng.integers(mol.GetNumAtoms()))]
    while len(atoms) < size:
        near = {n.GetIdx() for a in atoms for n in mol.GetAtomWithIdx(a).GetNeighbors()}
        if not near - set(atoms):
            break
        atoms.append(int(rng.choice(sorted(near - set(atoms)))))
    return Chem.MolFragmentToSmiles(mol, atoms)


def test_cores_that_are_too_large_together_are_a_row_that_says_so():
    both = Guide("C" * 60).and_also(Guide("N" * 60))

    with pytest.raises(RefusedError, match=r"has 120 heavy atoms, .* at most 100") as refused:
        both.require_room(Formula.parse("C80H162"))

    assert refused.value.failure.status == "core_mismatch"


WHOLE = (
    "COc1cc2c(cc1OC)C(=O)C(Cc1ccccc1)O2", "CC(=O)Oc1ccccc1C(=O)O", "Cn1cnc2c1c(=O)n(C)c(=O)n2C",
    "CN1CCCC1c1cccnc1", "OCC1OC(Oc2ccccc2)C(O)C(O)C1O", "CC(C)CC(NC(=O)C(N)CS)C(=O)O",
)  # fmt: skip


@pytest.mark.slow
@settings(deadline=None, max_examples=500)
@given(st.sampled_from(WHOLE), st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_what_is_drawn_around_a_core_holds_it(smiles, size, seed):
    """500 pairs of molecule and part: bonds drawn at random around held ones, and put in order."""
    rng = np.random.default_rng(seed)
    part, whole = random_part(smiles, size, rng), Chem.MolFromSmiles(smiles)
    try:
        core = read_core(part)
    except UsageError:  # a piece of a ring, written as aromatic
        assume(False)
    formula, guide = formula_of(whole), Guide(part, forbid=("[OX2]-[OX2]", "C=C=C"))
    held = core.held(formula, core.places(formula, 2, seed))
    noise = rng.choice(5, held.shape, p=(0.9, 0.08, 0.02, 0, 0)).astype(np.int8)
    drawn = np.where(held == FREE, noise, held)
    certain = np.full((*held.shape, 5), np.log(0.2), np.float16)
    certain[held != FREE] = -46
    np.put_along_axis(certain, drawn[..., None], 0, -1)
    generated = Generated(drawn, np.zeros(len(drawn), np.float32), certain)

    samples = assemble_all(formula, generated, guide=guide)
    structures = collect(HypothesisResult("ok"), [(generated, samples)]).structures

    for one in structures:
        mol = Chem.MolFromSmiles(one.smiles)
        assert core.is_in(mol)
        assert not any(mol.HasSubstructMatch(Chem.MolFromSmarts(p)) for p in guide.forbid)


@pytest.mark.parametrize(
    ("formula", "missing"),
    [
        ("C15H10O2", ""), ("C14H10O2", "1 C"), ("C10H10N2", "5 C, 2 O"),
        ("C17H23NO3", "unsaturation (11 rings and double bonds, where it has 7 at most)"),
    ],
)  # fmt: skip
def test_what_a_formula_lacks_for_a_core(formula, missing):
    assert read_core(FLAVONE).missing(Formula.parse(formula)) == missing


@pytest.mark.parametrize(
    ("guide", "formula", "status", "message"),
    [
        (Guide(core=FLAVONE), "C14H10O2", "core_mismatch",
         f"C14H10O2 cannot hold the core {FLAVONE!r}: it lacks 1 C"),
        (Guide(require=("sulfonamide",)), "C8H9NO2", "no_candidate",
         "C8H9NO2 cannot hold the required 'sulfonamide': it lacks 1 S"),
        (Guide(require=("CCO", "[Fe]~[#7]NCl")), "C2H6NO", "no_candidate",
         "C2H6NO cannot hold the required '[Fe]~[#7]NCl': it lacks 1 N, 1 Cl, 1 Fe"),
    ],
)  # fmt: skip
def test_a_formula_without_the_atoms_that_are_required_is_refused(guide, formula, status, message):
    with pytest.raises(RefusedError) as refused:
        guide.require_room(Formula.parse(formula))

    assert (refused.value.failure.status, refused.value.failure.message) == (status, message)


def test_no_formula_is_refused_that_has_a_molecule_with_the_part():
    """Patterns with several elements for an atom, or with conditions on what is beside it."""
    asked = [(row["name"], row["example"]) for row in catalogue() if row["example"]]
    asked += [("[O,S]", "CS"), ("[!#7]", "CO"), ("[$([#7]),$([#8])]", "CO"), ("[#6;!R]", "CC")]

    for text, smiles in asked:
        Guide(require=(text,)).require_room(formula_of(Chem.MolFromSmiles(smiles)))


@pytest.mark.parametrize("smiles", [
    FLAVONE, "FS(F)(F)(F)(F)c1ccccc1", "CS(=O)(=O)c1ccc([N+](=O)[O-])cc1", "O=[Se]=O",
    "F[B-]1(F)n2cccc2C=C2C=CC=[N+]21", "N1=P(F)(F)N=P(F)(F)N=P1(F)F", "C[N+](C)(C)CC(=O)[O-]",
    "Oc1cc2ccc(O)cc2[o+]c1", "CC(=O)OI(OC(C)=O)c1ccccc1", "C[S+](C)[O-]", "[N-]=[N+]=NCC#N",
    "FP(F)(F)(F)F", "c1ccc([n+]2ccccc2)cc1", "OB(O)c1ccccc1",
])  # fmt: skip
def test_no_formula_is_refused_that_has_a_molecule_which_is_the_core(smiles):
    assert not read_core(smiles).missing(formula_of(Chem.MolFromSmiles(smiles)))


@pytest.mark.parametrize("text", ["c1cc", "", "[Fe]", "*", "C~C", "[Na+].[Cl-]", "[H][H]"])
def test_what_is_no_core_is_refused_by_name(text):
    with pytest.raises(UsageError, match="core"):
        read_core(text)


@pytest.mark.parametrize(
    ("guide", "smiles", "fault"),
    [
        (Guide(), "CCO", ""),
        (Guide(core="c1ccccc1"), "CCO", "without the core"),
        (Guide(core="c1ccccc1"), "OCc1ccccc1", ""),
        (Guide(core="*c1ccccc1"), "OCCc1ccccc1", ""),
        (Guide(core="*c1ccccc1"), "CCc1ccc(O)cc1", "without the core"),
        # As any of its tautomers, and in an aromatic form.
        (Guide(core="Oc1ccccn1"), "O=c1cccc[nH]1", ""),
        (Guide(core="Oc1ccccn1"), "O=c1ccccn1C", ""),
        (Guide(core="Oc1ccccn1"), "Oc1ccccc1", "without the core"),
        (Guide(core="C=CC=C"), "c1ccccc1", ""),
        (Guide(require=("indole",)), "c1ccc2[nH]ccc2c1", ""),
        (Guide(require=("indole",)), "Cn1ccc2ccccc12", ""),
        (Guide(require=("Hexose", "[#6]C(=O)[OX2H1]")), "OCC1OC(O)C(O)C(O)C1O",
         "without [#6]C(=O)[OX2H1]"),
        (Guide(forbid=("[N+](=O)[O-]",)), "Cc1ccccc1[N+](=O)[O-]", "with [N+](=O)[O-]"),
        (Guide(forbid=("[N+](=O)[O-]",)), "Cc1ccccc1N", ""),
    ],
)  # fmt: skip
def test_molecules_that_break_what_is_known_are_told_why(guide, smiles, fault):
    guide.check()

    assert guide.fault(Chem.MolFromSmiles(smiles)) == fault
