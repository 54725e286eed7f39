"""Published results on the public benchmarks, each with its source and what it assumes.

All are with the true formula given, on the official test fold, accuracies in percent. None of them
is a result on another data set, so they stand beside ours only for the benchmark they belong to.
"""

from dataclasses import dataclass
from typing import Final

_READS_ORDER: Final = "atom list in the true molecule's order; mask fault in the encoder"
_PAPER: Final = "DualLGD paper, table 1"


@dataclass(frozen=True, slots=True)
class Published:
    """One published row; None where a number was not given.

    Attributes:
        method: As its authors call it.
        accuracy: Top-1 and top-10, percent.
        mces: Smallest MCES distance among the first 1 and 10.
        tanimoto: Largest Tanimoto similarity among the first 1 and 10.
        source: Where the numbers stand.
        assumes: What a reader must know before comparing.
    """

    method: str
    accuracy: tuple[float | None, float | None]
    mces: tuple[float | None, float | None]
    tanimoto: tuple[float | None, float | None]
    source: str
    assumes: str = ""


MASSSPECGYM: Final = (
    Published(
        "Random chemical generation",
        (0.00, 0.00),
        (21.11, 18.26),
        (0.08, 0.11),
        "MassSpecGym, official baseline",
        "spectrum not used beyond mass",
    ),
    Published(
        "SMILES transformer",
        (0.00, 0.00),
        (79.39, 52.13),
        (0.03, 0.10),
        "MassSpecGym, official baseline",
    ),
    Published(
        "SELFIES transformer",
        (0.00, 0.00),
        (38.88, 26.87),
        (0.08, 0.13),
        "MassSpecGym, official baseline",
    ),
    Published("MIST + MSNovelist", (0.00, 0.00), (45.55, 30.13), (0.06, 0.15), _PAPER),
    Published("Spec2Mol", (0.00, 0.00), (37.76, 29.40), (0.12, 0.16), _PAPER),
    Published("MIST + Neuraldecipher", (0.00, 0.00), (33.19, 31.89), (0.14, 0.16), _PAPER),
    Published("MADGEN", (1.31, 1.54), (27.47, 16.84), (0.20, 0.26), "arXiv 2501.01950"),
    Published(
        "DiffMS",
        (2.30, 4.25),
        (18.45, 14.73),
        (0.28, 0.39),
        "arXiv 2502.09571",
        "decoder pretrained on 2.8 M structures; mask fault in the encoder",
    ),
    Published(
        "MS-BART",
        (1.07, 1.11),
        (16.47, 15.12),
        (0.23, 0.28),
        "arXiv 2510.20615",
        "4 M structures; MIST fingerprints",
    ),
    Published("MSAnchor", (2.68, 4.67), (16.57, 14.12), (0.32, 0.41), _PAPER),
    Published(
        "MBGen",
        (7.58, 12.54),
        (13.25, 10.16),
        (0.38, 0.47),
        "arXiv 2602.01643",
        "no public weights",
    ),
    Published(
        "MIST + MolForge (corrected)",
        (10.73, 14.48),
        (None, None),
        (0.37, 0.41),
        "MIST-MolForge repository",
        "2 M structures; first published as 28.3 to 31.8 with the mask fault",
    ),
    Published(
        "FRIGID",
        (18.29, 22.00),
        (13.49, 11.65),
        (0.43, 0.47),
        "arXiv 2604.16648",
        "up to 1 B structures; simulated spectra; forward model at prediction",
    ),
    Published(
        "MS-GPT",
        (23.91, 28.65),
        (None, None),
        (None, None),
        "arXiv 2607.23607",
        "150 M structures; which encoder weights is not known",
    ),
    Published("DualLGD", (23.89, 33.08), (10.11, 7.69), (0.52, 0.61), _PAPER, _READS_ORDER),
)

NPLIB1: Final = (
    Published("Spec2Mol", (0.00, 0.00), (27.82, 23.13), (0.12, 0.16), _PAPER),
    Published("MADGEN", (2.10, 2.39), (20.56, 12.69), (0.22, 0.27), "arXiv 2501.01950"),
    Published(
        "MIST + MolForge (corrected)",
        (2.24, 5.11),
        (None, None),
        (None, None),
        "MIST-MolForge repository",
        "2 M structures",
    ),
    Published("MIST + Neuraldecipher", (2.32, 6.11), (12.11, 9.91), (0.35, 0.43), _PAPER),
    Published("MIST + MSNovelist", (5.40, 11.04), (14.52, 10.23), (0.34, 0.44), _PAPER),
    Published("MS-BART", (7.45, 10.99), (9.66, 8.31), (0.44, 0.51), "arXiv 2510.20615"),
    Published(
        "DiffMS",
        (8.34, 15.44),
        (11.95, 9.23),
        (0.35, 0.47),
        "arXiv 2502.09571",
        "decoder pretrained on 2.8 M structures; mask fault in the encoder",
    ),
    Published("MSAnchor", (8.51, 16.90), (11.12, 8.95), (0.38, 0.49), _PAPER),
    Published("FlowMS", (9.15, None), (None, 7.96), (None, None), "arXiv 2603.18397"),
    Published("MBGen", (12.20, 22.29), (7.72, 6.71), (0.41, 0.50), "arXiv 2602.01643"),
    Published(
        "FRIGID",
        (25.03, 33.37),
        (None, None),
        (None, None),
        "arXiv 2604.16648",
        "up to 1 B structures; simulated spectra; forward model at prediction",
    ),
    Published("DualLGD", (34.37, 44.96), (5.44, 4.12), (0.60, 0.68), _PAPER, _READS_ORDER),
)
