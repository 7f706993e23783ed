"""The seam: one reader an engine, from the bytes of its page to a reading in the core's terms.

A reader is pure: no I/O, no clock, no state. What a page does not say is None in the reading; what it must say and does
not is a `HalfPage`, never a guess: a pool is better off with an old reading than with an invented one.
"""

from typing import Protocol

from tidegate.admission.reading import EngineReading


class PageReader(Protocol):
    """Reads the pages of one kind of engine.

    Attributes:
        kind: the value of `tidegate-engine` that asks for it.
        path: of the page on the serving address, where the policy names no other.
    """

    @property
    def kind(self) -> str: ...

    @property
    def path(self) -> str: ...

    def read(self, page: bytes) -> EngineReading:
        """What the page says.

        Raises:
            HalfPage: it lacks what a page of this kind always has, or has it in a form that cannot be; the message
                names what.
        """
        ...
