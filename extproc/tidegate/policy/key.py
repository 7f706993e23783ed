"""What describes one `tidegate-*` key, so that reading, documentation and lint all work from the same record."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from tidegate.errors import PolicyError

T = TypeVar("T")

SHOWN_CHARS_MAX = 128
"""Characters of a key or a value that an error quotes."""


class Scope(StrEnum):
    """What a key speaks about; two routes to one pool may differ in the request-scoped keys only."""

    POOL = "pool"
    REQUEST = "request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key(Generic[T]):
    """One key.

    Attributes:
        name: as it stands in the metadata; `tidegate-class-NAME` stands for one key a class.
        scope: of the pool, or of the request.
        unit: of the value, empty where it has none.
        default: what holds without the key, in words.
        expected: what a good value looks like, in words, with its range.
        meaning: one line.
        read: takes the value's text, raises ValueError where it is not as expected.
    """

    name: str
    scope: Scope
    unit: str = ""
    default: str
    expected: str
    meaning: str
    read: Callable[[str], T]

    def value(self, text: str, *, name: str = "") -> T:
        """The value that `text` says; `name` is the key's own spelling where it differs.

        Raises:
            PolicyError: it is not as expected.
        """
        try:
            return self.read(text)
        except ValueError:
            raise PolicyError(shown(name or self.name), shown(text), self.expected) from None


def shown(text: str) -> str:
    """The text, cut to what an error message quotes."""
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}..."
