"""Settings of a recipe and of its stages."""

from dataclasses import dataclass, field
from typing import Literal

from duallgd_cli.config import require, require_range
from duallgd_cli.model.settings import ModelSettings


@dataclass(frozen=True, slots=True)
class OptimiserSettings:
    """AdamW, or Muon and AdamW, with a one-cycle learning rate.

    Attributes:
        matrices: What updates the matrices of linear maps; AdamW updates all else.
        learning_rate: Learning rate at its peak.
        warmup_share: Share of the steps in which the rate rises.
        hold_share: Share of the steps in which it then stays at the peak.
        final_share: Rate at the end, as a share of the peak.
        weight_decay: On matrices; biases, norms and embeddings have none.
        beta2: Second-moment decay.
        clip: Largest gradient norm.
        ema: Decay of the moving average of the weights, which is what gets saved as the model.
    """

    matrices: Literal["adamw", "muon"] = "muon"
    learning_rate: float = 1e-3
    warmup_share: float = 0.05
    hold_share: float = 0.0
    final_share: float = 0.01
    weight_decay: float = 0.01
    beta2: float = 0.99
    clip: float = 1.0
    ema: float = 0.999

    def __post_init__(self) -> None:
        require_range(self, "learning_rate", "clip", above=0)
        require_range(self, "weight_decay", least=0)
        require_range(self, "final_share", least=0, most=1)
        require_range(self, "beta2", "warmup_share", "hold_share", "ema", least=0, below=1)


@dataclass(frozen=True, slots=True)
class TrainingData:
    """How batches are made.

    Attributes:
        pairs_per_batch: Budget of atom pairs in a batch of one process.
        spectra_per_batch: Spectra in a batch of one process (encoder stage).
        bucket: Sizes are padded up to a multiple of this.
        max_atoms: Larger molecules are not trained on.
        clean_share: Share of true fingerprints among imitated predictions (decoder stage).
        simulated_share: Share of simulated spectra in an encoder batch, where there are any.
        measured_from: Share of the steps after which measured spectra come beside simulated ones,
            where there are any (encoder stage).
        peak_dropout: Largest share of peak rows dropped from a training spectrum.
        simulated_dropout: The same of simulated ones in the encoder stage; None as for others.
        isomers: Structures of its formula that each molecule is told from, at most (encoder stage).
        workers: Processes that make batches ahead; None is 0 on a CPU and up to 8 beside a GPU.
            Changes no number, so a run may go on with another.
    """

    pairs_per_batch: int = 12_000
    spectra_per_batch: int = 64
    bucket: int = 1
    max_atoms: int = 100
    clean_share: float = 0.1
    simulated_share: float = 0.5
    measured_from: float = 0.0
    peak_dropout: float = 0.4
    simulated_dropout: float | None = None
    isomers: int = 31
    workers: int | None = None

    def __post_init__(self) -> None:
        shares = [name for name in self.__slots__ if name.endswith(("_share", "_dropout", "_from"))]
        sizes = "pairs_per_batch", "spectra_per_batch", "bucket", "max_atoms"
        require_range(self, "workers", "isomers", least=0)
        require_range(self, *sizes, least=1)
        require_range(self, *shares, least=0, most=1)


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """One run.

    Attributes:
        stage: Which part is trained.
        seed: Random seed.
        steps: Optimiser steps of the whole run; 0 keeps the weights that it starts from.
        optimiser: Learning rate and friends.
        data: Batches.
        checkpoint_every: Steps between saved states.
        validate_every: Steps between looks at the held-out fold.
        log_every: Steps between lines in the metrics file.
    """

    stage: Literal["decoder", "encoder"] = "decoder"
    seed: int = 1
    steps: int = 10_000
    optimiser: OptimiserSettings = field(default_factory=OptimiserSettings)
    data: TrainingData = field(default_factory=TrainingData)
    checkpoint_every: int = 500
    validate_every: int = 1_000
    log_every: int = 20

    def __post_init__(self) -> None:
        require_range(self, "checkpoint_every", "validate_every", "log_every", least=1)
        require_range(self, "steps", least=0)


@dataclass(frozen=True)
class RunSettings:
    """What a recipe may say of a stage that trains.

    Attributes:
        model: Sizes of the network; weights to start from bring their own.
        training: Stage, steps, batches, learning rate.
    """

    model: ModelSettings = field(default_factory=ModelSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)


@dataclass(frozen=True, slots=True)
class AlikeSettings:
    """Structures that are like measured molecules.

    Attributes:
        limit: So many of fold train.
        min_atoms: Heavy atoms of the smallest.
        max_atoms: Heavy atoms of the largest.
    """

    limit: int = 400_000
    min_atoms: int = 1
    max_atoms: int = 100

    def __post_init__(self) -> None:
        require_range(self, "limit", "min_atoms", "max_atoms", least=1)


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """Simulated spectra, one of each structure.

    Attributes:
        limit: Structures, at random; None for all.
        max_atoms: Heavy atoms of the largest.
        steps: Of fitting the fragment model to the measured spectra.
    """

    limit: int | None = 400_000
    max_atoms: int = 40
    steps: int = 7_000

    def __post_init__(self) -> None:
        require_range(self, "limit", "steps", least=1)
        require_range(self, "max_atoms", least=2)


@dataclass(frozen=True, slots=True)
class DrawSettings:
    """A run over fold val that ranking or confidence is fitted on.

    Attributes:
        samples: Drawn of each molecule.
        steps: Of the sampler.
        limit: Molecules, always the same; None for all.
    """

    samples: int = 100
    steps: int = 10
    limit: int | None = None

    def __post_init__(self) -> None:
        require_range(self, "samples", "steps", "limit", least=1)


@dataclass(frozen=True, slots=True)
class RecipeSettings:
    """All that `duallgd train RECIPE` makes a weights file of.

    Attributes:
        spectra: Files of measured spectra with structures, or folders of them: MGF, MSP, tables in
            the MassSpecGym layout, mzSpecLib, MassBank records.
        structures: Files of structures: tables with SMILES or InChI, SMILES lists, SDF.
        holdout: Lists of molecules that are never looked at: InChIKeys a line, or structures.
        validation: Share of the molecules of fold train that become fold val, which nothing is
            trained on; 0 where the files name that fold.
        start: Weights that the decoder starts from; "" for none.
        encoder_start: Weights that the encoder starts from; "" for none.
        seed: Of everything.
        alike: Structures that are simulated and that the decoder trains on.
        large: Large molecules, on which the decoder has every tenth step; None for none.
        simulate: Simulated spectra.
        decoder: Network and settings of that stage.
        encoder: Likewise.
        evidence_steps: Of the fragment model of the re-ranker.
        contrast_steps: Of the encoder that tells isomers apart.
        draws: Runs over fold val: ranking is fitted on the first, confidence on all.
        membership: Likewise with a database: what says whether the truth is in it.
    """

    spectra: tuple[str, ...]
    structures: tuple[str, ...]
    holdout: tuple[str, ...] = ()
    validation: float = 0.0
    start: str = ""
    encoder_start: str = ""
    seed: int = 1
    alike: AlikeSettings = field(default_factory=AlikeSettings)
    large: AlikeSettings | None = None
    simulate: SimulationSettings = field(default_factory=SimulationSettings)
    decoder: RunSettings = field(default_factory=RunSettings)
    encoder: RunSettings = field(default_factory=RunSettings)
    evidence_steps: int = 2_500
    contrast_steps: int = 450
    draws: tuple[DrawSettings, ...] = (DrawSettings(),)
    membership: DrawSettings = field(default_factory=lambda: DrawSettings(limit=400))

    def __post_init__(self) -> None:
        require(bool(self.spectra), "spectra must name a file of labelled spectra")
        require(bool(self.structures), "structures must name a file of structures")
        require(bool(self.draws), "draws must hold a run over fold val")
        largest = self.decoder.training.data.max_atoms
        require(
            self.large is None or self.large.min_atoms <= largest,
            f"large.min_atoms must be at most decoder.training.data.max_atoms, {largest}",
        )
        for stage, start in (("decoder", "start"), ("encoder", "encoder_start")):
            require(
                bool(getattr(self, stage).training.steps or getattr(self, start)),
                f"{stage}.training.steps 0 keeps the weights of {start}; name a file there",
            )
        require_range(self, "validation", least=0, below=1)
        require_range(self, "seed", least=0)
        require_range(self, "evidence_steps", "contrast_steps", least=1)
