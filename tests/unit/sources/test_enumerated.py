"""Molecules that are listed: known ones with one change, or put together from blocks."""

import numpy as np
import pytest

from duallgd_cli.chem.formula import Formula
from duallgd_cli.chem.guide import Guide
from duallgd_cli.chem.identity import charge_free_smiles, fingerprint, inchikey_block, parse_smiles
from duallgd_cli.chem.joining import cut, parts_of, together
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.sources import enumerated
from duallgd_cli.sources.enumerated import Enumerated, bit_scores, changed, shortlist
from tests.made_queries import Told, chances, collection_of, key, keys, query

ANILIDE, ORTHO, PARA = "CC(=O)Nc1ccccc1", "CC(=O)Nc1ccccc1O", "CC(=O)Nc1ccc(O)cc1"
PHENOL, TOLUENE, ANISOLE, CRESOL = "Oc1ccccc1", "Cc1ccccc1", "COc1ccccc1", "Cc1ccccc1O"


def blocks_of(*smiles):
    return cut(map(parts_of, map(parse_smiles, smiles)))


HYDROXYL, METHYL = blocks_of(PHENOL), blocks_of(TOLUENE)


def asked(formula="C8H9NO2", likely=PARA, doubt=0.1):
    """The bits of one molecule are nearly certain."""
    return query(formula, chances(likely, doubt, 1 - doubt))


def by_one_change(*known, formula="C8H9NO2", blocks=HYDROXYL):
    return list(changed(map(parse_smiles, known), Formula.parse(formula), blocks))


def test_the_molecule_that_the_fingerprint_tells_comes_first():
    found = shortlist(asked(), 40, None, by_one_change(ANILIDE))

    assert keys(found[:1]) == [key(PARA)]
    assert len(found) > 3  # ortho, meta, para and the hydroxamic acid at least


@pytest.mark.parametrize(
    ("known", "formula", "blocks", "count"),
    [
        # Methyl at C4 or C5 of imidazole is one matrix of bonds, and so is whichever N has the H.
        (["c1c[nH]cn1"], "C4H6N2", METHYL, 3),
        # An oxide moved from a nitrogen with its charge is the hydroxyl of another molecule.
        (["O=[N+]([O-])c1ccccc1", "O=Nc1ccccc1"], "C6H5NO2", HYDROXYL, None),
        ([ANILIDE], "C8H9NO2", HYDROXYL, None),
        ([], "C8H9NO2", HYDROXYL, 0),  # without a way there are none
        (["CCO"], "C8H9NO2", HYDROXYL, 0),
    ],
)
def test_tautomers_and_salts_are_one_graph(known, formula, blocks, count):
    made = by_one_change(*known, formula=formula, blocks=blocks)

    found = shortlist(query(formula), 40, None, made)

    assert len(set(map(charge_free_smiles, found))) == len(found)
    assert count is None or len(found) == count


def test_molecules_of_parts_are_ordered_by_their_bits_and_what_their_parts_are_worth():
    """Of toluene and phenol, joined in any way; blocks that more molecules have are worth more."""
    told = asked("C8H9NO", ANILIDE)
    blocks = blocks_of(TOLUENE, PHENOL, "CC(=O)NCC", "CC(=O)O")
    made = list(together(blocks, told.formula, bit_scores(told), 1_000))

    found = keys(shortlist(told, 40, None, made))

    odds = np.log(told.fingerprint.astype(float) / (1 - told.fingerprint))
    best = {}
    for mol, worth in made:
        block = inchikey_block(mol)
        best[block] = max(worth + odds[fingerprint(mol)].sum(), best.get(block, -np.inf))
    assert sorted(found) == sorted(best)
    assert [best[block] for block in found] == sorted(best.values(), reverse=True)
    assert found[0] == key(ANILIDE)


@pytest.mark.parametrize("step", [1, -1])
def test_a_molecule_costs_what_the_best_way_to_it_does_whichever_comes_first(step):
    para, ortho = map(parse_smiles, (PARA, ORTHO))
    ways = [(para, -50.0), (ortho, 0.0), (para, 50.0)]

    assert keys(shortlist(asked(), 9, None, ways[::step])) == [key(PARA), key(ORTHO)]


@pytest.mark.parametrize("step", [1, -1])
def test_of_more_than_are_compared_at_once_the_likeliest_stay(monkeypatch, step):
    made = by_one_change(ANILIDE)
    whole = keys(shortlist(asked(), 3, None, made))
    monkeypatch.setattr(enumerated, "_AT_ONCE", 2)

    assert keys(shortlist(asked(), 3, None, made[::step])) == whole
    assert shortlist(asked(), 0, None, made) == []


class Para:
    """A spectrum that the fragments of one molecule explain."""

    def peaks(self, query, molecules):
        return 100 * np.outer([inchikey_block(mol) == key(PARA) for _, mol in molecules], [1, 0])


def test_peaks_that_fragments_explain_decide_where_the_fingerprint_is_in_doubt():
    doubtful, made = asked(likely=ORTHO, doubt=0.4), by_one_change(ANILIDE)

    without, found = (keys(shortlist(doubtful, 40, peaks, made)) for peaks in (None, Para()))

    assert (without[0], found[0]) == (key(ORTHO), key(PARA))
    assert sorted(found) == sorted(without)


def test_the_source_lists_changes_and_what_is_put_together_best_first():
    """Cresols, anisole and benzyl alcohol can be made of its molecules and their parts."""
    source, told = Enumerated(collection_of(PHENOL, TOLUENE, ANISOLE)), asked("C7H8O", CRESOL)

    proposals = list(source.propose(told, 40, seed=1))

    found = keys(one.mol for one in proposals)
    assert {one._replace(mol=None)[:] for one in proposals} == {
        ("enumerated", None, None, False, "")
    }
    assert {str(formula_of(one.mol)) for one in proposals} == {"C7H8O"}
    assert found[0] == key(CRESOL)
    assert {key(ANISOLE), key("OCc1ccccc1")} < set(found)
    assert len(set(found)) == len(found)
    assert keys(one.mol for one in source.propose(told, 3, seed=2)) == found[:3]
    assert list(source.propose(asked("CHCl3", CRESOL), 40, seed=1)) == []


@pytest.mark.parametrize("core", [ANISOLE, "OCc1ccccc1"])
def test_what_is_put_together_is_looked_through_for_the_core(core, monkeypatch):
    """Anisole or benzyl alcohol: one of the two excludes the likelier."""
    monkeypatch.setattr(enumerated, "_PUT_TOGETHER", 1)
    monkeypatch.setattr(enumerated, "changed", lambda *_: iter(()))
    source, told = Enumerated(collection_of(PHENOL, "CCc1ccccc1", ANISOLE)), Told(Guide(core=core))

    (one,) = source.propose(query("C7H8O", known=told), 40, seed=1)

    assert not Guide(core=core).fault(one.mol)
