"""The n-gram estimator's state as bytes, for a model file; reading and writing the file is the caller's.

    b"TGNG" | u32 1 | u32 crc32 of the rest | u32 size of meta | meta as JSON | arrays, in the order of meta
    b"TGNG" | u32 2 | u32 crc32 of size and guard | u32 size of guard | guard | the above, whole

meta names the feature version and each array with its type and length. Only rows that were ever taught are stored.
Weights are stored in 16 bits; sums of squares outgrow them. Version 2 is what the service keeps: the state of the guard
over the n-grams comes first (see `guarded`), and who wants the n-grams alone passes over it. Little-endian. Nothing is
taken over before all of it has been read and found in range.
"""

import json
import struct
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from tidegate_estimator import features
from tidegate_estimator.distribution_head import BUCKETS, ROWS
from tidegate_estimator.keys import BINS, KEYS_MAX, WIDTH
from tidegate_estimator.mean_head import SQUARES_START as MEAN_SQUARES_START
from tidegate_estimator.ngram_state import NgramState

MAGIC, VERSION, GUARDED = b"TGNG", 1, 2
_HEAD = struct.Struct("<4sIII")
_BODY_AT = 12  # what the check covers
_META_BYTES_MAX = 4096
_LIMIT = 1e9
_NOT_OURS = "not an estimator state of this version, or damaged"

Arrays = dict[str, npt.NDArray[Any]]
_TYPES = {
    "mean_rows": "<u4",
    "mean_weights": "<f2",
    "mean_squares": "<f4",
    "distribution_rows": "<u2",
    "distribution_weights": "<f2",
    "distribution_squares": "<f4",
    "keys": "<u8",
    "key_rows": "<f4",
    "residuals": "<f8",
    "figures": "<f8",
    "models": "<u4",
    "model_factors": "<f8",
}


def pack(state: NgramState) -> bytes:
    """The state as bytes."""
    return encode(freeze(state))


def encode(frozen: Arrays) -> bytes:
    """What `freeze` gave as bytes; the longer part of the work, and good in any thread."""
    arrays = {name: array.astype(_TYPES[name]) for name, array in frozen.items()}
    lengths = [[name, _TYPES[name], array.size] for name, array in arrays.items()]
    meta = json.dumps({"features": features.VERSION, "arrays": lengths}).encode()
    body = b"".join([struct.pack("<I", len(meta)), meta, *(array.tobytes() for array in arrays.values())])
    return MAGIC + struct.pack("<II", VERSION, crc32(body)) + body


def unpack(data: bytes) -> NgramState:
    """What `pack` was given, a guard's state before it or not.

    Raises:
        ValueError: the bytes are damaged, of another version or of other features.
    """
    ngrams, _ = split(data)
    magic, version, check, meta_bytes = _head(ngrams)
    if magic != MAGIC or version != VERSION or check != crc32(memoryview(ngrams)[_BODY_AT:]):
        raise ValueError(_NOT_OURS)
    if meta_bytes > _META_BYTES_MAX:
        raise ValueError("estimator state has no readable description")
    at = _HEAD.size + meta_bytes
    return _state_of(_read_arrays(ngrams, at, _lengths(ngrams[_HEAD.size : at])))


def join(ngrams: bytes, guard: bytes) -> bytes:
    """The n-grams' state, as `pack` or `encode` gave it, and the guard's in one."""
    part = struct.pack("<I", len(guard)) + guard
    return b"".join([MAGIC, struct.pack("<II", GUARDED, crc32(part)), part, ngrams])


def split(data: bytes) -> tuple[bytes, bytes | None]:
    """The n-grams' state, unread, and the guard's; None where there is none.

    Raises:
        ValueError: the guard's part is damaged.
    """
    magic, version, check, size = _head(data)
    if magic != MAGIC or version != GUARDED:
        return data, None
    end = _HEAD.size + size
    if end > len(data) or check != crc32(memoryview(data)[_BODY_AT:end]):
        raise ValueError(_NOT_OURS)
    return data[end:], data[_HEAD.size : end]


def _head(data: bytes) -> tuple[bytes, int, int, int]:
    """Magic, version, check and the size of what comes first."""
    if len(data) < _HEAD.size:
        raise ValueError("estimator state ends early")
    magic, version, check, size = _HEAD.unpack_from(data)
    return magic, version, check, size


def _lengths(meta: bytes) -> list[int]:
    """The arrays' lengths, in the order of _TYPES."""
    try:
        read = json.loads(meta)
        kept = read["features"] == features.VERSION
        lengths = [int(size) for _, _, size in read["arrays"]]
        layout = [(name, kind) for name, kind, _ in read["arrays"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"estimator state has no readable description: {error!r}") from None
    if not kept or layout != list(_TYPES.items()) or min(lengths) < 0:
        raise ValueError("estimator state is of other features or has another layout")
    return lengths


def _read_arrays(data: bytes, at: int, lengths: list[int]) -> Arrays:
    arrays: Arrays = {}
    for (name, kind), count in zip(_TYPES.items(), lengths, strict=True):
        end = at + count * np.dtype(kind).itemsize
        if end > len(data):
            raise ValueError("estimator state ends early")
        arrays[name] = np.frombuffer(data[at:end], kind)
        at = end
    if at != len(data):
        raise ValueError("estimator state has bytes left over")
    return arrays


def freeze(state: NgramState) -> Arrays:
    """Copies of all that is worth keeping; a few milliseconds."""
    keys, key_rows = state.keys.columns()
    mean, distribution = state.mean_head, state.distribution_head
    # As they will be stored: a weight that 16 bits round to nothing would be kept once and be gone the next time.
    mean_rows = np.flatnonzero((mean.weights.astype("<f2") != 0.0) | (mean.squares != MEAN_SQUARES_START))
    rows = np.flatnonzero(distribution.weights.astype("<f2").any(axis=1))
    models = state.prompts.rows()
    return {
        "mean_rows": mean_rows,
        "mean_weights": mean.weights[mean_rows],
        "mean_squares": mean.squares[mean_rows],
        "distribution_rows": rows,
        "distribution_weights": distribution.weights[rows],
        "distribution_squares": distribution.squares[rows],
        "keys": keys,
        "key_rows": key_rows,
        "residuals": state.residuals.bins.copy(),
        "figures": np.array((mean.sum, mean.count, state.calibration.theta)),
        "models": np.array([model for model, _, _ in models], np.uint32),
        "model_factors": np.array([row[1:] for row in models], np.float64),
    }


def _state_of(arrays: Arrays) -> NgramState:
    """The state; ValueError where a figure cannot be one of ours."""
    _check(arrays)
    state = NgramState()
    mean, distribution = state.mean_head, state.distribution_head
    mean.weights[arrays["mean_rows"]] = arrays["mean_weights"]
    mean.squares[arrays["mean_rows"]] = arrays["mean_squares"]
    rows = arrays["distribution_rows"]
    distribution.weights[rows] = arrays["distribution_weights"].reshape(-1, BUCKETS)
    distribution.squares[rows] = arrays["distribution_squares"].reshape(-1, BUCKETS)
    for key, row in zip(arrays["keys"].tolist(), arrays["key_rows"].reshape(-1, WIDTH), strict=True):
        state.keys.touch(key)[:] = row
    state.residuals.bins = arrays["residuals"].copy()
    mean.sum, mean.count, state.calibration.theta = arrays["figures"].tolist()
    factors = arrays["model_factors"].reshape(-1, 2).tolist()
    state.prompts.restore([(m, f, n) for m, (f, n) in zip(arrays["models"].tolist(), factors, strict=True)])
    return state


def _check(arrays: Arrays) -> None:
    size = {name: array.size for name, array in arrays.items()}
    consistent = (
        size["mean_rows"] == size["mean_weights"] == size["mean_squares"]
        and size["distribution_rows"] * BUCKETS == size["distribution_weights"] == size["distribution_squares"]
        and size["keys"] * WIDTH == size["key_rows"]
        and size["keys"] <= KEYS_MAX
        and size["residuals"] == BINS
        and size["figures"] == 3
        and size["models"] * 2 == size["model_factors"]
    )
    if not consistent:
        raise ValueError("estimator state: arrays do not fit each other")
    if (arrays["mean_rows"] >= 2**features.ROW_BITS).any() or (arrays["distribution_rows"] >= ROWS).any():
        raise ValueError("estimator state: rows out of range")
    if not all(
        (np.abs(array.astype(np.float64)) <= _LIMIT).all() for name, array in arrays.items() if "f" in _TYPES[name]
    ):
        raise ValueError("estimator state: figures out of range")
    if (arrays["mean_squares"] <= 0.0).any() or (arrays["distribution_squares"] <= 0.0).any():
        raise ValueError("estimator state: squares out of range")
