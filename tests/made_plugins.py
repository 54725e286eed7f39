"""Packages with an entry point of the group of plug-ins, as an installer would leave them."""

GROUP = "duallgd.weights"
SOURCE = """
from duallgd_cli.errors import WeightsError

def can_load(path):
    return path.read_bytes().startswith(b"made")

def load(path, runtime):
    from tests.stub_model import stub_model
    return stub_model()

def describe(path):
    return {
        "weights": {"name": path.name, "sha256": "0" * 64, "network": "made of text"},
        "parameters": {"all of it": 3},
    }
"""


def install(folder, monkeypatch, module, source=None, points=f"[{GROUP}]\nmade = {{}}\n"):
    """Make a module's entry points visible; the module is written too if its source is given."""
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(points.format(module))
    if source is not None:
        (folder / f"{module}.py").write_text(source)
    monkeypatch.syspath_prepend(folder)
