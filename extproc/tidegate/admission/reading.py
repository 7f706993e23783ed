"""What an engine says of itself, in the core's terms."""

from typing import TypeVar

from msgspec import Struct

Figure = TypeVar("Figure", int, float)
_SEQUENCES_MAX, _TOTAL_MAX = 1_000_000, 1e15


class EngineReading(Struct, frozen=True, kw_only=True, gc=False):
    """One look at one engine's own counters; None where it does not say.

    Attributes:
        running, waiting: sequences that hold a slot, and that wait for one.
        kv_usage: share of its KV cache in use, 0 to 1.
        steps_total: steps since its start.
        tokens_total: tokens of those steps: prompts, counted when they are done, and completions.
    """

    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    steps_total: float | None = None
    tokens_total: float | None = None

    def checked(self) -> "EngineReading":
        """The same without what cannot be: pages are somebody else's."""
        return EngineReading(
            running=_within(self.running, _SEQUENCES_MAX),
            waiting=_within(self.waiting, _SEQUENCES_MAX),
            kv_usage=_within(self.kv_usage, 1.0),
            steps_total=_within(self.steps_total, _TOTAL_MAX),
            tokens_total=_within(self.tokens_total, _TOTAL_MAX),
        )


def _within(figure: Figure | None, highest: float) -> Figure | None:
    return figure if figure is not None and 0 <= figure <= highest else None  # NaN is within nothing
