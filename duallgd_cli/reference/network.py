"""The reference's parts together: encoder, projection of its fingerprint, denoiser."""

from torch import Tensor, nn

from duallgd_cli.reference.denoiser import build
from duallgd_cli.reference.mist import FormulaPeaks, ReferenceEncoder
from duallgd_cli.reference.settings import ReferenceSettings


class ReferenceDualLGD(nn.Module):
    """The authors' fine-tuned system.

    Args:
        settings: Sizes and process.
    """

    def __init__(self, settings: ReferenceSettings) -> None:
        super().__init__()
        self.settings = settings
        bits = settings.encoder.fingerprint_sizes[-1]
        self.encoder = ReferenceEncoder(settings.encoder)
        self.projection = nn.Linear(bits, settings.denoiser.condition_width)
        self.denoiser = build(settings.denoiser)

    def condition(self, peaks: FormulaPeaks) -> Tensor:
        """What conditions the denoiser, (B, condition_width), from annotated spectra.

        Called `downproject_4096` in the authors' settings: probabilities of all bits through one
        linear layer, without an activation.
        """
        return self.projection(self.encoder(peaks))
