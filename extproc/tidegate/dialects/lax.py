"""Reading optional fields: a field of the wrong type reads as absent, it never spoils the body.

The engine judges the field itself and answers 400 where it minds. What it would not mind must not hide a cost either:
engines built on pydantic take `"n": "8"` and `"n": 8.0` for 8, so numbers are read from decimal strings too, and flags
from 0 and 1.
"""

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import msgspec

from tidegate.dialects.repair import repaired
from tidegate.errors import MalformedBody

T = TypeVar("T")

OptionalRaw: TypeAlias = msgspec.Raw | msgspec.UnsetType
"""A field kept as its JSON text, or UNSET where the body does not have it."""

_int = msgspec.json.Decoder(int, strict=False)
_float = msgspec.json.Decoder(float, strict=False)
_bool = msgspec.json.Decoder(bool, strict=False)
_text = msgspec.json.Decoder(str)
_list = msgspec.json.Decoder(list[msgspec.Raw])

LIST_BYTES_MAX, LIST_LEN_BEYOND = 256 * 1024, 64
"""A list of more bytes is not counted item by item: it is taken for one of so many."""

# RecursionError: deep nesting. UnicodeDecodeError: text that is not UTF-8; a ValueError, as all of msgspec's own are.
UNREADABLE = (ValueError, RecursionError)


def read(decoder: msgspec.json.Decoder[T], raw: OptionalRaw) -> T | None:
    """What the decoder makes of the field, or None where it is absent or of another type."""
    if raw is msgspec.UNSET:
        return None
    try:
        return decoder.decode(raw)
    except UNREADABLE:
        return None


def read_int(raw: OptionalRaw, *, at_least: int, at_most: int) -> int | None:
    """A whole number: None below `at_least`, where it means nothing, and cut to `at_most`."""
    value = read(_int, raw)
    return None if value is None or value < at_least else min(value, at_most)


def read_float(raw: OptionalRaw) -> float | None:
    """A number; JSON has no infinities, and one that is too large to hold reads as absent."""
    return read(_float, raw)


def read_bool(raw: OptionalRaw) -> bool:
    """A flag; absent is false."""
    return read(_bool, raw) is True


def read_text(raw: OptionalRaw, *, chars_max: int) -> str:
    """A string, cut to `chars_max`; absent is empty."""
    value = read(_text, raw)
    return "" if value is None else value[:chars_max]


def count_items(raw: OptionalRaw) -> int:
    """Length of a list; absent is 0, and one of more than 256 KiB counts as 64."""
    if raw is not msgspec.UNSET and memoryview(raw).nbytes > LIST_BYTES_MAX:
        return LIST_LEN_BEYOND
    items = read(_list, raw)
    return 0 if items is None else len(items)


def is_given(raw: OptionalRaw) -> bool:
    """The field is there and says something: not null, not false."""
    return raw is not msgspec.UNSET and bytes(memoryview(raw)[:5]) not in (b"null", b"false")


def size_chars(raw: OptionalRaw) -> int:
    """Characters that a field's JSON adds to the prompt: its length as the caller wrote it, in bytes."""
    return memoryview(raw).nbytes if raw is not msgspec.UNSET and is_given(raw) else 0


def read_leniently(decode: Callable[[bytes], T], body: bytes) -> T:
    """What `decode` makes of a whole body, tried a second time on what only a Python engine would accept.

    Raises:
        MalformedBody: neither is what it reads; the message says why.
    """
    try:
        return decode(body)
    except UNREADABLE:
        pass
    try:
        return decode(repaired(body))
    except RecursionError:
        raise MalformedBody("JSON is nested too deep") from None
    except ValueError as error:
        raise MalformedBody(str(error)[:200]) from None


def error_text(message: str) -> str:
    """A refusal's message as text that any encoder takes: half a surrogate pair must not stop it."""
    return message.encode("utf-8", "replace").decode()
