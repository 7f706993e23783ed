"""A second look at JSON that Python engines accept and the JSON standard does not.

Most engines read bodies with Python's json module. It takes a byte order mark, the words NaN and Infinity, and half of
a surrogate pair (a client that cut a string inside an emoji sends one). A strict reader refuses them, so a caller could
hide the cost of any prompt behind one such mark. This pass makes them standard; it runs only over bodies that were
refused once, and takes linear time: every match is possessive, and a string that never ends still matches as one.
"""

import re

_BOM = b"\xef\xbb\xbf"
_STRING_OR_WORD = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|-?Infinity|NaN', re.DOTALL)
# The first of a run of backslashes, the pairs after it (text), and the escape that an odd run begins.
_SURROGATES = re.compile(
    rb"\\(?<!\\\\)((?:\\\\)*+)u[dD](?:([89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|[89a-fA-F][0-9a-fA-F]{2})"
)
_REPLACEMENT = rb"\ufffd"


def repaired(body: bytes) -> bytes:
    """The body without byte order mark, its NaN and infinities as null, half surrogate pairs as U+FFFD."""
    body = body.removeprefix(_BOM)
    if b"\\ud" in body or b"\\uD" in body:
        body = _SURROGATES.sub(_whole_pair, body)
    if b"NaN" in body or b"Infinity" in body:
        body = _STRING_OR_WORD.sub(_string_or_null, body)
    return body


def _whole_pair(found: re.Match[bytes]) -> bytes:
    return found.group() if found.group(2) else found.group(1) + _REPLACEMENT


def _string_or_null(found: re.Match[bytes]) -> bytes:
    text = found.group()
    return text if text.startswith(b'"') else b"null"
