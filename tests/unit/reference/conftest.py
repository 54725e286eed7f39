import pytest
import torch


@pytest.fixture
def saved(tmp_path):
    """A function that writes a checkpoint as the authors do, and gives its path."""

    def save(content):
        path = tmp_path / "authors.ckpt"
        torch.save(content, path)
        return path

    return save
