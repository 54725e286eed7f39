"""Peaks from a profile spectrum: local maxima, each at the apex of a parabola."""

import numpy as np
from numpy.typing import NDArray

PROFILE_WARNING = "profile spectrum: peaks were picked as local maxima; centroid the file instead"


def pick_peaks(
    mz: NDArray[np.float64], intensity: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Local maxima of a profile spectrum.

    A maximum is a point above its left and not below its right neighbour. Its m/z is that of the
    parabola through the three points, kept between the neighbours; its intensity is the point's.
    No smoothing, no noise threshold, no deconvolution: good enough to go on, not a substitute for
    the vendor's centroiding.

    Args:
        mz: float64 (P,), ascending.
        intensity: float64 (P,).
    """
    padded = np.concatenate([[0.0], intensity, [0.0]])
    x = np.concatenate([mz[:1], mz, mz[-1:]])
    left, middle, right = padded[:-2], padded[1:-1], padded[2:]
    at = np.flatnonzero((middle > left) & (middle >= right) & (middle > 0)) + 1
    x0, x1, x2 = x[at - 1], x[at], x[at + 1]
    y0, y1, y2 = padded[at - 1], padded[at], padded[at + 1]
    rise, fall = (y1 - y0) * (x2 - x1), (y1 - y2) * (x1 - x0)
    shift = 0.5 * (rise * (x2 - x1) - fall * (x1 - x0))
    apex = x1 + np.divide(shift, rise + fall, out=np.zeros_like(x1), where=rise + fall > 0)
    return np.clip(apex, x0, x2), y1
