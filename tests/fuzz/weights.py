"""Broken weights files: one sentence and exit code 69, or candidates as ever."""

import copy
import json
from dataclasses import replace

import numpy as np
import torch

from duallgd_cli.checkpoint.format import Checkpoint, read_tensors, save, write_tensors
from duallgd_cli.chem.elements import FINGERPRINT_BITS
from duallgd_cli.data.simulation import FragmentModel
from duallgd_cli.sources.collection import Collection
from duallgd_cli.train.scorers import ScorerModel
from examples.make_examples import SPECTRA, mgf
from tests.fuzz.loop import assert_sentence, fuzz, mutate, run
from tests.made_graphs import small_settings, stirred
from tests.made_prepared import molecules_of

# Settings of a run in a weights file may exclude those of the command: a usage error.
EXIT_CODES = {0, 2, 69}
_NUMBERS = (0, -1, 1, 3, 2**16, 2**31, 10**12, 10**5000, 0.5, float("nan"), float("inf"), 1e308)
_OTHERS = (None, True, "", "quadratic", "stride0", [], {}, [[]], [0.2] * 5)
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
    save(path, replace(checkpoint), short_codes=True)
    return path


def fuzz_weights(count, seed, folder):
    """Break a weights file in `count` ways; how often `predict` ended with each code."""
    sound = sound_weights(folder / "sound.safetensors")
    spectra, broken = folder / "one.mgf", folder / "broken.safetensors"
    spectra.write_text(mgf(SPECTRA[:1]), encoding="utf-8")
    predicting = (
        "predict", spectra, "-o", folder / "out.csv", "--weights", broken, "--samples", "2",
        "--steps", "1", "--threads", "1", "--quiet", "--force",
    )  # fmt: skip

    def try_one(rng):
        rng.choice((_bytes, _metadata, _metadata, _tensors, _tensors))(sound, broken, rng)
        code, err = run(*predicting)
        assert code in EXIT_CODES, f"exit code {code}: {err}"
        if code:
            assert_sentence(err.splitlines()[-1])
        yield f"predict {code}"

    return fuzz(count, f"weights {seed}", try_one)


def _bytes(sound, broken, rng):
    broken.write_bytes(mutate(sound.read_bytes(), rng))


def _metadata(sound, broken, rng):
    """Other values in the JSON of one entry, with a digest that fits."""
    tensors, metadata = read_tensors(sound)
    name = rng.choice(sorted(metadata))
    if name in {"settings", "record", "ranking"} and rng.random() < 0.85:
        values = json.loads(metadata[name])
        for _ in range(rng.randint(1, 3)):
            _replace_one(values, rng)
        metadata[name] = _dumped(values)
    else:
        metadata[name] = mutate(metadata[name].encode(), rng).decode("utf-8", "replace")
    write_tensors(broken, tensors, metadata)


def _dumped(values):
    """JSON that may hold a number of more digits than Python converts."""
    text = json.dumps(values, default=str)
    return text.replace('"enormous"', "1" + "0" * 5000)


def _replace_one(values, rng):
    """Put something else where a value is, however deep."""
    while isinstance(values, dict) and values:
        name = rng.choice(sorted(values))
        if not isinstance(values[name], dict) or not values[name] or rng.random() < 0.1:
            other = copy.deepcopy(rng.choice((*_NUMBERS, *_OTHERS)))
            huge = isinstance(other, int) and other > 10**20
            values[name] = "enormous" if huge else other
            if rng.random() < 0.1:
                del values[name]
            return
        values = values[name]


def _tensors(sound, broken, rng):
    """One tensor with other values, another type or shape, or under another name."""
    tensors, metadata = read_tensors(sound)
    name = rng.choice(sorted(tensors))
    other = [n for n in sorted(tensors) if n.startswith(("evidence.", "analogues."))]
    name = rng.choice(other) if rng.random() < 0.6 else name
    tensor = tensors[name]
    way = rng.randrange(6)
    if way == 0:
        del tensors[name]
    elif way == 1:
        tensors[name + rng.choice((".x", ".scale"))] = tensor.clone()
    elif way == 2:
        tensors[name] = tensor.to(rng.choice(_DTYPES))
    elif way == 3:
        tensors[name] = rng.choice((tensor[:0], tensor[:1], tensor[None], tensor.reshape(-1)))
    elif way == 4:
        flat = tensor.clone().reshape(-1)
        flat[rng.randrange(len(flat))] = rng.choice((0, 1, 7, 100, -1)) if len(flat) else 0
        tensors[name] = flat.reshape(tensor.shape)
    else:
        flat = tensor.reshape(-1).numpy().copy()
        np.random.default_rng(rng.randrange(99)).shuffle(flat)
        tensors[name] = torch.from_numpy(flat).reshape(tensor.shape)
    write_tensors(broken, tensors, metadata)
