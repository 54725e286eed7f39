"""An encoder for minutes on a GPU, on spectra that processes beside it simulate as it learns.

A GPU trains on more spectra a second than are simulated in that time, and batches made one spectrum
at a time would keep it waiting. So all that is drawn goes to the GPU and stays there: batches are
chosen and made noisy where they are needed, without padding, and a spectrum comes back many times,
simulated ones each time with other peaks left out. First hardly any measured ones, at a constant
rate; then more of them, while the rate falls: for each share of them another end, from the same
state.

    python weights/recipe/encoder_at_scale.py prepared/measured prepared/alike -o runs/encoder
      --simulator packs/simulator.safetensors --minutes 8

What is drawn when depends on the machine, so no run repeats another to the digit.

Letters: B spectra, K peak rows, E examples, P peak rows of them all, F fingerprint bits.
"""

import json
import math
import multiprocessing
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import torch
import typer
from device_examples import Arrays, Store, packed
from numpy.typing import NDArray
from packed_encoder import Layer, packed_layer, packed_logits
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from duallgd_cli.checkpoint.format import Checkpoint, load, read_tensors, save, write_tensors
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.data.fragmentation import N_INPUTS, SHIFTS, Ion
from duallgd_cli.data.peaks import (
    from_annotated,
    from_prepared,
    prepared_batch,
)
from duallgd_cli.data.prepared import (
    Molecules,
    PreparedSpectra,
    load_molecules,
    load_spectra,
)
from duallgd_cli.data.simulation import FragmentModel, Simulator
from duallgd_cli.errors import DuallgdError, UnreadableError
from duallgd_cli.model.encoder import FormulaTransformer
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

ENCODER: Final = "encoder.safetensors"
_WEIGHT_DECAY, _EMA, _WARMUP = 0.05, 0.995, 300
_ROUNDS: Final = 30  # measured examples of each molecule; some are of several spectra
_CHUNK: Final = 1_000  # examples that a process sends at once
_AHEAD: Final = 100
_ROWS: Final = 27  # peak rows of an example that memory is taken for
_BITS_SET: Final = 44.0  # of a molecule, about: what the loss is divided by
_LOOK_EVERY_S: Final = 20.0
_LEAST_RATE: Final = 0.01
# Largest share of rows that are dropped. Simulated spectra come back more often, and are never seen
# whole again; what a threshold leaves of a measured one varies as much.
_PEAK_DROPOUT, _SIMULATED_DROPOUT = 0.15, 0.4


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


def measured_store(spectra: PreparedSpectra, seed: int, device: torch.device) -> "Store":
    """All measured examples, on a device."""
    chunks = list(measured_examples(spectra, seed))
    n_examples, n_rows = (sum(len(one[name]) for one in chunks) for name in ("n_rows", "carrier"))
    store = Store.of(spectra.molecules, n_examples, n_rows, device)
    for chunk in chunks:
        store.add(chunk)
    return store


def measured_examples(spectra: PreparedSpectra, seed: int) -> Iterator[Arrays]:
    """Spectra of every molecule of fold train, alone or merged, a chunk for each round."""
    sampler, generator = SpectrumSampler(spectra), np.random.default_rng(seed)
    for _ in range(_ROUNDS):
        drawn = [sampler.draw_from(i, generator) for i in range(len(sampler.molecules))]
        rows = [from_prepared(spectra, numbers) for _, numbers in drawn]
        yield packed(rows, [molecule for molecule, _ in drawn])


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
        batch: Spectra of a step.
        rate: Learning rate at its peak.
        layer: How a layer of the model is computed.
    """

    model: FormulaTransformer
    averaged: FormulaTransformer
    simulated: Store
    measured: Store
    runtime: Runtime
    seed: int
    batch: int
    rate: float
    layer: Layer

    def __post_init__(self) -> None:
        settings = OptimiserSettings(weight_decay=_WEIGHT_DECAY)
        self.optimisers = optimisers(self.model, settings)
        self.generator = np.random.default_rng(self.seed)
        self.steps = 0

    def step(self, share: float, part: float) -> Tensor:
        """Take one step; the loss for each set bit.

        Args:
            share: Of measured spectra.
            part: Of the peak rate.
        """
        total = torch.zeros((), device=self.runtime.device)
        n_measured = round(self.batch * share)
        for store, size, dropout, power in (
            # Later ones more often, as the first would else be seen many more times in all.
            (self.simulated, self.batch - n_measured, _SIMULATED_DROPOUT, 0.5),
            (self.measured, n_measured, _PEAK_DROPOUT, 1.0),
        ):
            if not size:
                continue
            place = self.generator.random(size) ** power
            drawn = (place * store.n_examples).astype(np.int64)
            batch, truth = store.batch(drawn, dropout, self.generator)
            with self.runtime.autocast():
                logits = packed_logits(self.model, batch, self.layer)
            loss = binary_cross_entropy_with_logits(logits.float(), truth, reduction="sum")
            loss = loss / (_BITS_SET * self.batch)
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = part * self.rate * min(1.0, (self.steps + 1) / _WARMUP)
            optimiser.step()
            optimiser.zero_grad()
        update_average(self.averaged, self.model, _EMA, self.steps)
        self.steps += 1
        return total

    @property
    def state(self) -> dict[str, Any]:
        """A copy of what training goes on from."""
        modules: list[Any] = [self.model, self.averaged, *self.optimisers]
        return deepcopy({"modules": [one.state_dict() for one in modules], "steps": self.steps})

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        modules: list[Any] = [self.model, self.averaged, *self.optimisers]
        for one, own in zip(modules, deepcopy(state["modules"]), strict=True):
            one.load_state_dict(own)
        self.steps = state["steps"]


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


@torch.no_grad()
def entropy_of(encoder: FormulaTransformer, store: Store, drawn: NDArray[np.int64]) -> float:
    """Cross entropy of examples, a spectrum, all their peaks kept."""
    batch, truth = store.batch(drawn, 0.0, np.random.default_rng(0))
    logits = packed_logits(encoder, batch, packed_layer).float()
    return float(binary_cross_entropy_with_logits(logits, truth, reduction="sum")) / len(drawn)


def new_encoder(sizes: EncoderSettings, molecules: Molecules) -> FormulaTransformer:
    """An encoder that begins with how often each bit is set."""
    encoder = FormulaTransformer(sizes)
    often = np.bincount(molecules.bits, minlength=FINGERPRINT_BITS) / len(molecules)
    share = torch.from_numpy(often).clamp(1e-4, 1 - 1e-4)
    with torch.no_grad():
        encoder.fingerprint.bias.copy_(torch.logit(share))
    return encoder


def train(
    run: Run, seconds: float, share: float, falls: bool, look: Callable[[str, Tensor], None]
) -> None:
    """Train for so long, the rate constant or falling from the peak to next to nothing."""
    begun = looked = time.monotonic()
    while (elapsed := time.monotonic() - begun) < seconds:
        part = 0.5 * (1 + math.cos(math.pi * elapsed / seconds)) if falls else 1.0
        loss = run.step(share, max(_LEAST_RATE, part))
        if run.steps == 1 or time.monotonic() - looked >= _LOOK_EVERY_S:
            look("falling" if falls else "constant", loss)
            looked = time.monotonic()


class Watch:
    """Looks at a run and keeps its encoder.

    Args:
        run: As it is trained.
        sizes: Of its encoder.
        spectra: Measured, fold val among them.
        out: Folder for figures and weights.
        n_looked_at: Simulated spectra of the beginning, and as many of the newest.
    """

    def __init__(
        self,
        run: Run,
        sizes: EncoderSettings,
        spectra: PreparedSpectra,
        out: Path,
        n_looked_at: int,
    ) -> None:
        self.run, self.sizes, self.spectra, self.out = run, sizes, spectra, out
        self.begun, self.oldest = time.monotonic(), np.arange(n_looked_at)
        out.mkdir(parents=True, exist_ok=True)
        (out / "metrics.jsonl").unlink(missing_ok=True)

    def look(self, phase: str, loss: Tensor) -> None:
        """Write figures; "new" is of simulated spectra that were hardly seen."""
        run = self.run
        row: dict[str, Any] = {"phase": phase, "step": run.steps, "loss": float(loss)}
        row |= {"s": round(time.monotonic() - self.begun, 1), "spectra": run.steps * run.batch}
        row |= {"simulated": run.simulated.n_examples} | looked_at(run.averaged, self.spectra)
        newest = run.simulated.n_examples - 1 - self.oldest
        for name, drawn in (("old", self.oldest), ("new", newest)):
            row[name] = entropy_of(run.averaged, run.simulated, drawn)
        typer.echo(json.dumps(row))
        with (self.out / "metrics.jsonl").open("a") as lines:
            lines.write(json.dumps(row) + "\n")

    def keep(self, name: str) -> float:
        """Write the encoder, averaged, as weights to go on from; its cross entropy on fold val."""
        record: dict[str, Any] = {"seed": self.run.seed, "spectra": self.run.steps * self.run.batch}
        record |= looked_at(self.run.averaged, self.spectra)
        typer.echo(json.dumps({"written": name} | record))
        state = self.run.averaged.state_dict()
        tensors = {f"encoder.{part}": tensor for part, tensor in state.items()}
        made = Checkpoint(ModelSettings(encoder=self.sizes), tensors, {"at_scale": record})
        save(self.out / f"{name}.safetensors", made, torch.float16)
        return float(record.get("fp_bce", math.nan))


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
    minutes: Annotated[float, typer.Option(min=0.01, help="At a constant rate.")] = 5,
    ending: Annotated[
        float, typer.Option(min=0.01, help="Minutes for each end, while the rate falls.")
    ] = 1.5,
    share: Annotated[str, typer.Option(help="Of measured spectra in each end, 0.1,0.3.")] = "0.3",
    before: Annotated[
        float, typer.Option(min=0, max=1, help="Of measured spectra until then.")
    ] = 0.0,
    batch: Annotated[int, typer.Option(min=2, help="Spectra of a step.")] = 8_192,
    rate: Annotated[float, typer.Option(help="Learning rate at its peak.")] = 2e-3,
    width: Annotated[int, typer.Option(help="Channels of a peak.")] = 256,
    layers: Annotated[int, typer.Option(help="Transformer layers.")] = 8,
    summary: Annotated[int, typer.Option(help="Channels that all bits are read from.")] = 320,
    most: Annotated[int, typer.Option(help="Simulated spectra to keep at most.")] = 6_000_000,
    first: Annotated[int, typer.Option(help="Simulated spectra to begin with.")] = 40_000,
    workers: Annotated[int | None, typer.Option(help="Processes that simulate.")] = None,
    start: Annotated[Path | None, typer.Option(help="Weights whose encoder goes on.")] = None,
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda",
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
) -> None:
    """Train an encoder.

    Writes OUT/metrics.jsonl, OUT/constant.safetensors, from which every end starts, the ends, such
    as OUT/encoder-0.3.safetensors, and the best of them on fold val as OUT/encoder.safetensors.
    """
    torch.manual_seed(seed)
    runtime = Runtime.resolve(device, "bfloat16", "off")
    spectra, known = load_spectra(measured), load_molecules(structures)
    simulator_of(simulator, spectra)  # before others look for it
    simulated = Store.of(known, most, most * _ROWS, runtime.device)
    beside = measured_store(spectra, seed, runtime.device)
    processes = workers or max(1, available_cores() - 3)
    sizes = EncoderSettings(width=width, layers=layers, summary=summary, dropout=0.1)
    model = new_encoder(sizes, known)
    if start is not None:
        tensors = load(start).tensors
        model.load_state_dict({name: tensors[f"encoder.{name}"] for name in model.state_dict()})
    model = model.to(runtime.device)
    averaged = FormulaTransformer(sizes).to(runtime.device).eval()
    averaged.load_state_dict(model.state_dict())
    on_gpu = runtime.device.type == "cuda"
    layer = torch.compile(packed_layer) if on_gpu else packed_layer  # noqa: TID251 - no package
    run = Run(model, averaged, simulated, beside, runtime, seed, batch, rate, layer)
    watch = Watch(run, sizes, spectra, out, first // 4)
    with simulated_by(processes, (structures, measured, simulator), seed, simulated, first):
        train(run, 60 * minutes, before, False, watch.look)
        watch.keep("constant")
        state, ends = run.state, dict[str, float]()
        for own in share.split(","):
            run.state = state
            train(run, 60 * ending, float(own), True, watch.look)
            ends[own] = watch.keep(f"encoder-{own}")
    shutil.copyfile(out / f"encoder-{min(ends, key=ends.__getitem__)}.safetensors", out / ENCODER)


if __name__ == "__main__":
    try:
        typer.run(main)
    except DuallgdError as error:
        raise SystemExit(f"error: {error}") from None
