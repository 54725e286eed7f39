"""Decoys: what could be mistaken for a known molecule, of its formula and made like candidates.

F fingerprint bits.
"""

from itertools import islice
from typing import Final

import numpy as np
import torch
from torch import nn

from duallgd_cli.data.molecular_graph import MolecularGraph, Rival, graph_of, graph_of_bonds
from duallgd_cli.data.peaks import prepared_batch
from duallgd_cli.data.prepared import PreparedSpectra
from duallgd_cli.sources.collection import BEGUN, Collection, molecule_of

# So many are taken, of so many that are likeliest: the first of these and others at random.
_DECOYS, _LIKELIEST, _FIRST = 24, 300, 10
_LARGEST: Final = 50  # heavy atoms
# Of those that are put together, which come likeliest first.
_MOST: Final = 300
# An encoder knows the molecules it was trained on. Logits are made smaller and noisy, so that they
# say no more of them than of others.
_SCALE, _NOISE, _NEVER = (0.3, 0.8), (0.5, 2.0), -5.0


def decoys_of(
    spectra: PreparedSpectra, spectrum: int, encoder: nn.Module, templates: Collection, seed: int
) -> tuple[Rival, ...]:
    """The molecule of a spectrum, then up to 24 decoys of it; none where nothing is made.

    Args:
        spectra: Prepared ones.
        spectrum: Row.
        encoder: Gives logits of the fingerprint, (1, F).
        templates: Known molecules; decoys are made of others than the molecule itself.
        seed: Of a random choice.
    """
    from duallgd_cli.chem.identity import charge_free_smiles, fingerprint  # rdkit loads only here
    from duallgd_cli.chem.joining import together
    from duallgd_cli.chem.molecule import disassemble
    from duallgd_cli.sources.enumerated import changed, likeliest, log_odds, mols_of_graphs

    def is_itself(graph: MolecularGraph) -> bool:
        names = ("element", "pair", "bond_class")
        return all(np.array_equal(getattr(graph, name), getattr(itself, name)) for name in names)

    molecule = int(spectra.molecule[spectrum])
    generator = np.random.default_rng((seed, molecule))
    itself = graph_of(spectra.molecules, molecule)
    mol, formula = molecule_of(itself), spectra.molecules.formula(molecule)
    if mol is None or formula.n_heavy > _LARGEST:
        return ()
    with torch.inference_mode():
        logits = encoder(prepared_batch(spectra, [spectrum]))[0].numpy()
    noise = generator.normal(0, generator.uniform(*_NOISE), len(logits))
    doubted = logits * generator.uniform(*_SCALE) + noise * (logits > _NEVER)
    doubtful = torch.sigmoid(torch.from_numpy(doubted.astype(np.float32))).numpy()
    name, scores = charge_free_smiles(mol), log_odds(doubtful)
    known = islice(
        (graph for graph in templates.near(doubtful, formula) if not is_itself(graph)), BEGUN
    )
    near_by = changed(mols_of_graphs(known), formula, templates.blocks)
    joined = together(templates.blocks, formula, scores, _MOST)
    best = likeliest(scores, _LIKELIEST, near_by, joined)
    decoys = [decoy for _, decoy in best if charge_free_smiles(decoy) != name]
    others = generator.permutation(np.arange(_FIRST, max(_FIRST, len(decoys))))
    chosen = decoys[:_FIRST] + [decoys[row] for row in others[: _DECOYS - _FIRST]]
    parts = map(disassemble, chosen)
    graphs = (itself, *(graph_of_bonds(part.formula, part.bond_class) for part in parts))
    return tuple(map(Rival, graphs, map(fingerprint, (mol, *chosen))))
