"""A field that holds text, token ids, or a list of either: the prompt of completions, the input of embeddings.

A list of ids is counted and never built, and neither is a crowd of texts (see crowd.py).
"""

import re
from dataclasses import dataclass

import msgspec

from tidegate.dialects.crowd import is_crowd_of_texts
from tidegate.dialects.lax import UNREADABLE
from tidegate.errors import MalformedBody

PROMPTS_MAX = 2048

_FIRST_IN_LIST = re.compile(rb"\[[ \t\r\n]*+(.)", re.DOTALL)
_DIGITS = b"-0123456789"
_text = msgspec.json.Decoder(str)
_texts = msgspec.json.Decoder(list[str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """Texts, or the number of token ids where the caller sent those; `count` prompts in all.

    `uncounted_chars`: the size of texts that were too many to build.
    """

    count: int
    texts: tuple[str, ...] | list[str] = ()
    tokens: int | None = None
    uncounted_chars: int = 0

    @property
    def sequences(self) -> int:
        """Prompts, between 1 and 2,048."""
        return min(max(self.count, 1), PROMPTS_MAX)

    @property
    def chars(self) -> int:
        """Characters of all texts."""
        return sum(map(len, self.texts)) + self.uncounted_chars


def read_prompts(raw: msgspec.Raw, *, field: str) -> Prompts:
    """Tell the four forms apart by the first character inside.

    Raises:
        MalformedBody: it is none of the four.
    """
    found = _FIRST_IN_LIST.match(raw)
    first = found.group(1) if found else b""
    try:
        if bytes(memoryview(raw)[:1]) == b'"':
            return Prompts(count=1, texts=(_text.decode(raw),))
        if first == b'"':
            return _read_texts(raw)
    except UNREADABLE as error:
        raise MalformedBody(f"{field}: {error!s:.200}") from None
    if first == b"]":
        return Prompts(count=0)
    if first == b"[" or (first and first in _DIGITS):
        ids = bytes(raw)
        return Prompts(count=max(ids.count(b"[") - 1, 1), tokens=ids.count(b",") + 1)
    raise MalformedBody(f"{field}: expected text, token ids, or a list of either")


def _read_texts(raw: msgspec.Raw) -> Prompts:
    listed = bytes(raw)
    if is_crowd_of_texts(listed):
        return Prompts(count=PROMPTS_MAX, uncounted_chars=len(listed))
    texts = _texts.decode(listed)
    return Prompts(count=len(texts), texts=texts)
