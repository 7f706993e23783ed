"""The window estimator's learned state as bytes, for a state file.

    b"TGWE" | u16 version | u32 crc32 of the rest | u32 imputed | u32 keys | u32 models
    | history of all | keys x (u64 key | history) | models x (u32 model | f64 ln factor | f64 observations)
    history = u32 seen | u16 values | f32 values... | 16 f32 sums | 16 f32 counts

Little-endian. Nothing is taken over before all of it has been read and found in range.
"""

import struct
from array import array
from collections import OrderedDict
from collections.abc import Mapping
from math import isfinite
from zlib import crc32

from tidegate_estimator.history import BUCKETS, History
from tidegate_estimator.tokens import PromptTokens

MAGIC, VERSION = b"TGWE", 1
_HEAD = struct.Struct("<4sHI")
_COUNTS = struct.Struct("<III")
_HISTORY = struct.Struct("<IH")
_KEY = struct.Struct("<Q")
_MODEL = struct.Struct("<Idd")
_VALUE_MAX = 32.0  # above any ln(tokens) less its correction
_SUM_MAX = 1000.0


def pack(all_history: History, by_key: Mapping[int, History], prompts: PromptTokens, imputed: int) -> bytes:
    """The state as bytes."""
    rows = prompts.rows()
    parts = [_COUNTS.pack(imputed % 2**32, len(by_key), len(rows)), _pack_history(all_history)]
    for key, history in by_key.items():
        parts += (_KEY.pack(key), _pack_history(history))
    parts += [_MODEL.pack(*row) for row in rows]
    body = b"".join(parts)
    return _HEAD.pack(MAGIC, VERSION, crc32(body)) + body


def unpack(
    state: bytes, *, all_size: int, key_size: int, keys_max: int
) -> tuple[History, OrderedDict[int, History], PromptTokens, int]:
    """What `pack` was given; ValueError where the bytes are damaged or of another version."""
    try:
        return _unpack(state, all_size=all_size, key_size=key_size, keys_max=keys_max)
    except struct.error as error:
        raise ValueError(f"estimator state ends early: {error}") from None


def _unpack(
    state: bytes, *, all_size: int, key_size: int, keys_max: int
) -> tuple[History, OrderedDict[int, History], PromptTokens, int]:
    magic, version, check = _HEAD.unpack_from(state)
    body = state[_HEAD.size :]
    if magic != MAGIC or version != VERSION or check != crc32(body):
        raise ValueError("not an estimator state of this version, or damaged")
    imputed, keys, models = _COUNTS.unpack_from(body)
    if keys > keys_max:
        raise ValueError(f"estimator state holds {keys} keys, at most {keys_max} are possible")
    all_history, at = _unpack_history(body, _COUNTS.size, all_size)
    by_key: OrderedDict[int, History] = OrderedDict()
    for _ in range(keys):
        (key,) = _KEY.unpack_from(body, at)
        by_key[key], at = _unpack_history(body, at + _KEY.size, key_size)
    prompts = PromptTokens()
    prompts.restore([_MODEL.unpack_from(body, at + i * _MODEL.size) for i in range(models)])
    if at + models * _MODEL.size != len(body):
        raise ValueError("estimator state has bytes left over")
    return all_history, by_key, prompts, imputed


def _pack_history(history: History) -> bytes:
    count = len(history.values)
    return _HISTORY.pack(min(history.seen, 2**32 - 1), count) + struct.pack(
        f"<{count + 2 * BUCKETS}f", *history.values, *history.sums, *history.counts
    )


def _unpack_history(body: bytes, at: int, size: int) -> tuple[History, int]:
    """One history and where the next thing begins."""
    seen, count = _HISTORY.unpack_from(body, at)
    numbers = struct.unpack_from(f"<{count + 2 * BUCKETS}f", body, at + _HISTORY.size)
    values, sums, counts = numbers[:count], numbers[count : count + BUCKETS], numbers[count + BUCKETS :]
    if count > size or not all(isfinite(x) and abs(x) <= _VALUE_MAX for x in values):
        raise ValueError("estimator state: lengths out of range")
    if not all(abs(s) <= _SUM_MAX and 0.0 <= n <= _SUM_MAX for s, n in zip(sums, counts, strict=True)):
        raise ValueError("estimator state: corrections out of range")
    history = History(size)
    history.seen, history.values, history.sums, history.counts = (
        seen,
        array("f", values),
        array("f", sums),
        array("f", counts),
    )
    history.refresh()
    return history, at + _HISTORY.size + 4 * len(numbers)
