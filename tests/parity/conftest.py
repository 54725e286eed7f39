"""Where the reference arrays lie, and readers that skip with a reason when a file is missing."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

DEFAULT = Path(__file__).resolve().parents[2] / ".." / "shared" / "parity"


class ParityFolder:
    """Files of the folder `$DUALLGD_PARITY`, by default `../shared/parity` beside the checkout."""

    def __init__(self, path):
        self.path = path

    def find(self, name):
        path = self.path / name
        if not path.exists():
            pytest.skip(f"needs {name} in {self.path} (set DUALLGD_PARITY)")
        return path

    def json(self, name):
        return json.loads(self.find(name).read_text(encoding="utf-8"))

    def arrays(self, name):
        """Arrays of an .npz file as tensors, by name."""
        with np.load(self.find(name)) as stored:
            return {key: torch.from_numpy(stored[key]) for key in stored.files}

    def weights(self, name):
        from safetensors.torch import load_file

        return load_file(self.find(name))


@pytest.fixture(scope="session")
def parity():
    path = Path(os.environ.get("DUALLGD_PARITY", DEFAULT)).resolve()
    if not path.is_dir():
        pytest.skip(f"needs the reference arrays in {path} (set DUALLGD_PARITY)")
    return ParityFolder(path)


@pytest.fixture(scope="session")
def variants(parity):
    return parity.json("narrow_variants.json")
