"""The whole network: spectrum encoder and denoiser, joined by the predicted fingerprint."""

from torch import nn

from duallgd_cli.errors import WeightsError
from duallgd_cli.model.denoiser import Denoiser
from duallgd_cli.model.encoder import FormulaTransformer
from duallgd_cli.model.settings import FULL, ModelSettings


class DualLGD(nn.Module):
    """Encoder and denoiser of one checkpoint.

    Args:
        settings: Sizes and process.

    Raises:
        WeightsError: They are those of a study's network.
    """

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        if settings.variant != FULL:
            raise WeightsError(
                f"the network {settings.variant!r} belongs to the studies examples/studies/"
                "ablations.py and leak.py, which alone can run it; use other weights"
            )
        self.settings = settings
        bits = settings.encoder.fingerprint_bits
        self.encoder = FormulaTransformer(settings.encoder)
        self.denoiser = Denoiser(settings.denoiser, bits, settings.diffusion.n_steps)
