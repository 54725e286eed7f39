"""Broken weights files: one sentence and exit code 69, or candidates as ever."""

import copy
import json

import torch

from duallgd_cli.checkpoint.format import Checkpoint, read_tensors, save, write_tensors
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.data.simulation import FragmentModel
from duallgd_cli.sources.collection import Collection
from duallgd_cli.train.scorers import ScorerModel
from examples.make_examples import SPECTRA, mgf
from tests.fuzz.loop import fuzz, mutate, run
from tests.made_graphs import small_settings, stirred
from tests.made_prepared import molecules_of

# Settings of a run in a weights file may exclude those of the command: a usage error.
EXIT_CODES = {0, 2, 69}
_OTHERS = (
    *(0, -1, 1, 3, 2**16, 2**31, 10**12, 10**5000, 0.5, float("nan"), float("inf"), 1e308),
    *(None, True, "", "quadratic", "stride0", [], {}, [[]], [0.2] * 5),
)
_DTYPES = (torch.float16, torch.int8, torch.int64, torch.bool, torch.complex64, torch.uint8)


def sound_weights(path):
    """A whole weights file of a tiny network with everything that one may hold."""
    model = stirred(small_settings(layers=1))
    evidence = dict(ScorerModel(FragmentModel(4)).state_dict())
    evidence["log_prevalence"] = torch.full((FINGERPRINT_BITS,), -3.0)
    checkpoint = Checkpoint(
        settings=model.settings,
        tensors=dict(model.state_dict()),
        record={"training": {"stage": "decoder"}, "init": {}, "ancestors": {"a": {"step": 1}}},
        reranker=evidence,
        templates=Collection(molecules_of("CCCCO", "CCCCN")).tensors(),
        contrast={name: tensor.clone() for name, tensor in model.encoder.state_dict().items()},
    )
    save(path, checkpoint, short_codes=True)
    return path


def fuzz_weights(count, seed, folder):
    """Break a weights file in `count` ways; how often `predict` ended with each code."""
    sound = sound_weights(folder / "sound.safetensors")
    spectra, broken = folder / "one.mgf", folder / "broken.safetensors"
    spectra.write_text(mgf(SPECTRA[:1]), encoding="utf-8")
    few = ("--samples", 2, "--steps", 1, "--threads", 1, "--quiet", "--force")

    def try_one(rng):
        if rng.random() < 0.2:
            broken.write_bytes(mutate(sound.read_bytes(), rng))
        else:
            tensors, metadata = read_tensors(sound)
            rng.choice((_break_metadata, _break_a_tensor))(tensors, metadata, rng)
            write_tensors(broken, tensors, metadata)
        predicting = ("predict", spectra, "-o", folder / "out.csv", "--weights", broken, *few)
        yield f"predict {run(*predicting, codes=EXIT_CODES)}"

    return fuzz(count, f"weights {seed}", try_one)


def _break_metadata(tensors, metadata, rng):
    """Other values in the JSON of one entry, with a digest that fits."""
    name = rng.choice(sorted(metadata))
    if name in {"settings", "record", "ranking"} and rng.random() < 0.85:
        values = json.loads(metadata[name])
        for _ in range(rng.randint(1, 3)):
            _replace_one(values, rng)
        text = json.dumps(values, default=str)
        # Python writes no number of more digits than it reads.
        metadata[name] = text.replace('"enormous"', "1" + "0" * 5000)
    else:
        metadata[name] = mutate(metadata[name].encode(), rng).decode("utf-8", "replace")


def _replace_one(values, rng):
    """Put something else where a value is, however deep."""
    while isinstance(values, dict) and values:
        name = rng.choice(sorted(values))
        if isinstance(values[name], dict) and values[name] and rng.random() >= 0.1:
            values = values[name]
            continue
        other = copy.deepcopy(rng.choice(_OTHERS))
        values[name] = "enormous" if isinstance(other, int) and other > 10**20 else other
        if rng.random() < 0.1:
            del values[name]
        return


def _break_a_tensor(tensors, metadata, rng):
    """One tensor with other values, another type or shape, or under another name."""
    names = sorted(tensors)
    other = [name for name in names if name.startswith(("evidence.", "analogues."))]
    name = rng.choice(other if rng.random() < 0.6 else names)
    tensor, way = tensors[name], rng.randrange(6)
    if way == 0:
        del tensors[name]
    elif way == 1:
        tensors[name + rng.choice((".x", ".scale"))] = tensor.clone()
    elif way == 2:
        tensors[name] = tensor.to(rng.choice(_DTYPES))
    elif way == 3:
        tensors[name] = rng.choice((tensor[:0], tensor[:1], tensor[None], tensor.reshape(-1)))
    else:
        flat = tensor.clone().reshape(-1)
        if way == 5:
            shuffled = torch.Generator().manual_seed(rng.randrange(99))
            flat = flat[torch.randperm(len(flat), generator=shuffled)]
        elif len(flat):
            flat[rng.randrange(len(flat))] = rng.choice((0, 1, 7, 100, -1))
        tensors[name] = flat.reshape(tensor.shape)
