"""Small parts that several modules of the reference network share."""

from torch import Tensor, nn

from duallgd_cli.model.linear import Linear


class Perceptron(nn.Module):
    """Two linear layers with a ReLU between them.

    Args:
        inputs: Input channels.
        hidden: Channels between the layers.
        outputs: Output channels.
    """

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.inner = Linear(inputs, hidden)
        self.outer = Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs)."""
        return self.outer(self.inner.relu(x))


class PostNorm(nn.Module):
    """Residual and norm around an attention's change, then around a feed-forward network.

    Args:
        width: Channels.
        hidden: Channels of the feed-forward network.
        dropout: Share of channels dropped while training.
    """

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.up = Linear(width, hidden)
        self.down = Linear(hidden, width)
        self.norm_mixed = nn.LayerNorm(width)
        self.norm_fed = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, change: Tensor) -> Tensor:
        """New states, (..., width) each."""
        x = self.norm_mixed(x + self.dropout(change))
        fed = self.down(self.dropout(self.up.relu(x)))
        return self.norm_fed(x + self.dropout(fed))


class Film(nn.Module):
    """Feature-wise linear modulation by the global state (equation 8).

    Args:
        global_width: Channels of the global state.
        width: Channels of the stream.
    """

    def __init__(self, global_width: int, width: int) -> None:
        super().__init__()
        self.gain = Linear(global_width, width)
        self.shift = Linear(global_width, width)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Modulate x (B, rows, width) by y (B, global_width)."""
        return (1 + self.gain(y)).unsqueeze(1) * x + self.shift(y).unsqueeze(1)
