"""What the studies take of the authors' network, which is a plug-in: plugins/authors_network."""

import sys

try:
    from duallgd_authors_network import weights_file
    from duallgd_authors_network.denoiser import ReferenceDenoiser, StreamAttention
    from duallgd_authors_network.features import atoms_of, with_features
    from duallgd_authors_network.generator import AuthorsNoise, bound
    from duallgd_authors_network.settings import ReferenceDenoiserSettings, ReferenceSettings
except ModuleNotFoundError as missing:
    if missing.name != "duallgd_authors_network":
        raise
    sys.exit(
        "error: this is about the authors' network; run 'pip install ./plugins/authors_network'"
    )

__all__ = [
    "AuthorsNoise",
    "ReferenceDenoiser",
    "ReferenceDenoiserSettings",
    "ReferenceSettings",
    "StreamAttention",
    "atoms_of",
    "bound",
    "weights_file",
    "with_features",
]
