"""Where the reference arrays lie, and readers that skip with a reason when a file is missing."""

import json
import re

import numpy as np
import pytest
import torch

from plugins.authors_network.tests.parity.folder import FOLDER

DEFAULT_RECIPE_SEED = 20260701


class ParityFolder:
    """Files of one folder of reference arrays."""

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

    def recipe_seed(self):
        """What the folder's README adds to the checksum of a name before it draws weights."""
        readme = self.path / "README.md"
        text = readme.read_text(encoding="utf-8") if readme.exists() else ""
        found = re.search(r"crc32\([^)]*\)\s*\+\s*(\d+)", text)
        return int(found[1]) if found else DEFAULT_RECIPE_SEED

    def weights(self, name):
        from safetensors.torch import load_file

        return load_file(self.find(name))


@pytest.fixture(scope="session")
def parity():
    if not FOLDER.is_dir():
        pytest.skip(f"needs the reference arrays in {FOLDER} (set DUALLGD_PARITY)")
    return ParityFolder(FOLDER)


@pytest.fixture(scope="session")
def variants(parity):
    return parity.json("narrow_variants.json")
