"""The fields of a protobuf message, one by one, without its schema: only what is asked for is ever looked into.

Strings, bytes and messages inside are named by where they lie, so that a tensor of megabytes costs as much as an empty
one. How many fields are read is bounded by whoever reads.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tidegate.errors import MalformedBody

_VARINT_BYTES_MAX = 10
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}


class Field(NamedTuple):
    """One field: its number, and a whole number or where its bytes lie; fixed-width numbers are bytes too."""

    number: int
    value: int
    start: int
    end: int
    has_bytes: bool


def fields(data: bytes, start: int, end: int) -> Iterator[Field]:
    """The fields of the message in `data[start:end]`, in order.

    Raises:
        MalformedBody: it is no message: it ends within a field, or has one of an unknown wire type.
    """
    at = start
    while at < end:
        tag, at = read_varint(data, at, end)
        wire_type = tag & 7
        if wire_type == _VARINT:
            value, at = read_varint(data, at, end)
            yield Field(tag >> 3, value, at, at, has_bytes=False)
            continue
        if wire_type == _LENGTH:
            length, at = read_varint(data, at, end)
        elif wire_type in _FIXED_BYTES:
            length = _FIXED_BYTES[wire_type]
        else:
            raise MalformedBody(f"a protobuf field of wire type {wire_type}")
        if at + length > end:
            raise MalformedBody("a protobuf field is longer than its message")
        yield Field(tag >> 3, 0, at, at + length, has_bytes=True)
        at += length


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A whole number below 2^64, and where the next byte is; MalformedBody where it does not end."""
    value = shift = 0
    for place in range(at, min(at + _VARINT_BYTES_MAX, end)):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, place + 1
        shift += 7
    raise MalformedBody("a protobuf number does not end")


def signed(value: int) -> int:
    """An int64 as its varint says it."""
    return value - (1 << 64) if value >= 1 << 63 else value
