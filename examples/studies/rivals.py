"""A finished evaluation beside others of the same spectra, and beside two baselines.

    duallgd evaluate --benchmark massbank.tsv --fold test -o ours
    duallgd evaluate --benchmark massbank.tsv --fold test --weights other.safetensors -o other
    python examples/studies/rivals.py ours --other other --benchmark massbank.tsv

Differences are paired, ours minus theirs, with intervals for spectra clustered by molecule: joined
Wilson intervals for shares of right answers, else the bootstrap's. Other evaluations are compared
whatever their settings. Two baselines without a network are scored where the benchmark is named:

Random connected graphs of the formula: what a candidate list is worth that ignores the spectrum. N
heavy atoms, M = N (N - 1) / 2 pairs in row-major order of the strict upper triangle.

The training molecules whose spectra look most alike: their accuracy is zero wherever training and
test molecules are kept apart; their similarity is what memory alone is worth. L training spectra.

Settings, seed and ranking are those of the first evaluation. ``rivals.tsv`` in its folder has a row
a rival, part of the test set and metric; random graphs lie beside it as ``random_graphs.csv``.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
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
from duallgd_cli.evaluate import EvaluateSettings, Predicted, Scores, Truth, score
from duallgd_cli.evaluate.groups import parts
from duallgd_cli.evaluate.intervals import Estimate, means, share
from duallgd_cli.evaluate.metrics import is_share
from duallgd_cli.evaluate.report import RESULTS, ranked_of
from duallgd_cli.evaluate.run import PREDICTIONS, SPECTRA, TRUTH
from duallgd_cli.evaluate.suites import Row, Suite, find
from duallgd_cli.evaluate.tables import (
    id_column,
    molecule,
    read_predictions,
    truths_of,
    write_table,
)
from duallgd_cli.guide import Known
from duallgd_cli.predict.journal import read as read_journals
from duallgd_cli.predict.model import Generated, LoadedModel
from duallgd_cli.predict.run import predict
from duallgd_cli.predict.settings import PredictRequest, PredictSettings
from duallgd_cli.ranking.one_list import Ranking
from duallgd_cli.ranking.ranking import RankingModel
from duallgd_cli.spectra.types import AnnotatedSpectrum
from duallgd_cli.tables import table_rows

if TYPE_CHECKING:
    from scipy.sparse import csr_array

RANDOM: Final = "random formula-exact graphs"
ANALOGUE: Final = "nearest training analogue"
_ENDS: Final = ("mean", "low", "high")
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


def compare(ours: Scores, theirs: Scores, seed: int) -> dict[str, Any]:
    """A rival's numbers and the paired differences (ours minus theirs) with clustered intervals.

    Of all spectra, and of each part of the test set.

    Args:
        ours: Scores of the spectra.
        theirs: Scores of the same spectra.
        seed: Of the bootstrap.
    """

    def record(mine: Scores, other: Scores) -> dict[str, Any]:
        names = [name for name in other.columns if "@" in name]
        apart = differences(mine, other, names, seed)
        metrics = other.summary(seed)
        return {
            "metrics": {name: metrics[name] for name in names},
            "ours_minus_theirs": {name: asdict(found) for name, found in apart.items()},
        }

    return {
        **record(ours, theirs),
        "parts": {
            name: record(ours.subset(keep), theirs.subset(keep))
            for name, keep in parts(ours.truths).items()
        },
    }


def differences(
    ours: Scores, theirs: Scores, names: Sequence[str], seed: int
) -> dict[str, Estimate]:
    """Mean differences of the scores of the same spectra by two methods.

    Args:
        ours: Of one method.
        theirs: Of the other, the same spectra in the same order.
        names: Columns to compare.
        seed: Of the bootstrap, which resamples molecules.
    """
    values = np.column_stack([ours.columns[name] - theirs.columns[name] for name in names])
    found = dict(zip(names, means(values, ours.molecule, seed=seed), strict=True))
    return found | {
        name: share_difference(ours.columns[name], theirs.columns[name], ours.molecule)
        for name in filter(is_share, names)
    }


def share_difference(
    right: NDArray[np.float64], other: NDArray[np.float64], clusters: Sequence[str]
) -> Estimate:
    """Difference of two shares of the same spectra, with Newcombe's interval for paired ones.

    It joins the two Wilson intervals by the correlation of the answers (Newcombe, Statistics in
    Medicine 17, 2635, 1998).

    Args:
        right: 1 for each spectrum that the first method has right, else 0, float64 (B,).
        other: The same of the second.
        clusters: Molecule of each spectrum, B names.
    """
    first, second = share(right, clusters), share(other, clusters)
    varies = right.size > 1 and right.std() > 0 and other.std() > 0
    correlation = float(np.corrcoef(right, other)[0, 1]) if varies else 0.0

    def reach(one: float, two: float) -> float:
        return float(np.sqrt(max(0.0, one**2 + two**2 - 2 * correlation * one * two)))

    difference = float((right - other).mean()) if right.size else float("nan")
    return Estimate(
        difference,
        difference - reach(first.mean - first.low, second.high - second.mean),
        difference + reach(first.high - first.mean, second.mean - second.low),
    )


def rival_rows(rivals: Mapping[str, Any]) -> Iterator[list[object]]:
    """One row a rival, part of the test set and metric: its mean over spectra, and ours minus it.

    Args:
        rivals: What `compare` says of each, by name.
    """
    ends = [f"{prefix}{end}" for prefix in ("", "ours_minus_theirs_") for end in _ENDS]
    yield ["rival", "part", "metric", *ends]
    for rival, record in rivals.items():
        for part, numbers in ({"all": record} | record["parts"]).items():
            for name, estimate in numbers["metrics"].items():
                estimates = (estimate, numbers["ours_minus_theirs"][name])
                yield [rival, part, name, *(e[end] for e in estimates for end in _ENDS)]


def predicted_by(
    model: LoadedModel, folder: Path, found: Mapping[str, Any], name: str
) -> dict[str, Predicted]:
    """What another model makes of the spectra of an evaluation; what is finished of it is kept.

    Args:
        model: Predicts with the settings and the seed of the evaluation.
        folder: Of the evaluation.
        found: Contents of its results.json.
        name: Of the file of predictions in that folder.

    Raises:
        UsageError: It took formulas from a table.
    """
    given = dict(found["prediction"]["settings"])
    if given.pop("formulas"):
        raise UsageError("the evaluation took formulas from a table; make one that does not")
    output = folder / name
    request = PredictRequest(
        inputs=(str(folder / SPECTRA),),
        output=str(output),
        settings=parse(PredictSettings, given),
        resume=output.with_name(f"{output.name}.journal.jsonl").exists(),
    )
    predict(request, model)
    return read_predictions(output)


def main(
    folder: Annotated[Path, typer.Argument(help="Folder of duallgd evaluate.")],
    other: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of another evaluation of the same spectra; may be repeated."),
    ] = None,
    benchmark: Annotated[
        str | None, typer.Option(help="That of the evaluation, for the baselines: fold train.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with the benchmark's files.")
    ] = None,
) -> None:
    """Compare a finished evaluation with others, and with two baselines."""
    found: dict[str, Any] = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
    truths = truths_of(table_rows(folder / TRUTH, required=("smiles",)), "", TRUTH)
    scoring = found["scoring"]
    settings = EvaluateSettings(
        top_k=tuple(scoring["top_k"]),
        mces=any(name.startswith("mces@") for name in found["metrics"]),
        mces_limit=scoring["mces_limit_s"],
    )
    rivals: dict[str, Mapping[str, Predicted]] = {
        str(one): read_predictions(one / PREDICTIONS) for one in other or ()
    }
    if benchmark is not None:
        predictions = folder / PREDICTIONS
        header = read_journals([predictions]).header
        ranking = Ranking.recorded(header.model, header.settings, predictions).generated
        graphs = random_graphs(ranking)
        rivals[RANDOM] = predicted_by(graphs, folder, found, "random_graphs.csv")
        most = max(settings.top_k)
        analogues = analogue_predictions(find(benchmark, data_dir), truths, most)
        rivals |= {ANALOGUE: analogues} if analogues else {}
    if not rivals:
        raise UsageError("nothing to compare with; give --other FOLDER, or --benchmark")
    ours, *theirs = (
        score(truths, ranked_of(truths, predicted), settings)
        for predicted in (read_predictions(folder / PREDICTIONS), *rivals.values())
    )
    records = {
        name: compare(ours, scores, scoring["seed"])
        for name, scores in zip(rivals, theirs, strict=True)
    }
    write_table(folder / "rivals.tsv", rival_rows(records), found["track"])
    table = Table("metric", "this evaluation", *records, title=found["title"])
    for name, own in found["metrics"].items():
        if "@" in name:
            mean = own["mean"]
            table.add_row(name, f"{mean:.3f}", *cells(name, records.values()))
    show(table, "In brackets: this evaluation minus the other, with its 95 % interval.")
    say(f"-> {folder / 'rivals.tsv'}")


def cells(name: str, records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The mean of a metric for each rival, and the difference to it."""
    for record in records:
        mean = record["metrics"][name]["mean"]
        apart = (record["ours_minus_theirs"][name][end] for end in _ENDS)
        yield "{:.3f} [{:.3f} ({:.3f} to {:.3f})]".format(mean, *apart)


if __name__ == "__main__":
    run(main)
