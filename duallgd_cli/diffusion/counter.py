"""Random numbers by counter: the i-th number of a stream, computed alike on every device.

SplitMix64 (Steele, Lea and Flood, 2014) in 64-bit integers, whose products wrap round: exact, so a
CPU and a GPU get the same numbers, and any part of a stream costs only itself.
"""

from typing import Final

import torch
from torch import Tensor

_WORD: Final = (1 << 64) - 1
_STEP: Final = 0x9E3779B97F4A7C15
# Shift, then multiply, twice; then shift once more.
_ROUNDS: Final = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT: Final = 31
_KEPT_BITS: Final = 24


def stream_key(seed: int, stream: int) -> int:
    """Where the stream with this number begins for a seed, 0 to 2^64 - 1."""
    return _mixed((_mixed(seed & _WORD) + (stream + 1) * _STEP) & _WORD)


def uniform(key: int, start: int, stop: int, device: torch.device) -> Tensor:
    """The numbers `start` to `stop` of a stream, in [0, 1) in steps of 2^-24, float32."""
    word = torch.arange(start + 1, stop + 1, device=device)
    word *= _signed(_STEP)
    word += _signed(key)
    shifted = torch.empty_like(word)
    for shift, factor in _ROUNDS:
        _fold(word, shift, shifted)
        word *= _signed(factor)
    _fold(word, _LAST_SHIFT, shifted)
    word >>= 64 - _KEPT_BITS
    word &= (1 << _KEPT_BITS) - 1
    return word.float().mul_(2.0**-_KEPT_BITS)


def _fold(word: Tensor, shift: int, shifted: Tensor) -> None:
    """Exclusive or of a word with itself moved right, in place; the sign bit is a bit like any."""
    torch.bitwise_right_shift(word, shift, out=shifted)
    shifted &= (1 << (64 - shift)) - 1
    word ^= shifted


def _mixed(word: int) -> int:
    for shift, factor in _ROUNDS:
        word = ((word ^ (word >> shift)) * factor) & _WORD
    return word ^ (word >> _LAST_SHIFT)


def _signed(word: int) -> int:
    """The signed number of the same 64 bits."""
    return word - (1 << 64) if word >> 63 else word
