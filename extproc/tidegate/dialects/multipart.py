"""The small fields of a multipart/form-data body, by one pass over it that never looks into a file.

The boundary is what the body itself begins with: the dialect sees no headers, and clients that write a preamble before
it are not known. A body that lies about its boundary gains nothing by it: what costs is counted from its whole size.

Bounds: 64 parts, 1 KiB of headers a part, 64 KiB a field; what is beyond them is passed over. Linear: each delimiter is
searched for once, from where the last one was found.
"""

import re
from collections.abc import Iterator

from tidegate.errors import MalformedBody

PARTS_MAX = 64
HEADERS_BYTES_MAX = 1024
FIELD_BYTES_MAX = 64 * 1024
_BOUNDARY_BYTES_MAX = 72  # RFC 2046: 70 characters after two hyphens

_FIRST_LINE = re.compile(rb"(?:\r\n)?+(--[^\r\n]{1,70}+)\r\n")
_NAME = re.compile(rb"""content-disposition:[ \t]*+form-data[^\r\n]*?[; ]name="?+([^"\r\n;]{1,64}+)""", re.IGNORECASE)


def small_fields(body: bytes) -> dict[str, bytes]:
    """Values by name of the parts that are no files, the last of a name; whole or not at all.

    Raises:
        MalformedBody: it does not begin with a boundary, or has no part that is whole.
    """
    found = _FIRST_LINE.match(body)
    if found is None:
        raise MalformedBody("multipart/form-data: no boundary at its beginning")
    fields: dict[str, bytes] = {}
    parts = 0
    for start, end in _parts(body, b"\r\n" + found.group(1), found.end()):
        parts += 1
        _read_part(body, start, end, fields)
    if not parts:
        raise MalformedBody("multipart/form-data: no part that is whole")
    return fields


def _parts(body: bytes, delimiter: bytes, start: int) -> Iterator[tuple[int, int]]:
    for _ in range(PARTS_MAX):
        end = body.find(delimiter, start)
        if end < 0:
            return
        yield start, end
        start = end + len(delimiter)
        if body[start : start + 2] == b"--":
            return
        start = body.find(b"\r\n", start, start + HEADERS_BYTES_MAX) + 2  # the end of the delimiter's line
        if start < 2:
            return


def _read_part(body: bytes, start: int, end: int, fields: dict[str, bytes]) -> None:
    headers_end = body.find(b"\r\n\r\n", start, min(end, start + HEADERS_BYTES_MAX))
    if headers_end < 0 or end - headers_end > FIELD_BYTES_MAX:
        return
    headers = body[start:headers_end]
    name = _NAME.search(headers)
    if name is not None and b"filename" not in headers:
        fields[name.group(1).decode("utf-8", "replace")] = body[headers_end + 4 : end]
