"""Arrays of numbers, and how a saved one is read back."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def saved_array(record: Mapping[str, object], name: str, shape: tuple[int, ...]) -> Floats:
    """The named numbers of a saved record; ValueError where they are not finite or not of that shape."""
    try:
        array: Floats = np.array(record[name], dtype=np.float64)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name}: not {shape} numbers") from error
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"{name}: not {shape} finite numbers")
    return array
