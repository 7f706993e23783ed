"""Who asks which model, as hashes: made once for each pair of names, not at each request."""

from functools import lru_cache

import numpy as np
from msgspec import Struct

from tidegate_estimator.arrays import Wide
from tidegate_estimator.categorical import KINDS, name_hash, owners
from tidegate_estimator.hashing import KIND, RIGHT, WORD_MASK
from tidegate_estimator.window import key_of

_KEPT_MAX = 4096
_NAMES_CHARS_MAX = 256  # longer names are not kept, or a caller could fill the memory with them


class Identity(Struct, frozen=True, gc=False):
    """A tenant and a model.

    Attributes:
        key: 64-bit hash of both.
        tenant, model: 32-bit hashes.
        sums: of each categorical feature, the part that does not change from request to request.
    """

    key: int
    tenant: int
    model: int
    sums: Wide


def identity_of(tenant: str, model: str) -> Identity:
    """The hashes of two names."""
    return _kept(tenant, model) if len(tenant) + len(model) <= _NAMES_CHARS_MAX else _made(tenant, model)


def _made(tenant_name: str, model_name: str) -> Identity:
    tenant, model = name_hash(tenant_name), name_hash(model_name)
    parts = zip(KINDS, owners(tenant, model), strict=True)
    sums = np.array([(kind * KIND + owner * RIGHT) & WORD_MASK for kind, owner in parts], np.uint64)
    sums.flags.writeable = False  # shared by all requests of the two
    return Identity(key_of(tenant_name, model_name), tenant, model, sums)


_kept = lru_cache(_KEPT_MAX)(_made)
