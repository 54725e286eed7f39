"""The numbers behind `--parts`, ``duallgd_cli/predict/parts.npz``, and how far to trust them.

    python recipes/parts.py DATA --run val/predictions.csv --truth val/truth.tsv

DATA holds massbank/massbank.tsv.xz and structures/structures.tsv.xz, of which rows of fold train
are read. The runs are of fold val. Calibration and figures are cross-validated by molecule.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import torch
import typer
from numpy.typing import NDArray

from duallgd_cli.checkpoint.format import load
from duallgd_cli.chem import identity
from duallgd_cli.chem.molecule import formula_of
from duallgd_cli.chem.parts import RING_SYSTEM, Part, catalogue, fatty_acyl, find
from duallgd_cli.evaluate.calibrate import logistic
from duallgd_cli.evaluate.intervals import reliability
from duallgd_cli.predict import parts as likely
from duallgd_cli.predict.journal import read
from duallgd_cli.ranking.ranking import RankingModel, rank, sigmoid
from duallgd_cli.results import FeatureResult, HypothesisResult, Results
from duallgd_cli.tables import table_rows

Array = NDArray[Any]
Name = tuple[str, str]  # kind and name of a part

# Structures without spectra that the prior learns from, of each source the first ones.
_SOURCES: Final = {
    "massspecgym": 20_000,
    "unpd": 14_000,
    "pubchem": 8_000,
    "chembl": 6_000,
    "chembl22": 6_000,
    "rdkitbench": 3_000,
    "hiv": 2_000,
}
_MEASURED: Final = 3.0  # weight of a molecule with spectra, next to 1 for one without
_ACYLS: Final = [fatty_acyl(carbons, double) for carbons in range(4, 27) for double in range(7)]
_HIDDEN, _EPOCHS, _BATCH, _RATE = 32, 20, 512, 3e-3
_NUMBERS: Final = (10, 30, 100)  # samples that a user may ask for instead of those drawn
_FOLDS: Final = 5
_NOVEL: Final = 0.4


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """The parts in question of one molecule, Q of them, and what one draw says of each.

    Attributes:
        molecule: First block of its InChIKey.
        whole: Whether these are all samples, not some of them.
        novel: Whether no training molecule is alike above `_NOVEL`.
        has: The truth, (Q,).
        signs: See `duallgd_cli.predict.parts.signs`, (Q, S).
        prior: From the formula alone, (Q,).
        share: Of the samples, (Q,).
        root: Share of the candidates, each by the root of its confidence, nothing fitted, (Q,).
        is_ring: Whether it is a ring system, (Q,).
    """

    molecule: str
    whole: bool
    novel: bool
    has: Array
    signs: Array
    prior: Array
    share: Array
    root: Array
    is_ring: Array


def rows_of(table: Path) -> Iterator[dict[str, str]]:
    """The training rows of a table."""
    return (row for row in table_rows(table) if row["fold"] == "train")


def known_molecules(data: Path) -> tuple[list[str], list[str]]:
    """SMILES of training molecules without spectra, and of those with."""
    left, without = dict(_SOURCES), []
    for row in rows_of(data / "structures" / "structures.tsv.xz"):
        if left.get(row["source"], 0):
            left[row["source"]] -= 1
            without.append(row["smiles"])
    measured = {
        row["inchikey"]: row["smiles"] for row in rows_of(data / "massbank" / "massbank.tsv.xz")
    }
    return without, list(measured.values())


def presence(smiles: Sequence[str], index: Mapping[Name, int], chunk: int = 2000) -> Array:
    """Which molecule has which part of an index, (molecules, parts)."""
    has = np.zeros((len(smiles), len(index)), bool)
    for start in range(0, len(smiles), chunk):
        parts, found = find(smiles[start : start + chunk])
        for part, row in zip(parts, found, strict=True):
            if (part.kind, part.name) in index:
                has[start : start + chunk, index[part.kind, part.name]] = row
    return has


def fit_prior(without: list[str], measured: list[str]) -> dict[str, Array]:
    """A small network from a formula to the share of its known structures that have each part."""
    smiles = [*without, *measured]
    names = [(row["kind"], row["name"]) for row in catalogue()]
    names += [(part.kind, part.name) for part in _ACYLS]
    has = presence(smiles, {name: column for column, name in enumerate(names)})
    formulas = [formula_of(identity.parse_smiles(text)) for text in smiles]
    x = torch.tensor(np.stack([likely.described(one) for one in formulas]), dtype=torch.float32)
    weight = torch.cat([torch.ones(len(without)), torch.full((len(measured),), _MEASURED)])
    return {"parts": np.array(names), **train(x, torch.tensor(has, dtype=torch.float32), weight)}


def train(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> dict[str, Array]:
    """Weights of the network by the names that ``parts.npz`` has for them.

    Args:
        x: Described formulas, (molecules, 60).
        y: Which has which part, (molecules, parts).
        weight: Of each molecule.
    """
    torch.manual_seed(0)
    rows = torch.nonzero(torch.rand(len(x)) >= 0.05)[:, 0]
    hidden, out = torch.nn.Linear(x.shape[1], _HIDDEN), torch.nn.Linear(_HIDDEN, y.shape[1])
    rate = torch.logit(((y * weight[:, None]).sum(0) + 0.5) / (weight.sum() + 1))
    out.bias.data = rate.clone()
    network = torch.nn.Sequential(hidden, torch.nn.ReLU(), out)
    optimiser = torch.optim.Adam(network.parameters(), _RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, _EPOCHS)
    entropy = torch.nn.functional.binary_cross_entropy_with_logits
    for _ in range(_EPOCHS):
        for batch in rows[torch.randperm(len(rows))].split(_BATCH):
            optimiser.zero_grad()
            loss = entropy(network(x[batch]), y[batch], reduction="none").sum(1)
            (loss * weight[batch]).mean().backward()
            optimiser.step()
        schedule.step()
    held = torch.ones(len(x), dtype=torch.bool)
    held[rows] = False
    with torch.no_grad():
        learnt, constant = (
            float(entropy(logits, y[held])) * y.shape[1]
            for logits in (network(x[held]), rate.expand(int(held.sum()), -1))
        )
    typer.echo(f"prior: log loss {learnt:.2f} a molecule, {constant:.2f} of constant rates")
    found = {"hidden": hidden.weight.T, "prior": out.weight.T}
    found |= {"hidden_bias": hidden.bias, "prior_bias": out.bias}
    return {name: tensor.detach().numpy().astype(np.float16) for name, tensor in found.items()}


def asked_of(
    run: Path, truths: Mapping[str, Mapping[str, str]], ranking: RankingModel, novel: set[str]
) -> Iterator[Asked]:
    """Every feature of a run with all its samples, then with fewer of them."""
    finished = read([run], partial=True)
    model = replace(ranking, steps=int(finished.header.settings["sampling"]["steps"]))
    for feature in finished.features():
        if any(result.structures for result in feature.hypotheses):
            row = truths[feature.spectra[0].spectrum_id]
            yield from _draws(feature, row, model, row["inchikey"][:14] in novel)


def _draws(
    feature: FeatureResult, row: Mapping[str, str], model: RankingModel, novel: bool
) -> Iterator[Asked]:
    results = feature.hypotheses
    smiles = [candidate.smiles for candidate in rank(results, model)[0]]
    parts, has = _questions(smiles, row["smiles"])
    is_ring = np.array([part.kind == RING_SYSTEM for part in parts])
    sampled = sum(result.sampled for result in results)
    generator = np.random.default_rng(feature.number)
    for number in (sampled, *(number for number in _NUMBERS if number < sampled)):
        candidates, _ = rank(part_of(results, number, generator), model)
        if not candidates:
            continue
        kept = has[:, [smiles.index(candidate.smiles) for candidate in candidates]]
        prior = likely.priors(parts, candidates)
        samples = np.array([candidate.samples for candidate in candidates], float)
        root = np.sqrt([candidate.confidence for candidate in candidates])
        there = (prior < likely.IMPLIED) & (kept.any(1) | has[:, -1] | (prior > 1e-3))
        yield Asked(
            molecule=row["inchikey"][:14],
            whole=number == sampled,
            novel=novel,
            has=has[there, -1],
            signs=likely.signs(parts, kept, prior, candidates, number)[there],
            prior=prior[there],
            share=(kept @ samples / samples.sum())[there],
            root=(kept @ root / root.sum())[there],
            is_ring=is_ring[there],
        )


def part_of(
    results: Results, samples: int, generator: np.random.Generator
) -> list[HypothesisResult]:
    """The results of a feature as if only so many of its samples had been drawn, chosen at random.

    The mean log-likelihood of a molecule's samples stays; molecules that no chosen sample became,
    even as a further reading, are gone. Every hypothesis keeps its share of the samples.
    """
    total = sum(result.sampled for result in results)
    return [
        _part_of_result(one, round(one.sampled * samples / total), generator) for one in results
    ]


def _part_of_result(
    result: HypothesisResult, samples: int, generator: np.random.Generator
) -> HypothesisResult:
    """Of a hypothesis: counts are multivariate hypergeometric."""
    sampled, structures = result.sampled, result.structures
    if samples >= sampled:
        return result
    counts = np.array([one.samples for one in structures] + [0], dtype=np.int64)
    counts[-1] = sampled - counts.sum()  # those that became no molecule
    chosen = generator.multivariate_hypergeometric(counts, samples)
    parts = []
    for one, count in zip(structures, chosen.tolist(), strict=False):
        repaired = generator.hypergeometric(one.repaired, one.samples - one.repaired, count)
        if count:
            parts.append(one._replace(samples=count, repaired=int(repaired)))
    return replace(result, structures=tuple(parts), sampled=samples)


def _questions(smiles: list[str], truth: str) -> tuple[list[Part], Array]:
    """All parts of the catalogue and those found; who has them, (parts, candidates and truth)."""
    parts, has = find([*smiles, truth])
    known = {(part.kind, part.name) for part in parts}
    others = [
        Part(row["kind"], row["name"], row["smarts"])
        for row in catalogue()
        if (row["kind"], row["name"]) not in known
    ]
    return parts + others, np.concatenate([has, np.zeros((len(others), has.shape[1]), bool)])


def cross_validated(asked: list[Asked]) -> list[Array]:
    """Probabilities of every draw's parts from a fit on the other molecules."""
    digests = (blake2b(one.molecule.encode()).digest() for one in asked)
    fold = [int.from_bytes(digest[:8]) % _FOLDS for digest in digests]
    weights = [
        fit([one for one, own in zip(asked, fold, strict=True) if own != number])
        for number in range(_FOLDS)
    ]
    return [sigmoid(one.signs @ weights[own]) for one, own in zip(asked, fold, strict=True)]


def fit(asked: list[Asked]) -> Array:
    """Weights of the signs; parts that no sample has and no formula suggests take no part."""
    kept = np.concatenate([(one.share > 0) | (one.prior > 0.01) for one in asked])
    signs, has = (
        np.concatenate([getattr(one, name) for one in asked]) for name in ("signs", "has")
    )
    return logistic(signs[kept], has[kept])


def report(asked: list[Asked], probability: list[Array], title: str) -> None:
    """Print how good probabilities are, beside shares of the samples and of the candidates."""
    has, ring, share, root, prior = (
        np.concatenate([getattr(one, name) for one in asked])
        for name in ("has", "is_ring", "share", "root", "prior")
    )
    ours = np.concatenate(probability)
    measures = {"parts": ours, "samples": share, "root of confidence": root, "formula": prior}
    molecules = len({one.molecule for one in asked})
    typer.echo(f"\n{title}: {molecules} molecules, {has.size} questions, {has.sum()} parts")
    for kind, kept in (("all parts", np.full(ring.shape, True)), ("ring systems", ring)):
        if not has[kept].any():
            continue
        for name, value in measures.items():
            p, y = np.clip(value[kept], 0.001, 0.999), has[kept]
            loss = -np.log(np.where(y, p, 1 - p)).mean()
            whole, some = (reliability(p[k], y[k]).expected_error for k in (p > 0, p >= 0.05))
            typer.echo(
                f"  {kind}, {name}: area under precision-recall {average_precision(p, y):.3f}, "
                f"log loss {loss:.4f}, calibration error {whole:.4f} ({some:.4f} from 0.05)"
            )
        for name, least in product(("parts", "root of confidence"), (0.95, 0.9, 0.8, 0.7, 0.5)):
            stated = kept & (measures[name] >= least)
            if not stated.any():
                continue
            typer.echo(
                f"    {name} from {least}: {has[stated].mean():.3f} of {stated.sum()} right, "
                f"{has[stated].sum() / has[kept].sum():.3f} of the true ones"
            )


def average_precision(probability: Array, has: Array) -> float:
    """Area under the precision-recall curve."""
    right = has[np.argsort(-probability, kind="stable")]
    precision = np.cumsum(right) / np.arange(1, len(right) + 1)
    return float(precision[right].mean())


def distant(truths: Mapping[str, Mapping[str, str]], measured: list[str]) -> set[str]:
    """Molecules without a training molecule of measured spectra above the similarity `_NOVEL`."""
    asked = {row["inchikey"][:14]: row["smiles"] for row in truths.values()}
    ours, known = (map(identity.parse_smiles, smiles) for smiles in (asked.values(), measured))
    nearest = identity.most_alike(ours, known).tolist()
    return {name for name, most in zip(asked, nearest, strict=True) if most <= _NOVEL}


def main(
    data: Annotated[Path, typer.Argument(help="Folder of the two tables.")],
    run: Annotated[list[Path], typer.Option(help="Output of a run on fold val; repeat.")],
    truth: Annotated[Path, typer.Option(help="Table with identifier, smiles and inchikey.")],
    weights: Annotated[Path, typer.Option(help="Whose ranking counts.")] = Path(
        "weights/duallgd.safetensors"
    ),
    keep_prior: Annotated[bool, typer.Option("--keep-prior", help="Calibrate alone.")] = False,
    output: Annotated[Path, typer.Option("-o", "--output")] = Path("duallgd_cli/predict/parts.npz"),
) -> None:
    """Fit, print and write."""
    without, measured = known_molecules(data)
    values = dict(np.load(output)) if keep_prior else fit_prior(without, measured)
    np.savez_compressed(output, **values)  # priors are read from there
    truths = {row["identifier"]: row for row in table_rows(truth)}
    ranking, novel = RankingModel.stored(load(weights).ranking), distant(truths, measured)
    asked = [one for path in run for one in asked_of(path, truths, ranking, novel)]
    pairs = list(zip(asked, cross_validated(asked), strict=True))
    for title, chosen in (
        ("fold val, all samples", [pair for pair in pairs if pair[0].whole]),
        ("the same, novel molecules", [pair for pair in pairs if pair[0].whole and pair[0].novel]),
        ("the same, others", [pair for pair in pairs if pair[0].whole and not pair[0].novel]),
        ("fold val, fewer samples", [pair for pair in pairs if not pair[0].whole]),
    ):
        if chosen:
            report([one for one, _ in chosen], [probability for _, probability in chosen], title)
    np.savez_compressed(output, **{**values, "weights": fit(asked)})


if __name__ == "__main__":
    typer.run(main)
