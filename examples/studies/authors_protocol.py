"""The authors' converted weights, chosen molecules and scores by the authors' own rules.

    pip install ./plugins/authors_network
    python -m duallgd_authors_network convert authors.ckpt -o reference.safetensors
    python examples/studies/authors_protocol.py --benchmark canopus/nplib1.tsv --weights reference.safetensors -o theirs

Their network reads the order in which a molecule's atoms are listed, and their tests list them as
the true molecule's canonical SMILES does: part of the answer is in the question. `duallgd predict`
and `duallgd evaluate` know no such order; ``--atom-order formula`` leaves it out here, too. Whatever
comes of it says so: the terminal, results.json, every row and the run record of the predictions.
As they do, molecules of other elements than their network knows are left out.

The report is that of `duallgd evaluate`; beside it ``reference.tsv`` has the scores by their rules:
match of the whole InChI among distinct valid InChIs, Tanimoto and MCES of canonical tautomers, MCES
at most twice the bonds of the truth. N heavy atoms of a molecule, M = N (N - 1) / 2 pairs.
"""  # noqa: E501 - a command that can be copied

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, Literal

import numpy as np
import typer
from command import run, say, show
from numpy.typing import NDArray
from rdkit import rdBase
from rdkit.Chem.MolStandardize import rdMolStandardize
from rich.table import Table

from duallgd_cli.chem import identity
from duallgd_cli.chem.elements import HYDROGEN, INDEX, SYMBOLS
from duallgd_cli.chem.molecule import Mol
from duallgd_cli.chem.valence import pair_index
from duallgd_cli.config import SamplingSettings
from duallgd_cli.errors import Failure, MoleculeError, RefusedError, UsageError
from duallgd_cli.evaluate.metrics import Scores, minima
from duallgd_cli.evaluate.report import report
from duallgd_cli.evaluate.run import claim_files, inputs_of, predict_inputs
from duallgd_cli.evaluate.settings import EvaluateSettings
from duallgd_cli.evaluate.tables import (
    EvaluationInputs,
    MoleculeFigures,
    Predicted,
    Truth,
    molecule,
    read_predictions,
    write_table,
)
from duallgd_cli.predict import api
from duallgd_cli.predict.model import LoadedModel
from duallgd_cli.predict.settings import PredictSettings
from duallgd_cli.runtime import Runtime
from duallgd_cli.sources import Proposal, Query
from duallgd_cli.sources.network import assembled
from duallgd_cli.spectra.types import Hypothesis

try:
    from duallgd_authors_network import generator
except ModuleNotFoundError as missing:
    if missing.name != "duallgd_authors_network":
        raise
    sys.exit(
        "error: this is about the authors' network; run 'pip install ./plugins/authors_network'"
    )

# Reference: the search is bounded by 100, and by twice the number of bonds of the truth.
_THRESHOLD: Final = 100.0
TRUE_ORDER: Final = (
    "TRUE ATOM ORDER: the network was shown the atoms in the order of the true molecule's "
    "canonical SMILES, as in the authors' tests; the order tells part of the answer and is not "
    "known of an unlabelled spectrum."
)


def elements_in_smiles_order(smiles: str) -> tuple[str, ...]:
    """Element of each heavy atom, in the order of the canonical SMILES without stereochemistry."""
    canonical = identity.canonical_smiles(identity.parse_smiles(smiles))
    return tuple(atom.GetSymbol() for atom in identity.parse_smiles(canonical).GetAtoms())


@dataclass(frozen=True, eq=False)
class TrueOrder:
    """Lists a formula's atoms as the true molecule's canonical SMILES does."""

    elements: Mapping[str, Sequence[str]]  # of its heavy atoms in that order, by spectrum

    def __call__(self, hypothesis: Hypothesis) -> NDArray[np.int64]:
        """Which atom of the formula's list stands at each index, int64 (N,).

        Raises:
            RefusedError: The true molecule has other atoms than the formula.
        """
        symbols = self.elements[hypothesis.feature.first.spectrum_id]
        true = np.array([INDEX.get(symbol, HYDROGEN) for symbol in symbols])
        by_element = np.argsort(true, kind="stable")
        if not np.array_equal(true[by_element], hypothesis.formula.atom_class):
            message = (
                f"the true molecule's {len(symbols)} heavy atoms are not those of "
                f"{hypothesis.formula}, so its order cannot be used"
            )
            raise RefusedError(Failure("formula_mismatch", message))
        shown = np.empty_like(by_element)
        shown[by_element] = np.arange(len(symbols))
        return shown


@dataclass(frozen=True, eq=False)
class ToldNoise(generator.AuthorsNoise):
    """The authors' network when it is shown the true order of the atoms, and says so."""

    order: TrueOrder = field(kw_only=True)

    def symbols(self, hypothesis: Hypothesis) -> list[str]:
        """Elements of the atoms in the true order."""
        return [SYMBOLS[n] for n in hypothesis.formula.atom_class[self.order(hypothesis)]]

    def propose(self, query: Query, n: int, seed: int) -> Iterator[Proposal]:
        """Draw in the true order; what comes out is in the formula's order again."""
        drawn = self.draw(query, n, seed)
        pairs = pairs_of_order(self.order(query.annotated.hypothesis))
        query.notes.append(TRUE_ORDER)
        query.remarks.append(TRUE_ORDER)
        samples = drawn._replace(
            bond_class=drawn.bond_class[:, pairs], bond_log_prob=drawn.bond_log_prob[:, pairs]
        )
        return iter(assembled(self.name, query, samples))


def pairs_of_order(shown: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the pairs of the formula's atoms are among those of the atoms as shown, int64 (M,).

    Given is the index in the formula's list of each atom as shown, a permutation (N,).
    """
    ends = np.argsort(shown)[np.stack(np.triu_indices(len(shown), 1))]
    low, high = np.sort(ends, axis=0)
    return np.asarray(pair_index(low, high, len(shown)))


def told(model: LoadedModel, truths: Iterable[Truth]) -> LoadedModel:
    """The model when it is shown the true order of the atoms."""
    elements = {
        " ".join(truth.spectrum_id.split()): elements_in_smiles_order(truth.smiles)
        for truth in truths
    }
    source = authors(model)
    knowing = ToldNoise(source.model, source.runtime, order=TrueOrder(elements))
    name = f"{model.name}, told the true atom order"
    return replace(
        model,
        encode=knowing.encode,
        sources=(knowing,),
        again=None,
        name=name,
        remark=TRUE_ORDER,
    )


def authors(model: LoadedModel) -> generator.AuthorsNoise:
    """The authors' network; other weights are refused."""
    for source in model.sources:
        if isinstance(source, generator.AuthorsNoise):
            return source
    raise UsageError(
        f"this is for the authors' weights, and {model.name} holds others; give --weights "
        "FILE as 'python -m duallgd_authors_network convert' writes it"
    )


def keep_elements(inputs: EvaluationInputs, known: Iterable[str]) -> None:
    """Leave molecules of other elements out, as the authors do."""
    vocabulary, truths = {*known, "H"}, inputs.truths
    listed = " ".join(sorted(vocabulary))
    inputs.truths = [
        truth for truth in truths if vocabulary.issuperset(elements_in_smiles_order(truth.smiles))
    ]
    dropped = len(truths) - len(inputs.truths)
    if not inputs.truths:
        raise UsageError(f"all {dropped} molecules hold elements other than {listed}")
    inputs.remark(
        f"{dropped} of {len(truths)} spectra are left out, as the authors do, since their "
        f"molecules hold elements other than {listed}."
    )


@lru_cache(maxsize=100_000)
def canonical_tautomer(smiles: str) -> MoleculeFigures | None:
    """Describe the canonical tautomer of a SMILES, the form that the authors compare.

    A molecule whose tautomers cannot be enumerated stands for itself; None if it is no molecule.
    """
    try:
        mol = identity.parse_smiles(smiles)
    except MoleculeError:
        return None
    with rdBase.BlockLogs():
        try:
            mol = rdMolStandardize.TautomerEnumerator().Canonicalize(mol)
        except (RuntimeError, ValueError) as error:
            say(f"the tautomers of {smiles} cannot be enumerated: {error}")
    return molecule(identity.canonical_smiles(mol))


def reference_scores(
    truths: Sequence[Truth], predicted: Sequence[Predicted], settings: EvaluateSettings
) -> Scores:
    """Scores by the authors' rules, under the names of the columns of `duallgd evaluate`."""
    rows = [_scored(*pair, settings) for pair in zip(truths, predicted, strict=True)]
    names = rows[0] if rows else {}
    return Scores(tuple(truths), {name: np.array([row[name] for row in rows]) for name in names})


def _scored(spectrum: Truth, ranked: Predicted, settings: EvaluateSettings) -> dict[str, float]:
    truth = molecule(spectrum.smiles)
    assert truth is not None  # tables of the truth hold molecules alone
    # Reference: ranks are of distinct InChIs of valid, connected molecules.
    found = [one for one in map(molecule, ranked.smiles) if one and "." not in one.smiles]
    inchis = {one.smiles: identity.inchi(_mol(one)) for one in (truth, *found) if one.block}
    named = [one for one in found if one.block]
    distinct = list({inchis[one.smiles]: one for one in reversed(named)}.values())[::-1]
    # Reference: the match is the whole InChI; similarity is that of canonical tautomers.
    canonical = canonical_tautomer(truth.smiles) or truth
    tautomers = [canonical_tautomer(one.smiles) or one for one in distinct]
    hits = [float(inchis[one.smiles] == inchis.get(truth.smiles)) for one in distinct]
    alike = [identity.tanimoto(canonical.bits, one.bits) for one in tautomers]
    row = {f"accuracy@{k}": max(hits[:k], default=0.0) for k in settings.top_k}
    row |= {f"tanimoto@{k}": max(alike[:k], default=0.0) for k in settings.top_k}
    if settings.mces:
        nearest = minima(
            canonical.smiles,
            [one.smiles for one in tautomers],
            settings.top_k,
            threshold=_THRESHOLD,
            ceiling=2.0 * _mol(truth).GetNumBonds(),
        )
        row |= {f"mces@{k}": value for k, value in zip(settings.top_k, nearest.values, strict=True)}
    return row


def _mol(one: MoleculeFigures) -> Mol:
    return identity.parse_smiles(one.smiles)


def main(
    benchmark: Annotated[Path, typer.Option(help="As for duallgd evaluate.")],
    weights: Annotated[str, typer.Option(help="As the plug-in's command convert writes them.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the report.")],
    fold: Annotated[str, typer.Option(help="As for duallgd evaluate.")] = "test",
    atom_order: Annotated[
        Literal["truth", "formula"],
        typer.Option(help="truth: the network is told the true order, as the authors test it."),
    ] = "truth",
    limit: Annotated[int | None, typer.Option(min=1, help="Score so many spectra.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Molecules drawn per spectrum.")] = 100,
    steps: Annotated[int, typer.Option(min=1, help="Denoising steps per molecule.")] = 10,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    mces: Annotated[bool, typer.Option(help="Compute MCES distances, the slow part.")] = True,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
) -> None:
    """Predict a benchmark with the authors' weights and score it by their rules."""
    settings = EvaluateSettings(
        benchmark=benchmark,
        weights=weights,
        out=output,
        fold=fold,
        limit=limit,
        mces=mces,
        device=device,
        workers=workers,
        resume=resume,
        prediction=PredictSettings(
            seed=seed, sampling=SamplingSettings(samples=samples, steps=steps)
        ),
    )
    model = api.load(weights, runtime=Runtime.resolve(device))
    inputs = inputs_of(settings)
    claim_files(settings, inputs)
    keep_elements(inputs, authors(model).model.settings.atom_symbols)
    model = told(model, inputs.truths) if atom_order == "truth" else model
    predict_inputs(settings, inputs, model=model)
    found = report(settings, inputs)
    predicted = read_predictions(inputs.predictions)
    ranked = [predicted[truth.spectrum_id] for truth in inputs.truths]
    means = reference_scores(inputs.truths, ranked, settings).summary(seed)
    rows = [[name, *mean.values()] for name, mean in means.items()]
    write_table(output / "reference.tsv", [["metric", "mean", "low", "high"], *rows])
    shown = Table("by the authors' rules", "mean", "95 % interval", title=found["title"])
    for name, mean, low, high in rows:
        shown.add_row(name, f"{mean:.3f}", f"{low:.3f} to {high:.3f}")
    show(shown, *found["remarks"])


if __name__ == "__main__":
    run(main)
