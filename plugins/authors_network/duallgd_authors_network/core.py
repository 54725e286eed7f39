"""Everything that the plug-in takes from duallgd: no other module of it imports duallgd_cli."""

from duallgd_cli.__main__ import exit_codes
from duallgd_cli.checkpoint.format import (
    FORMAT_VERSION,
    foreign_network,
    load_finite,
    load_object,
    reading,
    require_same_shapes,
    shapes_in,
    write_tensors,
)
from duallgd_cli.chem.adduct import ADDUCTS, Adduct, parse_adduct
from duallgd_cli.chem.elements import BOND_NONE, FINGERPRINT_BITS, SYMBOLS
from duallgd_cli.chem.formula import Formula
from duallgd_cli.config import SamplingSettings, dump, parse, require, require_range
from duallgd_cli.diffusion.sampler import (
    Samples,
    SamplingTask,
    alpha_bar,
    on_one_thread,
    sample,
)
from duallgd_cli.errors import (
    ConfigError,
    Failure,
    RefusedError,
    UnsupportedElementError,
    WeightsError,
    clip,
    counted,
    quote,
)
from duallgd_cli.files import claim, sha256
from duallgd_cli.model.duallgd import parameter_counts
from duallgd_cli.model.layers import LineGraph, line_graph, pair_mask
from duallgd_cli.model.settings import MOST, MOST_LAYERS, DiffusionSettings
from duallgd_cli.model.tensors import Denoise, map_tensors
from duallgd_cli.predict.model import Encoded, LoadedModel
from duallgd_cli.ranking.ranking import RankingModel
from duallgd_cli.runtime import Runtime
from duallgd_cli.sources import Proposal, Query
from duallgd_cli.sources.network import assembled
from duallgd_cli.spectra.annotation import SubformulaTable
from duallgd_cli.spectra.types import AnnotatedSpectrum, Hypothesis
