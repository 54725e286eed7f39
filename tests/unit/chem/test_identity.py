import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

from duallgd_cli.chem import identity
from duallgd_cli.errors import MoleculeError


def mol(smiles):
    return identity.parse_smiles(smiles)


def test_stereochemistry_is_dropped_on_reading_and_by_inchi():
    assert identity.canonical_smiles(mol("C[C@H](N)C(=O)O")) == "CC(N)C(=O)O"
    assert identity.canonical_smiles(mol("C/C=C/C")) == "CC=CC"
    left_in = Chem.MolFromSmiles("C[C@H](N)C(=O)O")
    assert identity.inchikey(left_in) == identity.inchikey(mol("CC(N)C(=O)O"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("C1CC", "does not parse"), ("C(C)(C)(C)(C)C", "valence"), ("c1cccc1", "kekulize"),
        ("", "empty"), ("water", "does not parse"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_molecule_is_refused_with_the_reason(text, reason):
    with pytest.raises(MoleculeError, match=reason):
        identity.parse_smiles(text)


def test_inchi_and_key_are_the_standard_ones():
    aspirin = mol("CC(=O)Oc1ccccc1C(=O)O")

    assert identity.inchi(aspirin).startswith("InChI=1S/C9H8O4/c1-6(10)13-8-5-3-2-4-7(8)9(11)12")
    assert identity.inchikey(aspirin) == "BSYNRYMUTXBXSQ-UHFFFAOYSA-N"
    assert identity.inchikey_block(aspirin) == "BSYNRYMUTXBXSQ"


@pytest.mark.parametrize("n_bits", [2048, 4096])
def test_fingerprints_are_the_set_morgan_bits(n_bits):
    caffeine = mol("Cn1c(=O)c2c(ncn2C)n(C)c1=O")
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=n_bits)

    bits = identity.fingerprint(caffeine, n_bits)

    assert bits.dtype == np.uint16
    np.testing.assert_array_equal(bits, np.flatnonzero(generator.GetFingerprintAsNumPy(caffeine)))
