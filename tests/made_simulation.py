"""Simulators that were never fitted, and folders of what they draw."""

import numpy as np
import torch

from duallgd_cli.chem.adduct import BY_NAME
from duallgd_cli.data.fragmentation import SHIFTS, Ion
from duallgd_cli.data.peaks import from_annotated
from duallgd_cli.data.simulation import FragmentModel, Simulator, prepare_simulated
from tests.made_prepared import structures_folder

ORBITRAP, QTOF = 1, 2


def ion(adduct="[M+H]+", energy_ev=20.0, instrument=ORBITRAP):
    return Ion(BY_NAME[adduct].index, instrument, energy_ev)


def model_of(log_odds, shift=None):
    """A network that gives every fragment these log-odds, at one hydrogen shift or at all."""
    torch.manual_seed(1)
    model = FragmentModel(8)
    column = slice(None) if shift is None else SHIFTS.index(shift)
    with torch.no_grad():
        model.presence.bias.fill_(-50)
        model.presence.bias[column] = log_odds
    return model


def simulator(*ions, log_odds=-3.0, shift=None):
    """Draws from ions alike often; protonated and deprotonated ones if none are given."""
    ions = ions or (ion(), ion("[M-H]-", float("nan"), QTOF))
    return Simulator(model_of(log_odds, shift), list(ions), np.full(len(ions), 1 / len(ions)))


def drawn_by(simulator, molecules, molecule, generator):
    """What a network sees of a spectrum that a molecule might give."""
    return from_annotated(simulator.annotated(molecules, molecule, generator))


def simulated_folder(path, *smiles, **selection):
    """A prepared folder of simulated spectra, of structures beside it."""
    structures = structures_folder(path.with_name(path.name + "-of"), *smiles)
    prepare_simulated(structures, simulator(), path, {"made": True}, **selection)
    return path
