"""What is known before the first answer: a model trained on public prompts, shipped with the package.

    prior.tgm = zlib(model file of the n-gram estimator)

It knows no tenants and no models, only how the size and the wording of a prompt move the length of an answer, at half
strength, since a stranger's traffic is only half like the public one. It is no more than a place to start from: it
holds no counts of answers, so that a tenant's own mean takes over from its first answer; its weights are learned on
like any others, with the step sizes of weights that have been seen before.
"""

import zlib
from functools import cache
from importlib.resources import files
from typing import TypeVar

from tidegate_estimator import model_file
from tidegate_estimator.estimator import Estimator

E = TypeVar("E", bound=Estimator)

FILE_NAME = "prior.tgm"
_STATE_BYTES_MAX = 32 << 20


@cache
def prior_state() -> bytes | None:
    """The prior for `NgramEstimator.load`; None where it is missing or damaged: start from the constant one then.

    Reads the disk and checks the whole state once a process, some 20 ms: for the start of a process.
    """
    try:
        return unpack_prior(files(__package__).joinpath(FILE_NAME).read_bytes())
    except (OSError, ValueError):
        return None


def from_prior(estimator: E) -> E:
    """The n-gram estimator, started from the prior where there is one."""
    state = prior_state()
    if state is not None:
        estimator.load(state)
    return estimator


def pack_prior(state: bytes) -> bytes:
    """A model file's bytes as the shipped file."""
    return zlib.compress(state, 9)


def unpack_prior(data: bytes) -> bytes:
    """What `pack_prior` was given.

    Raises:
        ValueError: it is damaged, or was made for another version of the features or of the format.
    """
    inflater = zlib.decompressobj()
    try:
        state = inflater.decompress(data, _STATE_BYTES_MAX)
    except zlib.error as error:
        raise ValueError(f"the prior is damaged: {error}") from None
    if not inflater.eof or inflater.unused_data:
        raise ValueError("the prior is damaged: it does not end where it should")
    model_file.unpack(state)
    return state
