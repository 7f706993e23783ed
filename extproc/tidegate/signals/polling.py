"""What pollers of pools share in a process, and whom they tell."""

from dataclasses import dataclass
from random import Random
from typing import Protocol

from tidegate.admission.reading import EngineReading
from tidegate.clock import Clock
from tidegate.signals.allow import EngineAllow
from tidegate.signals.budget import PollBudget
from tidegate.signals.causes import Cause
from tidegate.signals.fetch import Fetcher
from tidegate.signals.resolve import Resolve, SystemResolver


class EngineListener(Protocol):
    """Who wants to know. Addresses are `HOST:PORT` as Envoy sees them; calls come from the event loop, one at a time.

    An engine's `on_reading` and `on_failure` come only while it is in the set that `on_engines` told last.
    """

    def on_engines(self, addresses: tuple[str, ...], now_s: float) -> None:
        """The pool now has these engines, and no others; told first of all, and when the set changes."""
        ...

    def on_reading(self, address: str, reading: EngineReading, now_s: float) -> None:
        """What an engine has just said."""
        ...

    def on_failure(self, address: str, cause: Cause, now_s: float) -> None:
        """A poll gave no reading."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Polling:
    """What the pollers of a process share."""

    clock: Clock
    rng: Random
    resolve: Resolve
    fetcher: Fetcher
    budget: PollBudget

    @classmethod
    def of(cls, allow: EngineAllow, clock: Clock, *, rng: Random, resolve: Resolve | None = None) -> "Polling":
        """All of it, for engines whose addresses may be polled; `resolve` is the system's DNS where none is given."""
        resolve = resolve or SystemResolver()
        fetcher = Fetcher(allow, resolve, clock)
        return cls(clock=clock, rng=rng, resolve=resolve, fetcher=fetcher, budget=PollBudget(clock))

    async def close(self) -> None:
        """Close the connections, once all pollers have stopped."""
        await self.fetcher.close()
