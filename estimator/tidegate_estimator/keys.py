"""One row of figures a tenant and model: what calibrates the shared weights to it; at most 20,000 rows.

    row = [sum, count, theta, unused | 64 bins of residuals]

All rows are allocated once: the memory is the same for one tenant and for a million. The key taught longest ago makes
room for a new one.
"""

from collections import OrderedDict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tidegate_estimator.arrays import Floats

KEYS_MAX = 20_000
SUM, COUNT, THETA = range(3)
BINS = 64
HISTOGRAM = slice(4, 4 + BINS)
WIDTH = 4 + BINS

NOBODY: Floats = np.zeros(WIDTH, np.float32)  # the row of a key never seen
NOBODY.flags.writeable = False


class Keys:
    """Rows by 64-bit key."""

    def __init__(self, rows_max: int = KEYS_MAX) -> None:
        self._rows: Floats = np.zeros((rows_max, WIDTH), np.float32)
        self._places: OrderedDict[int, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._places)

    def find(self, key: int) -> Floats:
        """The key's row to read; NOBODY where it has none."""
        place = self._places.get(key)
        return NOBODY if place is None else self._row(place)

    def touch(self, key: int) -> Floats:
        """The key's row to change, made of zeros where it has none."""
        place = self._places.get(key)
        if place is None:
            place = len(self._places)
            if place == len(self._rows):
                place = self._places.popitem(last=False)[1]
            self._places[key] = place
            self._rows[place] = 0.0
        self._places.move_to_end(key)
        return self._row(place)

    def items(self) -> Iterator[tuple[int, Floats]]:
        """Keys and their rows, taught longest ago first."""
        return ((key, self._row(place)) for key, place in self._places.items())

    def columns(self) -> tuple[npt.NDArray[np.uint64], Floats]:
        """Copies of all keys and of their rows, taught longest ago first."""
        keys = np.fromiter(self._places.keys(), np.uint64, len(self._places))
        return keys, self._rows[np.fromiter(self._places.values(), np.int64, len(self._places))]

    def _row(self, place: int) -> Floats:
        row: Floats = self._rows[place]
        return row
