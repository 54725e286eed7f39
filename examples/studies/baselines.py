"""Two baselines without a network beside a finished evaluation, on the same spectra.

    duallgd evaluate --benchmark massbank.tsv --fold test -o test
    python examples/studies/baselines.py test --benchmark massbank.tsv

Random connected graphs of the formula: what a candidate list is worth that ignores the spectrum. N
heavy atoms, M = N (N - 1) / 2 pairs in row-major order of the strict upper triangle.

The training molecules whose spectra look most alike: their accuracy is zero wherever training and
test molecules are kept apart; their similarity is what memory alone is worth. L training spectra.

Settings, seed and ranking are those of the evaluation. ``baselines.tsv`` in its folder has the
columns of ``rivals.tsv``; the random graphs lie beside it as ``random_graphs.csv``.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
import typer
from command import run, say, show
from numpy.typing import NDArray
from rich.table import Table

from duallgd_cli.chem.elements import BOND_TRIPLE, INDEX, VALENCES
from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings, parse
from duallgd_cli.errors import UsageError
from duallgd_cli.evaluate import EvaluateSettings, Predicted, Truth, score
from duallgd_cli.evaluate.report import RESULTS, compare, ranked_of, rival_rows
from duallgd_cli.evaluate.run import PREDICTIONS, SPECTRA, TRUTH
from duallgd_cli.evaluate.suites import Row, Suite, find
from duallgd_cli.evaluate.tables import (
    id_column,
    molecule,
    read_predictions,
    truths_of,
    write_table,
)
from duallgd_cli.files import table_rows
from duallgd_cli.guide.knowledge import Known
from duallgd_cli.predict.generation import Generated, LoadedModel
from duallgd_cli.predict.journal import read as read_journals
from duallgd_cli.predict.ranking import RankingModel, recorded
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from duallgd_cli.spectra.types import AnnotatedSpectrum

if TYPE_CHECKING:
    from scipy.sparse import csr_array

RANDOM: Final = "random formula-exact graphs"
ANALOGUE: Final = "nearest training analogue"
_ATTEMPTS: Final = 20
# Elements that carry a positive charge as one more bond, the likeliest first.
_CARRIERS: Final = tuple(INDEX[symbol] for symbol in ("N", "P", "S", "O"))
# New bonds go to pairs that are bonded already as often as this, else they close a ring.
_MULTIPLE_SHARE: Final = 0.5

LIBRARY_FOLD: Final = "train"
_BIN_MZ: Final = 0.02
_LARGEST_MZ: Final = 2000.0
_PRECURSOR_MARGIN_MZ: Final = 0.5
_CHUNK: Final = 256


class RandomGraphs:
    """A generator that looks at the formula alone."""

    def generate(
        self,
        annotated: AnnotatedSpectrum,
        settings: SamplingSettings,
        seed: int,
        known: Known | None = None,
    ) -> Generated:
        """Draw random connected graphs with the formula's hydrogens; all equally likely."""
        formula = annotated.hypothesis.formula
        generator = np.random.default_rng(seed)
        graphs = [random_graph(formula, generator) for _ in range(settings.samples)]
        return Generated(
            bond_class=np.stack(graphs),
            log_likelihood=np.zeros(settings.samples, dtype=np.float32),
        )


def random_graphs(ranking: RankingModel) -> LoadedModel:
    """What draws random formula-exact connected graphs; `ranking` ranks them as it ranks ours."""
    return LoadedModel(RandomGraphs(), ranking, name="random graphs", sha256="random-graphs-1")


def random_graph(formula: Formula, generator: np.random.Generator) -> NDArray[np.int8]:
    """Draw a connected graph whose free valences take up exactly the formula's hydrogens.

    A random tree over the atoms, then bonds at random between atoms with free valences. Where no
    such graph is found the last attempt is returned, whose hydrogens do not fit.

    Args:
        formula: Of the molecule.
        generator: Source of randomness.

    Returns:
        Bond classes none, single, double or triple, int8 (M,).
    """
    n = formula.n_heavy
    order = np.zeros((n, n), dtype=np.int8)
    for _ in range(_ATTEMPTS):
        order[:] = 0
        free = _valences(formula, generator)
        _grow_tree(order, free, generator)
        _add_bonds(order, free, int(free.sum()) - formula.hydrogens, generator)
        if int(free.sum()) == formula.hydrogens and free.min(initial=0) >= 0:
            break
    return order[np.triu_indices(n, 1)]


def _valences(formula: Formula, generator: np.random.Generator) -> NDArray[np.int64]:
    """A valence for each atom, raised where the smallest ones cannot hold the graph together."""
    atoms = formula.atom_class
    valence = np.array([VALENCES[element][0] for element in atoms], dtype=np.int64)
    for _ in range(formula.charge):
        carriers = next((c for c in _CARRIERS if c in atoms), None)
        if carriers is not None:
            valence[generator.choice(np.flatnonzero(atoms == carriers))] += 1
    while valence.sum() < formula.hydrogens + 2 * (len(atoms) - 1):
        raisable = [i for i, v in enumerate(valence) if v + 2 in VALENCES[atoms[i]]]
        if not raisable:
            break
        valence[generator.choice(raisable)] += 2
    return valence


def _grow_tree(
    order: NDArray[np.int8], free: NDArray[np.int64], generator: np.random.Generator
) -> None:
    waiting = generator.permutation(len(free)).tolist()
    # Atoms of valence one cannot carry the tree on: they come last.
    waiting.sort(key=lambda atom: free[atom] == 1)
    placed = waiting[:1]
    for atom in waiting[1:]:
        open_atoms = [other for other in placed if free[other] > 0] or placed
        _bind(order, free, atom, int(generator.choice(open_atoms)))
        placed.append(atom)


def _add_bonds(
    order: NDArray[np.int8],
    free: NDArray[np.int64],
    surplus: int,
    generator: np.random.Generator,
) -> None:
    a, b = np.triu_indices(len(free), 1)
    for _ in range(max(0, surplus) // 2):
        possible = np.flatnonzero((free[a] > 0) & (free[b] > 0) & (order[a, b] < BOND_TRIPLE))
        if not possible.size:
            return
        bonded = possible[order[a[possible], b[possible]] > 0]
        multiple = bonded.size and generator.random() < _MULTIPLE_SHARE
        chosen = generator.choice(bonded if multiple else possible)
        _bind(order, free, int(a[chosen]), int(b[chosen]))


def _bind(order: NDArray[np.int8], free: NDArray[np.int64], a: int, b: int) -> None:
    order[a, b] += 1
    order[b, a] += 1
    free[[a, b]] -= 1


def analogue_predictions(
    suite: Suite, truths: Sequence[Truth], n_candidates: int
) -> Mapping[str, Predicted]:
    """Training molecules with the most similar spectra; empty if the benchmark has no such fold.

    Args:
        suite: Its fold ``train`` is the library.
        truths: Spectra to predict.
        n_candidates: Molecules for each, at most.
    """
    wanted = {truth.spectrum_id for truth in truths}
    kept, name = [], ""
    for row in suite.rows():
        name = name or id_column([row], suite.title)
        if row[name] in wanted or row.get("fold") == LIBRARY_FOLD:
            kept.append(row)
    training = [row for row in kept if row.get("fold") == LIBRARY_FOLD]
    if not training:
        return {}
    say(f"{len(training)} training spectra to compare with")
    return nearest([row for row in kept if row[name] in wanted], training, n_candidates)


def nearest(
    queries: Sequence[Row], training: Sequence[Row], n_candidates: int
) -> dict[str, Predicted]:
    """Distinct training molecules by falling cosine of their best spectrum of the same polarity.

    Args:
        queries: Spectra in the MassSpecGym layout; only what a lab measures is used.
        training: L training spectra.
        n_candidates: Molecules for each query, at most.
    """
    found = {}
    name = id_column(queries, "the benchmark")
    known = [molecule(row["smiles"]) for row in training]
    blocks = [one.block if one else row["smiles"] for one, row in zip(known, training, strict=True)]
    positive = np.array([_is_positive(row) for row in training])
    vectors = _vectors(training)
    for start in range(0, len(queries), _CHUNK):
        part = queries[start : start + _CHUNK]
        cosine = (_vectors(part) @ vectors.T).toarray()
        for query, values in zip(part, cosine, strict=True):
            values[positive != _is_positive(query)] = -1.0
            order = np.argsort(-values, kind="stable")
            chosen: dict[str, str] = {}
            for index in order[values[order] > 0].tolist():
                chosen.setdefault(blocks[index], training[index]["smiles"])
                if len(chosen) == n_candidates:
                    break
            ranked = tuple(chosen.values())
            found[query[name]] = Predicted(ranked, (float("nan"),) * len(ranked))
    return found


def _vectors(rows: Sequence[Row]) -> "csr_array":
    """Unit vectors over binned peaks and neutral losses, float32 (L, 2 x bins), sparse."""
    from scipy.sparse import csr_array  # only the `evaluate` extra brings scipy

    n_bins = int(_LARGEST_MZ / _BIN_MZ)
    columns, values = zip(*(_binned(row, n_bins) for row in rows), strict=True)
    starts = np.cumsum([0, *map(len, columns)])
    shape = (len(rows), 2 * n_bins)
    matrix = csr_array((np.concatenate(values), np.concatenate(columns), starts), shape=shape)
    matrix.sum_duplicates()
    length = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1))).ravel()
    scale = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
    matrix.data *= np.repeat(scale, np.diff(matrix.indptr)).astype(np.float32)
    return matrix


def _binned(row: Row, n_bins: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Bins of the peaks and of their neutral losses with the roots of the intensities.

    The precursor itself is left out: within one formula it says nothing.
    """
    mz, intensity = _numbers(row["mzs"]), _numbers(row["intensities"])
    precursor = float(row["precursor_mz"])
    keep = (mz < min(precursor - _PRECURSOR_MARGIN_MZ, _LARGEST_MZ)) & (intensity > 0)
    mz, root = mz[keep], np.sqrt(intensity[keep]).astype(np.float32)
    peak = (mz / _BIN_MZ).astype(np.int64)
    loss = np.minimum(((precursor - mz) / _BIN_MZ).astype(np.int64), n_bins - 1) + n_bins
    return np.concatenate([peak, loss]), np.concatenate([root, root])


def _numbers(text: str) -> NDArray[np.float64]:
    return np.array(text.strip("[] ").replace(",", " ").split(), dtype=np.float64)


def _is_positive(row: Row) -> bool:
    return not row.get("adduct", "").endswith("-")


def drawn(folder: Path, found: Mapping[str, Any]) -> dict[str, Predicted]:
    """Random graphs for the spectra of an evaluation; what is finished of them is kept.

    Args:
        folder: Of the evaluation.
        found: Contents of its results.json.

    Raises:
        UsageError: It took formulas from a table.
    """
    given = dict(found["prediction"]["settings"])
    if given.pop("formulas"):
        raise UsageError("the evaluation took formulas from a table; make one that does not")
    output, predictions = folder / "random_graphs.csv", folder / PREDICTIONS
    ranking = recorded(read_journals([predictions]).header.model["ranking"], predictions)
    request = PredictRequest(
        inputs=(str(folder / SPECTRA),),
        output=str(output),
        settings=parse(PredictSettings, given),
        resume=output.with_name(f"{output.name}.journal.jsonl").exists(),
    )
    predict(request, random_graphs(ranking))
    return read_predictions(output)


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of duallgd evaluate.")],
    benchmark: Annotated[str, typer.Option(help="That of the evaluation; its fold train is read.")],
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with the benchmark's files.")
    ] = None,
) -> None:
    """Score random graphs and the nearest training analogues beside an evaluation."""
    found: dict[str, Any] = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
    truths = truths_of(table_rows(folder / TRUTH, required=("smiles",)), "", TRUTH)
    scoring = found["scoring"]
    settings = EvaluateSettings(
        top_k=tuple(scoring["top_k"]),
        mces=any(name.startswith("mces@") for name in found["metrics"]),
        mces_limit=scoring["mces_limit_s"],
    )
    analogues = analogue_predictions(find(benchmark, data_dir), truths, max(settings.top_k))
    rivals = {RANDOM: drawn(folder, found)} | ({ANALOGUE: analogues} if analogues else {})
    ours, *theirs = (
        score(truths, ranked_of(truths, predicted), settings)
        for predicted in (read_predictions(folder / PREDICTIONS), *rivals.values())
    )
    records = {
        name: compare(ours, other, scoring["seed"])
        for name, other in zip(rivals, theirs, strict=True)
    }
    write_table(folder / "baselines.tsv", rival_rows(records), found["track"])
    table = Table("metric", "evaluation", *records, title=found["title"])
    for name, own in found["metrics"].items():
        if "@" in name:
            means = (one["metrics"][name]["per_spectrum"]["mean"] for one in records.values())
            table.add_row(name, *(f"{mean:.3f}" for mean in (own["per_spectrum"]["mean"], *means)))
    show(table)
    say(f"-> {folder / 'baselines.tsv'}")


if __name__ == "__main__":
    run(main)
