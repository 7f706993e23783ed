"""Lists that could only be meant to hurt: they are never built, and count by their size alone.

32 MiB of `{},` are eleven million turns: five seconds and two gigabytes of a process that others wait for. So a long
list is looked at before it is built. In JSON a quote within a text is escaped, so a brace before a bare quote begins an
object (an empty one ends at once, before a comma or a bracket), and a comma between two bare quotes ends a text; more
than 65,536 of these make a crowd. A long text, code as well, has hardly any.
"""

import re
from itertools import islice
from typing import TypeVar

import msgspec

from tidegate.dialects import openai_body
from tidegate.dialects.lax import OptionalRaw

BYTES_MIN = 128 * 1024  # what is shorter is built in a few milliseconds, whatever it is
ELEMENTS_MAX = 65_536
_QUOTES_AN_ELEMENT = 8

_BETWEEN_TEXTS = re.compile(rb'"[ \t\r\n]*+,[ \t\r\n]*+"')
_ELEMENT = re.compile(rb'\{[ \t\r\n]*+(?:"|\}[ \t\r\n]*+[],}])|' + _BETWEEN_TEXTS.pattern)

T = TypeVar("T")


def is_crowd(listed: bytes) -> bool:
    """Whether a JSON text has more elements than anybody means; linear, and two quick counts for a text of few."""
    if len(listed) < BYTES_MIN:
        return False
    if listed.count(b"{") <= ELEMENTS_MAX and listed.count(b'"') <= _QUOTES_AN_ELEMENT * ELEMENTS_MAX:
        return False
    return _has_more(_ELEMENT, listed)


def is_crowd_of_texts(listed: bytes) -> bool:
    """The same of a list that holds texts and nothing else."""
    if len(listed) < BYTES_MIN or listed.count(b'"') <= 2 * ELEMENTS_MAX:
        return False
    return _has_more(_BETWEEN_TEXTS, listed)


def decode_list(decoder: msgspec.json.Decoder[T], raw: msgspec.Raw) -> T | None:
    """What the decoder makes of a list; None where it is a crowd.

    Raises:
        MalformedBody: it has another shape.
    """
    listed = bytes(raw)
    return None if is_crowd(listed) else openai_body.decode(decoder, listed)


def size_of(raw: OptionalRaw) -> int:
    """Characters that a crowd counts for: all it was sent as."""
    return memoryview(raw).nbytes if raw is not msgspec.UNSET else 0


def _has_more(element: re.Pattern[bytes], listed: bytes) -> bool:
    return sum(1 for _ in islice(element.finditer(listed), ELEMENTS_MAX + 1)) > ELEMENTS_MAX
