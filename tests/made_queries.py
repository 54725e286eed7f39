"""Queries: what is predicted of the molecule of a spectrum, and what the user knows of it."""

import numpy as np

from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.identity import fingerprint, inchikey_block, parse_smiles
from duallgd_cli.data.molecular_graph import graph_of
from duallgd_cli.diffusion.sampler import Sampler
from duallgd_cli.sources import Query
from duallgd_cli.sources.collection import known_molecules
from duallgd_cli.sources.known import Known
from tests.made_graphs import small_settings, stirred
from tests.made_prepared import molecules_of
from tests.made_spectra import annotated
from tests.made_training import cpu


def chances(likely="", low=0.01, high=0.9):
    """What is predicted of each bit: little, but much of those of the likely molecule."""
    values = np.full(FINGERPRINT_BITS, low, np.float32)
    if likely:
        values[fingerprint(parse_smiles(likely))] = high
    return values


def query(formula, chance=None, **values):
    """A query without peaks."""
    return Query(annotated([], formula), chances() if chance is None else chance, **values)


class Told(Known):
    """What a user knows: what the molecule is like, and these molecules to start from."""

    def __init__(self, guide, *smiles, databases=()):
        super().__init__(guide, databases=databases)
        graphs = [graph_of(molecules_of(text), 0) for text in smiles]
        object.__setattr__(self, "own", graphs)

    def graphs(self, probability, formula):
        return self.own


def collection_of(*smiles):
    return known_molecules(molecules_of(*smiles), max_atoms=99)


def small_sampler():
    """Of a network that was not trained."""
    return Sampler(stirred(small_settings(layers=1)), cpu())


def key(smiles):
    return inchikey_block(parse_smiles(smiles))


def keys(mols):
    return list(map(inchikey_block, mols))
