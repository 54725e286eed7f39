"""What could be mistaken for a known molecule, on esters."""

import pytest
import torch

from duallgd_cli.chem.identity import charge_free_smiles, fingerprint, inchikey_block, parse_smiles
from duallgd_cli.sources.collection import known_molecules, molecule_of
from duallgd_cli.train.decoys import decoys_of
from tests.made_prepared import made_spectra, molecules_of

ESTERS = ("CC(=O)OCC", "CCC(=O)OC", "CC(=O)OCCC", "CCCC(=O)OCC", "CC(=O)OCCCC", "CCCC(=O)OCCO")
LARGE = "C" * 48 + "(=O)OCC"


@pytest.fixture(scope="module")
def spectra(tmp_path_factory):
    rows = [(one, "[M+H]+", "C2H3O", "20", "train") for one in (*ESTERS, LARGE)]
    return made_spectra(tmp_path_factory.mktemp("made") / "spectra", *rows)


def encoder(peaks):
    """Knows the fourth ester by heart."""
    logits = torch.full((1, 4096), -6.0)
    logits[0, torch.from_numpy(fingerprint(parse_smiles(ESTERS[3])).astype(int))] = 6.0
    return logits


def rivals(spectra, smiles, seed=1, known=ESTERS):
    block = inchikey_block(parse_smiles(smiles))
    blocks = [name.decode() for name in spectra.molecules.inchikey.tolist()]
    row = blocks.index(block)
    spectrum = spectra.molecule.tolist().index(row)
    templates = known_molecules(molecules_of(*known), max_atoms=99)
    made = decoys_of(spectra, spectrum, encoder, templates, seed)
    assert all((fingerprint(molecule_of(one.graph)) == one.bits).all() for one in made)
    return [charge_free_smiles(molecule_of(one.graph)) for one in made]


def test_the_molecule_comes_first_and_its_rivals_are_others_of_its_formula(spectra):
    first, *others = rivals(spectra, ESTERS[3])

    assert first == charge_free_smiles(parse_smiles(ESTERS[3]))
    assert len({first, *others}) == 1 + len(others) > 9
    assert {one.count("C") for one in others} == {6}
    assert {one.count("O") for one in others} == {2}


def test_no_rival_is_a_change_of_the_molecule_itself(spectra):
    """Ethyl butyrate, if no other is known, has blocks that are put together to nothing else."""
    alone, (one, *others) = (
        rivals(spectra, ESTERS[3], known=known)
        for known in ([ESTERS[3], "c1ccccc1"], [ESTERS[3], ESTERS[4]])
    )

    assert one not in others
    assert 1 <= len(alone) < len(others)


def test_rivals_are_a_function_of_the_spectrum_and_the_seed(spectra):
    one, again, other = (rivals(spectra, ESTERS[3], seed) for seed in (1, 1, 2))

    assert one == again != other


def test_large_molecules_have_none(spectra):
    assert rivals(spectra, LARGE) == []
