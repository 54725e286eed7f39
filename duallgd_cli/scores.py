"""Scores of candidates: each gives a number to every molecule that was proposed for a spectrum.

A score of your own has a ``name`` and is called like a function; see `Score` and
``examples/rescore.py``. Those of the weights ask whether a molecule has the substructures that the
spectrum predicts, whether these are usual, and whether cleaving it gives the measured peaks.
C candidates, F fingerprint bits, K peaks, G fragments, H hydrogen shifts, E environments, B bytes.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

from duallgd_cli.chem import identity
from duallgd_cli.chem.building_blocks import KnownEnds
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.chem.joining import known_halves
from duallgd_cli.chem.molecule import Mol, is_internal_salt, is_zwitterion, read_back
from duallgd_cli.chem.valence import MolecularGraph
from duallgd_cli.data.fragmentation import (
    BY_CHANCE,
    CARRIED,
    FOUND,
    MISSED,
    N_INPUTS,
    OF_ATOMS,
    OF_CUTS,
    SCORED_TRIPLES,
    SHIFTS,
    Ion,
    atom_features,
    composition_key,
    cut_features,
    fragments_of_isomers,
    measured_intensity,
)
from duallgd_cli.errors import WeightsError
from duallgd_cli.sources import Query
from duallgd_cli.spectra.types import AnnotatedSpectrum, instrument_index

Array = NDArray[np.float64]
Floats = NDArray[np.float32]
Measured = tuple[Ion, NDArray[np.int16], Floats]  # see `_measured`

_DIGITS: Final = 4  # other orders of the same sums differ in later ones
_LAYERS: Final = ("hidden.0", "hidden.2", "presence", "worth")
_AT_ONCE: Final = 32  # molecules whose bonds are cut together, which takes some 30 MiB
_LEAST_PROBABILITY: Final = 1e-4
_ENVIRONMENTS: Final = rdFingerprintGenerator.GetMorganGenerator(radius=3)
# What a single structure has says as little as what none has.
_COMMON: Final = 2
# Bits of the filter for each environment, and the odd numbers that spread its number over them.
_BITS_EACH, _FEWEST_BITS = 7, 64
_SPREAD: Final = np.array(
    [0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1], dtype=np.uint32
)


@dataclass(frozen=True, eq=False)
class Molecule:
    """A molecule that was proposed."""

    mol: Mol  # for RDKit
    smiles: str  # canonical, without stereochemistry
    inchi: str  # standard InChI
    inchikey: str  # 27 characters

    @classmethod
    def of(cls, mol: Mol, smiles: str) -> "Molecule":
        """Name a molecule.

        Raises:
            MoleculeError: It has no InChI.
        """
        inchi = identity.inchi(mol)
        return cls(mol, smiles, inchi, identity.inchikey_of(inchi))

    @property
    def block(self) -> str:
        """First block of the InChIKey, the identity of a molecule here."""
        return self.inchikey[: identity.BLOCK_LENGTH]

    @cached_property
    def bits(self) -> NDArray[np.uint16]:
        """Set Morgan bits, (n_on,)."""
        return identity.fingerprint(self.mol)

    @cached_property
    def is_salt(self) -> bool:
        """See `chem.molecule.is_internal_salt`."""
        return ("+" in self.smiles or "-]" in self.smiles) and is_internal_salt(self.mol)

    @cached_property
    def placement(self) -> str:
        """What a zwitterion shares with all that differ in the placement of charges alone.

        "" of any other molecule.
        """
        is_charged = "+" in self.smiles or "-]" in self.smiles
        is_placed = is_charged and (self.is_salt or is_zwitterion(self.mol))
        return identity.charge_free_smiles(self.mol) if is_placed else ""

    @cached_property
    def family(self) -> str:
        """See `chem.identity`."""
        return identity.family(self.mol)

    @cached_property
    def scaffold(self) -> str:
        """See `chem.identity`."""
        return identity.scaffold(self.mol)


class Score(Protocol):
    """A number for each molecule, the higher the likelier it is right."""

    @property
    def name(self) -> str:
        """Of the score: of its weight in the ranking, and in the outputs."""
        ...

    def __call__(self, query: Query, molecules: Sequence[Molecule]) -> NDArray[np.float64]:
        """Score molecules, (C,); a function of the arguments and nothing else."""
        ...


def score(
    scores: Sequence[Score], query: Query, molecules: Sequence[Molecule]
) -> list[dict[str, float]]:
    """Every score of every molecule, by name."""
    columns: dict[str, list[float]] = {}
    for each in scores if molecules else ():
        query.check()
        columns[each.name] = np.asarray(each(query, molecules), np.float64).tolist()
    rows = zip(*columns.values(), strict=True) if columns else [()] * len(molecules)
    return [dict(zip(columns, row, strict=True)) for row in rows]


_ANOTHER_VERSION: Final = (
    "the re-ranker in the weights was fitted by another version of duallgd; use that version, "
    "or the weights that come with this one"
)


@dataclass(frozen=True, eq=False)
class FragmentScorer:
    """Says what fragments that are peaks, and fragments that are none, speak for a molecule."""

    # weights (out, in) and biases of two linear maps with a ReLU each, and of two that take what
    # these give: of a `train.scorers.ScorerModel`
    layers: tuple[tuple[Floats, Floats], ...]

    @classmethod
    def of(cls, tensors: Mapping[str, NDArray[Any]]) -> "FragmentScorer":
        """From the arrays of a weights file.

        Raises:
            KeyError: One is missing.
            WeightsError: Fragments were described otherwise when it was fitted.
        """
        scorer = cls(tuple((tensors[f"{n}.weight"], tensors[f"{n}.bias"]) for n in _LAYERS))
        weight, bias = scorer.layers[0]
        try:
            of_none = scorer.worth(np.zeros((1, N_INPUTS), np.float32) @ weight.T + bias)
        except ValueError:
            raise WeightsError(_ANOTHER_VERSION) from None
        if {values.shape for values in of_none} != {(1, len(SHIFTS))}:
            raise WeightsError(_ANOTHER_VERSION)
        return scorer

    def worth(self, first: Floats) -> tuple[Floats, Floats]:
        """What a fragment speaks for a molecule, by what the first map makes of its features.

        Returns:
            If it is a peak, and if it is not, with each hydrogen shift; both (C, H).
        """
        _, (second, b), (presence, c), (worth, d) = self.layers
        hidden = np.maximum(np.maximum(first, 0) @ second.T + b, 0)
        log_odds = hidden @ presence.T + c
        found, missed = np.split(hidden @ worth.T + d, 2, axis=1)
        absent = np.logaddexp(0, log_odds)
        found = found + FOUND * (log_odds - absent - BY_CHANCE)
        return found, missed * np.exp(log_odds - absent) - MISSED * absent

    def peaks(self, query: Query, molecules: Sequence[tuple[str, Mol]]) -> Array:
        """What fragments that are peaks speak for molecules, and what absent ones do, (C, 2).

        Each is a sum over fragments, the mean over collision energies; 0 where the ion's fragments
        are not understood. Molecules come with their canonical SMILES, by which they must have been
        named last: `read_back` takes the order of atoms from that.
        """
        values: dict[str, list[float]] = query.once("peaks", dict)
        measured = query.once("measured", lambda: _measured(query.annotated))
        if not measured:
            return np.zeros((len(molecules), 2))
        alike = defaultdict[int, dict[str, MolecularGraph]](dict)  # by number of bonds
        for smiles, mol in molecules:
            if smiles not in values:
                graph, _ = read_back(mol)
                alike[len(graph.pair)][smiles] = graph
        values.update((smiles, [0.0, 0.0]) for smiles in alike.pop(0, ()))
        for together in alike.values():
            waiting = iter(together.items())
            while some := dict(islice(waiting, _AT_ONCE)):
                query.check()
                values.update(zip(some, self._peaks([*some.values()], measured), strict=True))
        return np.array([values[smiles] for smiles, _ in molecules]).reshape(-1, 2)

    def _peaks(
        self, graphs: Sequence[MolecularGraph], measured: Sequence[Measured]
    ) -> list[list[float]]:
        """The two values of each of molecules with as many bonds."""
        drawn = fragments_of_isomers(graphs, SCORED_TRIPLES)
        # The first map is linear: what cuts add to it is the same at every energy, and what atoms
        # add is of all fragments that have the same.
        weight, bias = self.layers[0]
        of_cuts = cut_features(drawn) @ weight[:, OF_CUTS].T + bias
        key = composition_key(drawn.counts)
        _, distinct, which = np.unique(key, return_index=True, return_inverse=True)
        sums = np.zeros((2, len(graphs)))
        for ion, subformula, intensity in measured:
            inputs = atom_features(drawn.counts[distinct], drawn.counts[0], ion)
            of_atoms = inputs @ weight[:, OF_ATOMS].T
            shown, hidden = self.worth(of_cuts + of_atoms[which])
            there = measured_intensity(drawn, ion, subformula, intensity) > 0
            for total, worth, counts in zip(sums, (shown, hidden), (there, ~there), strict=True):
                of_rows = np.where(counts, worth, 0).sum(1, dtype=np.float64)
                total += np.bincount(drawn.molecule, of_rows)
        values: list[list[float]] = (sums.T / len(measured)).round(_DIGITS).tolist()
        return values


def _measured(annotated: AnnotatedSpectrum) -> list[Measured]:
    """Sub-formulas (K, N_ELEMENTS) and intensities (K,) of the explained peaks by collision energy.

    Those that kept a metal are left out.
    """
    adduct = annotated.hypothesis.adduct.index
    bare = annotated.carrier == 0
    if adduct not in CARRIED or not bare.any():
        return []
    instrument = instrument_index(annotated.hypothesis.feature.first.instrument)
    energy, intensity = annotated.energy_ev[bare], annotated.intensity[bare]
    subformula = annotated.subformula[bare]
    measured = []
    for value in np.unique(energy):  # all that are not known count as one
        same = (energy == value) | (np.isnan(energy) & np.isnan(value))
        ion = Ion(adduct, instrument, float(value))
        measured.append((ion, subformula[same], intensity[same]))
    return measured


@dataclass(frozen=True, slots=True)
class FingerprintLikelihood:
    r"""Log-likelihood of the Morgan bits, :math:`\sum_b \log p(x_b) - \max_x \log p(x)`.

    At most 0, and 0 for the most probable bits.
    """

    name: str = "fingerprint_log_likelihood"

    def __call__(self, query: Query, molecules: Sequence[Molecule]) -> Array:
        """Score molecules, (C,)."""
        on, p = _bits(query, molecules)
        best = np.log(np.maximum(p, 1 - p))
        return np.asarray((np.log(np.where(on, p, 1 - p)) - best).sum(1))


@dataclass(frozen=True, slots=True)
class FingerprintTanimoto:
    r"""Soft Tanimoto similarity, :math:`\sum_b \min(x_b, p_b) / \sum_b \max(x_b, p_b)`."""

    name: str = "fingerprint_tanimoto"

    def __call__(self, query: Query, molecules: Sequence[Molecule]) -> Array:
        """Score molecules, (C,)."""
        on, p = _bits(query, molecules)
        shared = (on * p).sum(1)
        return np.asarray(shared / (p.sum() - shared + on.sum(1)))


def _bits(query: Query, molecules: Sequence[Molecule]) -> tuple[NDArray[np.bool_], Array]:
    """Bits of molecules, (C, F), and their predicted probabilities, (F,)."""
    on = np.zeros((len(molecules), query.fingerprint.size), np.bool_)
    for row, molecule in zip(on, molecules, strict=True):
        row[molecule.bits] = True
    p = query.fingerprint.astype(np.float64)
    return on, np.clip(p, _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)


@dataclass(frozen=True, slots=True)
class OfEach:
    """A score that looks at one molecule after the other."""

    name: str  # of the score
    value: Callable[[Query, Molecule], float]  # number of a molecule for a query

    def __call__(self, query: Query, molecules: Sequence[Molecule]) -> Array:
        """Score molecules, (C,)."""
        return np.array([round(self.value(query, molecule), _DIGITS) for molecule in molecules])


@dataclass(frozen=True, slots=True)
class OfPeaks:
    """What the fragments of molecules speak for them."""

    name: str  # of the score
    fragments: FragmentScorer
    column: int  # of `FragmentScorer.peaks`

    def __call__(self, query: Query, molecules: Sequence[Molecule]) -> Array:
        """Score molecules, (C,)."""
        named = [(molecule.smiles, molecule.mol) for molecule in molecules]
        return self.fragments.peaks(query, named)[:, self.column]


def isomer_log_odds(query: Query, molecule: Molecule) -> float:
    """What the Morgan bits speak for a molecule beside its isomers, summed; 0 without an encoder.

    An encoder that says so is `Query.isomer_log_odds`.
    """
    odds = query.isomer_log_odds
    return 0.0 if odds is None else float(odds[molecule.bits].sum(dtype=np.float64))


def known_environments(molecules: Iterable[Iterable[int]]) -> NDArray[np.uint8]:
    """The filter of all `environments` that at least two have, (B,), B a power of two."""
    seen = Counter(chain.from_iterable(molecules))
    common = [number for number, count in seen.items() if count >= _COMMON]
    n_bits = max(_FEWEST_BITS, 1 << (_BITS_EACH * len(common) - 1).bit_length())
    is_set = np.zeros(n_bits, np.bool_)
    is_set[_places(common, n_bits)] = True
    return np.packbits(is_set, bitorder="little")


def unknown_environments(mol: Chem.Mol, known: NDArray[np.uint8]) -> int:
    """How many environments of a molecule are none of those in a filter, (B,)."""
    places = _places(environments(mol), 8 * known.size)
    is_set = known[places >> 3] >> (places & 7).astype(np.uint8) & 1
    return int(np.count_nonzero(~is_set.astype(np.bool_).all(1)))


def environments(mol: Chem.Mol) -> list[int]:
    """Numbers of a molecule's environments, of 32 bits, each once."""
    return list(_ENVIRONMENTS.GetSparseFingerprint(mol).GetOnBits())


def _places(numbers: list[int], n_bits: int) -> NDArray[np.int64]:
    """Bits of each environment, (E, 5): the highest of products modulo 2^32."""
    spread = np.array(numbers, np.int64).astype(np.uint32)[:, None] * _SPREAD
    return (spread >> np.uint32(33 - n_bits.bit_length())).astype(np.int64)


def fitted_scores(
    tensors: Mapping[str, NDArray[Any]], ends: KnownEnds
) -> tuple[tuple[Score, ...], FragmentScorer | None]:
    """All scores that a weights file holds, and what fragments speak for.

    Args:
        tensors: Of its re-ranker; none leave the two that need no fit.
        ends: Of the known molecules in the weights.

    Raises:
        WeightsError: One is missing, or was fitted by another version.
    """
    agreement: tuple[Score, ...] = (FingerprintLikelihood(), FingerprintTanimoto())
    if not tensors:
        return agreement, None
    try:
        fragments, prevalence = FragmentScorer.of(tensors), tensors["log_prevalence"]
    except KeyError as error:
        raise WeightsError(
            f"the weights hold no {error} of a re-ranker; take the weights that come with this "
            "version"
        ) from None
    table = tensors.get("environments")
    is_table = table is None or (table.ndim == 1 and table.size and table.dtype == np.uint8)
    if prevalence.shape != (FINGERPRINT_BITS,) or not is_table:
        raise WeightsError(_ANOTHER_VERSION)
    scores: dict[str, Callable[[Query, Molecule], float]] = {
        # Substructure prior: mean log share of known molecules with each of the Morgan bits.
        "familiarity": lambda _, one: float(prevalence[one.bits].mean()) if one.bits.size else 0.0,
        # How usual the two parts are that it falls into.
        "known_halves": lambda _, one: known_halves(one.mol, ends),
        "contrast": isomer_log_odds,
    }
    if table is not None:  # less 1 for each environment of an atom that no known structure has
        scores["known_environments"] = lambda _, one: 0.0 - unknown_environments(one.mol, table)
    each = (OfEach(name, value) for name, value in scores.items())
    # What fragments that are peaks speak for it, and what fragments that are none do.
    of_peaks = OfPeaks("peaks_found", fragments, 0), OfPeaks("peaks_missed", fragments, 1)
    return (*agreement, *each, *of_peaks), fragments
