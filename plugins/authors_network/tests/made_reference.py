"""A small network of the authors' shape, and their files of it: pickles of unknown classes."""

import torch

from duallgd_authors_network import weights_file as reference
from duallgd_authors_network.convert import convert
from duallgd_authors_network.settings import (
    ReferenceDenoiserSettings,
    ReferenceEncoderSettings,
    ReferenceSettings,
)
from duallgd_authors_network.weights_file import ReferenceDualLGD

EDGE_COUNTS = (900.0, 60.0, 20.0, 1.0, 19.0)
SYMBOLS = ["C", "O", "P", "N", "S", "Cl", "F", "H"]
SETTINGS = ReferenceSettings(
    ReferenceDenoiserSettings(
        **{"layers": 2, "condition_width": 24, "heads": 2, "n_features": 6, "pair_feed": 26},
        **{"atom_width": 16, "edge_width": 8, "global_width": 20},
        **{"atom_hidden": 12, "edge_hidden": 10, "global_hidden": 14},
        **{"atom_feed": 18, "edge_feed": 6, "global_feed": 22},
    ),
    ReferenceEncoderSettings(width=16, heads=4, fragment_bits=12, fingerprint_sizes=(8, 16, 32)),
    n_steps=20,
    marginal=tuple((torch.tensor(EDGE_COUNTS) / sum(EDGE_COUNTS)).tolist()),
    max_atoms=40,
)


class AnyNode:
    """Stands for a value of a settings tree."""

    def __init__(self, value):
        self._val = value


class DictConfig:
    """Stands for a branch of a settings tree."""

    def __init__(self, values):
        inner = {dict: DictConfig}
        self._content = {k: inner.get(type(v), AnyNode)(v) for k, v in values.items()}
        self._parent = self


class DatasetInfos:
    """Stands for the authors' statistics of a data set."""

    def __init__(self):
        self.edge_types = torch.tensor(EDGE_COUNTS, dtype=torch.float64)
        self.max_n_nodes = SETTINGS.max_atoms
        self.atom_decoder = SYMBOLS
        self.secret = DictConfig({"deep": 1})


def hyper_parameters(duallgd=(), **changes):
    """Their settings and statistics, with changes to the model's and to the line graph's."""
    denoiser = SETTINGS.denoiser
    chosen = {
        "performer_num_features": denoiser.n_features,
        "dual_heads": denoiser.heads,
        "linear_attention_type": "performer",
        "cross_attention_mode": "bidirectional",
    }
    model = {
        "diffusion_steps": SETTINGS.n_steps,
        "transition": "marginal",
        "diffusion_noise_schedule": "cosine",
        "extra_features": "all",
        "hidden_dims": {"n_head": denoiser.heads},
        "duallgd": chosen | dict(duallgd),
    }
    return {
        "cfg": DictConfig({"model": model | changes, "general": {"name": "x"}}),
        "dataset_infos": DatasetInfos(),
        "visualization_tools": AnyNode(None),
    }


def stirred_network():
    """The network with weights that make every part matter."""
    torch.manual_seed(0)
    model = ReferenceDualLGD(SETTINGS).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def theirs(module, prefix=""):
    """A part's tensors in their files, which do not hold the random features."""
    state = module.state_dict().items()
    return {prefix + name: tensor for name, tensor in state if "random_features" not in name}


BETAS = {"noise_schedule.betas": torch.zeros(SETTINGS.n_steps + 1)}


def fine_tuned_file(network):
    """The authors' fine-tuned file as Python values."""
    parts = ((network.denoiser, "decoder."), (network.encoder, "encoder."))
    state = BETAS | theirs(network.projection, "merge_function.")
    for module, prefix in parts:
        state |= theirs(module, prefix)
    return {
        "epoch": 49,
        "global_step": 1000,
        "pytorch-lightning_version": "2.0.4",
        "state_dict": state,
        "hyper_parameters": hyper_parameters(),
        "callbacks": {"ModelCheckpoint": {"best": torch.tensor(1.0)}},
    }


def decoder_file(network):
    """The authors' pre-trained decoder as Python values."""
    state = BETAS | theirs(network.denoiser, "model.")
    return {**fine_tuned_file(network), "state_dict": state}


def encoder_file(network):
    """The authors' pre-trained encoder as Python values."""
    return theirs(network.encoder)


def converted(folder, content, name="authors"):
    """Write a file of theirs and convert it; returns the weights file."""
    source, target = folder / f"{name}.ckpt", folder / f"{name}.safetensors"
    torch.save(content, source)
    reference.save(target, convert(source))
    return target
