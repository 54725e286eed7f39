"""Compiled layers for training on a GPU.

The layers are where the time goes, and alike, so compiling the layer rather than the network takes
seconds instead of minutes and serves every layer and size at once.
"""

from duallgd_cli.model.duallgd import DualLGD


def compile_layers(model: DualLGD, backend: str = "inductor") -> None:
    """Compile the layers of encoder and denoiser in place; parameters keep their names.

    The first sizes are compiled as they are, the second as any size.

    Args:
        model: Changed in place.
        backend: Of `torch.compile`.
    """
    for layer in (*model.denoiser.layers, *model.encoder.layers):
        layer.compile(backend=backend)
