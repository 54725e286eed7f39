"""What more spectra of a molecule bring: energies of one ion, then its other ions.

    duallgd train recipes/massspecgym.yaml -o run --until spectra
    python examples/studies/together.py run/spectra structures.smi

Molecules of fold val that were measured as several ions are sought among the structures of their
formula in a file, by predicted fingerprint and isomer log odds alone. All rows are of the same
molecules; differences are to all spectra of the best ion, with their standard errors.
"""

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem.rdMolDescriptors import CalcMolFormula

from duallgd_cli.chem import identity
from duallgd_cli.chem.adduct import ADDUCTS
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.data.peaks import from_prepared, peak_batch
from duallgd_cli.data.prepared import PreparedSpectra, load_spectra
from duallgd_cli.predict.model import Encoder, load_model
from duallgd_cli.runtime import Runtime

PREFERRED = ("[M+H]+", "[M]+", "[M-H]-")


def isomers_of(file: Path) -> dict[str, dict[str, NDArray[np.uint16]]]:
    """Set fingerprint bits of all structures of a file, by formula and InChIKey block."""
    found: dict[str, dict[str, NDArray[np.uint16]]] = defaultdict(dict)
    for line in file.read_text().splitlines():
        mol = Chem.MolFromSmiles(line.split()[0]) if line.strip() else None
        if mol is not None:
            block = identity.inchikey_block(mol)
            found[CalcMolFormula(mol)][block] = identity.fingerprint(mol)
    return found


@torch.inference_mode()
def log_odds(encoder: Encoder, data: PreparedSpectra, rows: Sequence[int]) -> NDArray[np.float32]:
    """What each bit speaks for a molecule, by spectra of one ion read together, (F,)."""
    peaks = peak_batch([from_prepared(data, rows)])
    logits = encoder.network(peaks)
    if encoder.kernel is not None:
        logits = encoder.kernel.mixed(logits, peaks)
    if encoder.isomers is not None:
        logits = logits + encoder.isomers(peaks)
    return logits[0].float().numpy()


def conditions(
    encoder: Encoder,
    data: PreparedSpectra,
    ions: Mapping[int, Sequence[int]],
    rng: np.random.Generator,
) -> dict[str, NDArray[np.float32]]:
    """Log odds of the bits by each way of reading the spectra of a molecule."""
    order = sorted(ions, key=lambda ion: (ADDUCTS[ion].name not in PREFERRED, ion))
    best, any_ion = order[0], int(rng.choice(order))
    each = {ion: log_odds(encoder, data, rows) for ion, rows in ions.items()}
    polarity = ADDUCTS[best].charge > 0
    alike = [each[ion] for ion in ions if (ADDUCTS[ion].charge > 0) == polarity]
    others = [each[ion] for ion in order[1:]]
    return {
        "one spectrum, any ion": log_odds(encoder, data, [int(rng.choice(ions[any_ion]))]),
        "one spectrum, best ion": log_odds(encoder, data, [int(rng.choice(ions[best]))]),
        "all spectra, any ion": each[any_ion],
        "all spectra, best ion": each[best],
        "ions of its polarity, mean": np.mean(alike, 0),
        "all ions, mean": np.mean(list(each.values()), 0),
        "all ions, best thrice": np.average([each[best], np.mean(others, 0)], 0, [3, 1]),
    }


def main(prepared: Path, structures: Path) -> None:
    """Print the table."""
    data, isomers = load_spectra(prepared), isomers_of(structures)
    encoder = load_model(None, Runtime.resolve("cpu", "float32", threads=1)).encode
    assert isinstance(encoder, Encoder)
    ions: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    is_val = data.molecules.in_folds("val")
    for row, molecule in enumerate(data.molecule.tolist()):
        if is_val[molecule]:
            ions[molecule][int(data.adduct[row])].append(row)
    rng, ranks = np.random.default_rng(0), defaultdict(list)
    for molecule, by_ion in ions.items():
        block = data.molecules.inchikey[molecule].decode()
        alike = isomers[str(data.molecules.formula(molecule))]
        if len(by_ion) < 2 or block not in alike or len(alike) < 2:
            continue
        bits = np.zeros((len(alike), FINGERPRINT_BITS), np.float32)
        for row, on in enumerate(alike.values()):
            bits[row, on] = 1
        truth = list(alike).index(block)
        for name, odds in conditions(encoder, data, by_ion, rng).items():
            scores = bits @ odds
            ranks[name].append(1 + int((scores > scores[truth]).sum()))
    base = np.array(ranks["all spectra, best ion"])
    print(f"{len(base)} molecules")
    print(f"{'':28}{'first':>7}{'ten':>7}{'first, paired':>18}{'ten, paired':>18}")
    for name, values in ranks.items():
        rank = np.array(values)
        cells = f"{name:28}{100 * (rank == 1).mean():7.1f}{100 * (rank <= 10).mean():7.1f}"
        for most in (1, 10):
            change = 100.0 * ((rank <= most).astype(int) - (base <= most))
            cells += f"{change.mean():+10.1f} ({change.std() / len(base) ** 0.5:.1f})".rjust(18)
        print(cells)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
