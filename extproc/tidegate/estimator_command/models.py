"""Model files: what an estimator starts from, and where it is written."""

from pathlib import Path

from tidegate.durable_file import read_file, replace_file
from tidegate.errors import FlagError
from tidegate.estimators import MODEL_BYTES_MAX
from tidegate_estimator import Estimator, GuardedEstimator, NgramEstimator
from tidegate_estimator.prior import from_prior


def starting_estimator(path: Path | None, flag: str, *, cold: bool) -> NgramEstimator:
    """The estimator in a file; without one, what the service starts from, or nothing at all where `cold`.

    Raises:
        FlagError: as `read_model`, or there are both a file and a cold start.
    """
    if path is not None:
        if cold:
            raise FlagError(f"--cold starts from nothing, {flag} from a file: give one of the two")
        return read_model(path, flag)
    if cold:
        return NgramEstimator()
    return from_prior(NgramEstimator())


def read_model(path: Path, flag: str) -> NgramEstimator:
    """The n-grams in a file; the service's guard over them, where the file holds one, is left out.

    Raises:
        FlagError: the file cannot be read, is damaged, or was written by another version.
    """
    estimator = NgramEstimator()
    _load(estimator, path, flag)
    return estimator


def read_state(path: Path, flag: str) -> bytes:
    """The content of a file, once all of it has been found good, the guard's part included; FlagError as above."""
    return _load(GuardedEstimator(), path, flag)


def _load(estimator: Estimator, path: Path, flag: str) -> bytes:
    try:
        state = read_file(path, MODEL_BYTES_MAX)
    except OSError as error:
        raise FlagError(f"{flag}: cannot read {str(path)!r}: {error.strerror or error}") from error
    if state is None:
        raise FlagError(f"{flag}: there is no file {str(path)!r}")
    if len(state) > MODEL_BYTES_MAX:
        raise FlagError(f"{flag}: {str(path)!r} is larger than {MODEL_BYTES_MAX >> 20} MiB: no model of ours")
    try:
        estimator.load(state)
    except ValueError as error:
        raise FlagError(f"{flag}: {str(path)!r} holds no usable model: {error}") from error
    return state


def write_model(path: Path, estimator: NgramEstimator) -> int:
    """Write what was learned; returns its bytes.

    Raises:
        FlagError: the disk refused it. An older file is then as it was.
    """
    state = estimator.dump()
    try:
        replace_file(path, state)
    except OSError as error:
        raise FlagError(f"--out: cannot write {str(path)!r}: {error.strerror or error}") from error
    return len(state)
