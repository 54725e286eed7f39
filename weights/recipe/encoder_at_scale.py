"""An encoder for minutes on a GPU, on spectra that processes beside it simulate as it learns.

A GPU trains on more spectra a second than are simulated in that time, and batches made one spectrum
at a time would keep it waiting. So all that is drawn goes to the GPU and stays there: batches are
chosen, padded and made noisy where they are needed, and a spectrum comes back a few times. First
simulated spectra alone, at a constant rate; then measured ones among them, while the rate falls.

    python weights/recipe/encoder_at_scale.py prepared/measured prepared/alike -o runs/encoder
      --simulator packs/simulator.safetensors --minutes 8

What is drawn when depends on the machine, so no run repeats another to the digit.

Letters: B spectra, K peak rows, E examples, P peak rows of them all, F fingerprint bits.
"""

import json
import math
import multiprocessing
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from duallgd_cli.checkpoint.format import Checkpoint, read_tensors, save, write_tensors
from duallgd_cli.chem.elements import FINGERPRINT_BITS, N_ELEMENTS
from duallgd_cli.data.fragmentation import N_INPUTS, SHIFTS, Ion
from duallgd_cli.data.peaks import (
    ENERGY_DROP,
    INSTRUMENT_DROP,
    JITTER,
    NOISE_PPM,
    PeakRows,
    from_annotated,
    from_prepared,
    prepared_batch,
)
from duallgd_cli.data.prepared import (
    Molecules,
    PreparedSpectra,
    load_molecules,
    load_spectra,
    offsets,
)
from duallgd_cli.data.simulation import FragmentModel, Simulator
from duallgd_cli.errors import DuallgdError, UnreadableError
from duallgd_cli.model.encoder import FormulaTransformer, PeakBatch
from duallgd_cli.model.settings import EncoderSettings, ModelSettings
from duallgd_cli.runtime import Runtime, available_cores
from duallgd_cli.train.encoder import (
    SpectrumSampler,
    fingerprint_figures,
    true_bits,
    validation_spectra,
)
from duallgd_cli.train.loop import optimisers, update_average
from duallgd_cli.train.settings import OptimiserSettings
from duallgd_cli.train.simulator import fit_simulator, simulated_rows

_WEIGHT_DECAY, _EMA, _WARMUP = 0.05, 0.999, 300
_ROUNDS: Final = 30  # measured examples of each molecule; some are of several spectra
_CHUNK: Final = 1_000  # examples that a process sends at once
_AHEAD: Final = 100
_ROWS: Final = 27  # peak rows of an example that memory is taken for
_GROUPS: Final = 4  # parts of a batch, of spectra of like numbers of rows
_BITS_SET: Final = 44.0  # of a molecule, about: what the loss is divided by
_LOOK_EVERY_S: Final = 20.0
_LEAST_RATE: Final = 0.01
_PEAK_DROPOUT: Final = 0.15  # largest share of rows that are dropped


def simulator_of(path: Path, spectra: PreparedSpectra) -> Simulator:
    """The fragment model in a file, fitted where there is none, and the ions of fold train."""
    if not path.is_file():
        fitted, record = fit_simulator(spectra)
        write_tensors(path, fitted.model.state_dict(), {"record": json.dumps(record)})
    tensors, _ = read_tensors(path)
    model = FragmentModel(N_INPUTS, len(SHIFTS), len(tensors["hidden.0.bias"]))
    model.load_state_dict(tensors)
    return Simulator(model, *measured_ions(spectra))


def measured_ions(spectra: PreparedSpectra) -> tuple[list[Ion], NDArray[np.float64]]:
    """Ions and energies of fold train that can be simulated, and weights, molecules alike."""
    rows = simulated_rows(spectra, "train")
    columns = (spectra.adduct[rows], spectra.instrument[rows], spectra.energy_ev[rows])
    ions = [Ion(*one) for one in zip(*(column.tolist() for column in columns), strict=True)]
    molecule = spectra.molecule[rows]
    return ions, 1 / np.bincount(molecule)[molecule]


Arrays = dict[str, NDArray[Any]]


def packed(examples: Sequence[PeakRows], molecules: Sequence[int]) -> Arrays:
    """Arrays of some spectra and the rows of their molecules."""
    return {
        "subformula": np.concatenate([one.subformula for one in examples]).astype(np.uint8),
        "numbers": np.concatenate([one.numbers for one in examples]),
        "carrier": np.concatenate([one.carrier for one in examples]).astype(np.uint8),
        "n_rows": np.array([len(one.carrier) for one in examples]),
        "parent": np.stack([one.parent for one in examples]).astype(np.uint8),
        "adduct": np.array([one.adduct for one in examples], np.uint8),
        "instrument": np.array([one.instrument for one in examples], np.uint8),
        "molecule": np.array(molecules, np.int64),
    }


def simulate(
    folder: Path, measured: Path, simulator: Path, seed: tuple[int, int], out: "Queue[Arrays]"
) -> None:
    """Put chunks of simulated spectra into a queue, every structure in turn, for ever."""
    torch.set_num_threads(1)
    generator = np.random.default_rng(seed)
    own = simulator_of(simulator, load_spectra(measured))
    molecules = load_molecules(folder)
    able = molecules.in_folds("train") & (np.diff(molecules.bond_offset) > 0)
    while True:
        rows = generator.permutation(np.flatnonzero(able))
        for part in np.array_split(rows, -(-len(rows) // _CHUNK)):
            drawn = (own.annotated(molecules, int(row), generator) for row in part)
            out.put(packed([from_annotated(one) for one in drawn], part.tolist()))


def measured_examples(spectra: PreparedSpectra, seed: int) -> Iterator[Arrays]:
    """Spectra of every molecule of fold train, alone or merged, a chunk for each round."""
    sampler, generator = SpectrumSampler(spectra), np.random.default_rng(seed)
    for _ in range(_ROUNDS):
        drawn = [sampler.draw_from(i, generator) for i in range(len(sampler.molecules))]
        rows = [from_prepared(spectra, numbers) for _, numbers in drawn]
        yield packed(rows, [molecule for molecule, _ in drawn])


@dataclass(eq=False)
class Store:
    """Examples on a device, each a number of peak rows of it.

    Attributes:
        bits: Set bits of the molecules, one after the other, int16.
        bit_offset: Where those of each begin, int64.
        arrays: As `packed` gives them, of E examples or P rows, most of them not yet filled.
        n_rows: Of each example, on the CPU, where batches are planned.
        n_examples: That are there.
    """

    bits: Tensor
    bit_offset: Tensor
    arrays: dict[str, Tensor]
    n_rows: NDArray[np.int64]
    n_examples: int = 0
    _start: Tensor = field(init=False)
    _filled: int = 0

    def __post_init__(self) -> None:
        self._start = torch.zeros_like(self.arrays["molecule"])

    @classmethod
    def of(
        cls, molecules: Molecules, n_examples: int, n_rows: int, device: torch.device
    ) -> "Store":
        """Room for so many examples of some molecules, with so many peak rows."""

        def room(*shape: int, dtype: torch.dtype = torch.uint8) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        arrays = {
            "subformula": room(n_rows, N_ELEMENTS),
            "numbers": room(n_rows, 5, dtype=torch.float32),
            "carrier": room(n_rows),
            "parent": room(n_examples, N_ELEMENTS),
            "adduct": room(n_examples),
            "instrument": room(n_examples),
            "molecule": room(n_examples, dtype=torch.int64),
        }
        bits = torch.from_numpy(np.asarray(molecules.bits).astype(np.int16)).to(device)
        offset = torch.from_numpy(np.array(molecules.bit_offset)).to(device)
        return cls(bits, offset, arrays, np.zeros(n_examples, np.int64))

    def add(self, chunk: Arrays) -> bool:
        """Take examples in; False where there is no room left for them."""
        size, n_rows = len(chunk["n_rows"]), len(chunk["carrier"])
        examples = slice(self.n_examples, self.n_examples + size)
        rows = slice(self._filled, self._filled + n_rows)
        if examples.stop > len(self.n_rows) or rows.stop > len(self.arrays["carrier"]):
            return False
        for name, into in self.arrays.items():
            by_row = name in ("subformula", "numbers", "carrier")
            into[rows if by_row else examples] = torch.from_numpy(chunk[name]).to(into.device)
        start = torch.from_numpy(self._filled + offsets(chunk["n_rows"])[:-1])
        self._start[examples] = start.to(self._start.device)
        self.n_rows[examples] = chunk["n_rows"]
        self._filled = rows.stop
        self.n_examples = examples.stop  # last: another thread draws from what is there
        return True

    def batches(
        self, size: int, generator: np.random.Generator, noise: bool = True
    ) -> Iterator[tuple[PeakBatch, Tensor]]:
        """Examples at random, by their numbers of rows in parts, each with its true bits (B, F)."""
        drawn = generator.integers(0, self.n_examples, size)
        by_length = drawn[np.argsort(self.n_rows[drawn], kind="stable")]
        for own in np.array_split(by_length, min(_GROUPS, size)):
            n_rows = torch.from_numpy(self.n_rows[own]).to(self._start.device)
            index = torch.from_numpy(own).to(self._start.device)
            peaks = self._peaks(index, n_rows, max(1, int(self.n_rows[own].max())))
            yield noisy(peaks) if noise else peaks, self._truth(self.arrays["molecule"][index])

    def _peaks(self, index: Tensor, n_rows: Tensor, most: int) -> PeakBatch:
        place = torch.arange(most, device=index.device)
        mask = place < n_rows[:, None]
        rows = (self._start[index][:, None] + place).clamp_max(self._filled - 1)
        a = self.arrays
        intensity, ppm, mz, share, energy = a["numbers"][rows].unbind(-1)
        return PeakBatch(
            a["subformula"][rows].float(), intensity.where(mask, 0.0), ppm, mz, share,
            a["carrier"][rows].long(), energy, mask, a["parent"][index].float(),
            a["adduct"][index].long(), a["instrument"][index].long(),
        )  # fmt: skip

    def _truth(self, molecule: Tensor) -> Tensor:
        start, stop = self.bit_offset[molecule], self.bit_offset[molecule + 1]
        place = torch.arange(int((stop - start).max()), device=molecule.device)
        bits = self.bits[(start[:, None] + place).clamp_max(len(self.bits) - 1)].long()
        bits = bits.where(place < (stop - start)[:, None], FINGERPRINT_BITS)
        truth = torch.zeros(len(molecule), FINGERPRINT_BITS + 1, device=molecule.device)
        return truth.scatter_(1, bits, 1.0)[:, :-1]


def noisy(peaks: PeakBatch) -> PeakBatch:
    """Spectra made to look like those of a lab's own run, as `data.peaks.augment` does one."""
    mask, like = peaks.mask, peaks.intensity
    share = torch.rand_like(like[:, :1]) * _PEAK_DROPOUT
    kept = mask & (torch.rand_like(like) >= share)
    intensity = (peaks.intensity * torch.exp(JITTER * torch.randn_like(like))).where(kept, 0.0)
    intensity = intensity / intensity.amax(1, keepdim=True).clamp_min(1e-6)
    ppm = peaks.ppm + NOISE_PPM * (torch.randn_like(like) + torch.randn_like(like[:, :1]))
    unknown = torch.rand_like(like[:, :1]) < ENERGY_DROP
    nameless = torch.rand_like(like[:, 0]) < INSTRUMENT_DROP
    return PeakBatch(
        peaks.subformula, intensity, ppm, peaks.mz, peaks.share, peaks.carrier,
        peaks.energy_ev.masked_fill(unknown, math.nan), kept, peaks.parent, peaks.adduct,
        peaks.instrument.masked_fill(nameless, 0),
    )  # fmt: skip


@dataclass(eq=False)
class Run:
    """What is trained.

    Attributes:
        model: In training mode, on the device.
        averaged: Its moving average.
        simulated: Examples.
        measured: Examples.
        runtime: Device and precision.
        seed: Random seed.
    """

    model: FormulaTransformer
    averaged: FormulaTransformer
    simulated: Store
    measured: Store
    runtime: Runtime
    seed: int

    def __post_init__(self) -> None:
        settings = OptimiserSettings(weight_decay=_WEIGHT_DECAY)
        self.optimisers = optimisers(self.model, settings)
        self.generator = np.random.default_rng(self.seed)
        self.steps = 0

    def step(self, rate: float, n_simulated: int, n_measured: int) -> Tensor:
        """Take one step; the loss for each set bit."""
        total = torch.zeros((), device=self.runtime.device)
        for store, size in ((self.simulated, n_simulated), (self.measured, n_measured)):
            for peaks, truth in store.batches(size, self.generator) if size else ():
                with self.runtime.autocast():
                    logits = self.model(peaks)
                loss = binary_cross_entropy_with_logits(logits.float(), truth, reduction="sum")
                loss = loss / (_BITS_SET * (n_simulated + n_measured))
                loss.backward()
                total += loss.detach()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate * min(1.0, (self.steps + 1) / _WARMUP)
            optimiser.step()
            optimiser.zero_grad()
        update_average(self.averaged, self.model, _EMA, self.steps)
        self.steps += 1
        return total


@torch.no_grad()
def looked_at(encoder: FormulaTransformer, spectra: PreparedSpectra) -> dict[str, float]:
    """Cross entropy and Tanimoto on single spectra of fold val; nothing where there are none."""
    rows = validation_spectra(spectra)
    if not len(rows):
        return {}
    device = next(encoder.parameters()).device
    parts = np.array_split(rows, -(-len(rows) // 250))
    logits = torch.cat([encoder(prepared_batch(spectra, part).to(device)) for part in parts])
    return fingerprint_figures(torch.sigmoid(logits.float()).cpu(), true_bits(spectra, rows))


def new_encoder(sizes: EncoderSettings, molecules: Molecules) -> FormulaTransformer:
    """An encoder that begins with how often each bit is set."""
    encoder = FormulaTransformer(sizes)
    often = np.bincount(molecules.bits, minlength=FINGERPRINT_BITS) / len(molecules)
    share = torch.from_numpy(often).clamp(1e-4, 1 - 1e-4)
    with torch.no_grad():
        encoder.fingerprint.bias.copy_(torch.logit(share))
    return encoder


@dataclass(frozen=True)
class Plan:
    """What a run does when.

    Attributes:
        seconds: From the first step to the last.
        settling: Share of these at the end, while the rate falls.
        measured: Share of measured spectra in that time.
        batch: Spectra of a step.
        rate: Learning rate at its peak.
    """

    seconds: float
    settling: float
    measured: float
    batch: int
    rate: float

    def at(self, elapsed_s: float) -> tuple[float, int, int]:
        """Rate, and how many simulated and measured spectra a step has."""
        fallen = max(0.0, elapsed_s / self.seconds - 1 + self.settling) / self.settling
        n_measured = round(self.batch * self.measured) if fallen else 0
        rate = self.rate * max(_LEAST_RATE, 0.5 * (1 + math.cos(math.pi * min(1.0, fallen))))
        return rate, self.batch - n_measured, n_measured


def train(run: Run, plan: Plan, spectra: PreparedSpectra, log: Path) -> dict[str, Any]:
    """Train as planned and write figures as it goes; those of the end."""
    begun = looked = time.monotonic()
    with log.open("w") as lines:
        while (elapsed := time.monotonic() - begun) < plan.seconds:
            loss = run.step(*plan.at(elapsed))
            if run.steps > 1 and time.monotonic() - looked < _LOOK_EVERY_S:
                continue
            looked = time.monotonic()
            row = {"step": run.steps, "s": round(looked - begun, 1), "loss": float(loss)}
            row |= {"spectra": run.steps * plan.batch, "simulated": run.simulated.n_examples}
            row |= looked_at(run.averaged, spectra)
            typer.echo(json.dumps(row))
            lines.write(json.dumps(row) + "\n")
            lines.flush()
    seen = {"spectra": run.steps * plan.batch, "simulated": run.simulated.n_examples}
    return seen | looked_at(run.averaged, spectra)


@contextmanager
def simulated_by(
    processes: int, about: tuple[Path, Path, Path], seed: int, store: Store, first: int
) -> Iterator[None]:
    """Fill a store from other processes in the block, which begins when the first spectra came."""
    context = multiprocessing.get_context("spawn")
    chunks = context.Queue(_AHEAD)
    arguments = [(*about, (seed, number), chunks) for number in range(processes)]
    started = [context.Process(target=simulate, args=one, daemon=True) for one in arguments]

    def fill() -> None:
        while store.add(chunks.get()):
            pass

    for process in started:
        process.start()
    threading.Thread(target=fill, daemon=True).start()
    try:
        while store.n_examples < first:
            if not any(process.is_alive() for process in started):
                raise UnreadableError("no process simulates any more; the first lines say why")
            time.sleep(0.1)
        yield
    finally:
        for process in started:
            process.kill()


def main(
    measured: Annotated[Path, typer.Argument(help="Folder made by 'duallgd data spectra'.")],
    structures: Annotated[Path, typer.Argument(help="Folder of structures to simulate.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for encoder and figures.")],
    simulator: Annotated[Path, typer.Option(help="Fragment model; fitted if there is none.")],
    minutes: Annotated[float, typer.Option(min=0.01, help="From the first step to the last.")] = 8,
    settling: Annotated[
        float, typer.Option(min=0.01, max=1, help="Share of these while the rate falls.")
    ] = 0.35,
    share: Annotated[
        float, typer.Option(min=0, max=1, help="Of measured spectra in that time.")
    ] = 0.35,
    batch: Annotated[int, typer.Option(min=2, help="Spectra of a step.")] = 16_384,
    rate: Annotated[float, typer.Option(help="Learning rate at its peak.")] = 2e-3,
    width: Annotated[int, typer.Option(help="Channels of a peak.")] = 256,
    layers: Annotated[int, typer.Option(help="Transformer layers.")] = 8,
    summary: Annotated[int, typer.Option(help="Channels that all bits are read from.")] = 320,
    most: Annotated[int, typer.Option(help="Simulated spectra to keep at most.")] = 6_000_000,
    first: Annotated[int, typer.Option(help="Simulated spectra to begin with.")] = 40_000,
    workers: Annotated[int | None, typer.Option(help="Processes that simulate.")] = None,
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda",
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
) -> None:
    """Train an encoder; writes OUT/encoder.safetensors and OUT/metrics.jsonl."""
    torch.manual_seed(seed)
    runtime = Runtime.resolve(device, "bfloat16", "off")
    spectra, known = load_spectra(measured), load_molecules(structures)
    simulator_of(simulator, spectra)  # before others look for it
    simulated = Store.of(known, most, most * _ROWS, runtime.device)
    chunks = list(measured_examples(spectra, seed))
    n_examples, n_rows = (sum(len(one[name]) for one in chunks) for name in ("n_rows", "carrier"))
    beside = Store.of(spectra.molecules, n_examples, n_rows, runtime.device)
    for chunk in chunks:
        beside.add(chunk)
    processes = workers or max(1, available_cores() - 4)
    sizes = EncoderSettings(width=width, layers=layers, summary=summary, dropout=0.1)
    model = new_encoder(sizes, known).to(runtime.device)
    averaged = FormulaTransformer(sizes).to(runtime.device).eval()
    averaged.load_state_dict(model.state_dict())
    out.mkdir(parents=True, exist_ok=True)
    plan = Plan(60 * minutes, settling, share, batch, rate)
    run = Run(model, averaged, simulated, beside, runtime, seed)
    with simulated_by(processes, (structures, measured, simulator), seed, simulated, first):
        figures = train(run, plan, spectra, out / "metrics.jsonl")
    record = {"at_scale": figures, "seed": seed}
    typer.echo(json.dumps(record))
    tensors = {f"encoder.{name}": tensor for name, tensor in averaged.state_dict().items()}
    made = Checkpoint(ModelSettings(encoder=sizes), tensors, record)
    save(out / "encoder.safetensors", made, torch.float16)


if __name__ == "__main__":
    try:
        typer.run(main)
    except DuallgdError as error:
        raise SystemExit(f"error: {error}") from None
