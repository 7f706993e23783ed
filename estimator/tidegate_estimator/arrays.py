"""Types of the numpy arrays used here."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Wide = npt.NDArray[np.uint64]
Octets = npt.NDArray[np.uint8]
