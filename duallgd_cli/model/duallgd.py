"""The whole network: spectrum encoder and denoiser, joined by the predicted fingerprint."""

from torch import nn

from duallgd_cli.model.denoiser import Denoiser
from duallgd_cli.model.encoder import FormulaTransformer
from duallgd_cli.model.settings import ModelSettings


class DualLGD(nn.Module):
    """Encoder and denoiser of one checkpoint.

    Args:
        settings: Sizes and process.
    """

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.settings = settings
        bits = settings.encoder.fingerprint_bits
        self.encoder = FormulaTransformer(settings.encoder)
        self.denoiser = Denoiser(settings.denoiser, bits, settings.diffusion.n_steps)
