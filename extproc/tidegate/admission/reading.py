"""What an engine says of itself, in the core's terms."""

from typing import TypeVar

from msgspec import Struct

Figure = TypeVar("Figure", int, float)
_SEQUENCES_MAX, _KV_TOKENS_MAX, _TOTAL_MAX = 1_000_000, 1_000_000_000_000, 1e15


class EngineReading(Struct, frozen=True, kw_only=True, gc=False):
    """One look at one engine's own counters; None where it does not say.

    Attributes:
        running, waiting: sequences that hold a slot, and that wait for one; requests, where models have no tokens.
        slots: sequences it runs at most.
        kv_usage: share of its KV cache in use, 0 to 1.
        kv_tokens_max: tokens its KV cache holds.
        steps_total: steps since its start.
        tokens_total: tokens of those steps: prompts, counted when they are done, and completions.
        preemptions_total: sequences that lost their KV cache and had to be computed again.
        rejections_total: requests it refused of its own accord.
        memory_free_mib: free memory of the GPU of its that has the least.
        ready: False where it says itself that it must not be sent anything.
    """

    running: int | None = None
    waiting: int | None = None
    slots: int | None = None
    kv_usage: float | None = None
    kv_tokens_max: int | None = None
    steps_total: float | None = None
    tokens_total: float | None = None
    preemptions_total: float | None = None
    rejections_total: float | None = None
    memory_free_mib: float | None = None
    ready: bool = True

    def checked(self) -> "EngineReading":
        """The same without what cannot be: pages are somebody else's."""
        return EngineReading(
            running=_within(self.running, 0, _SEQUENCES_MAX),
            waiting=_within(self.waiting, 0, _SEQUENCES_MAX),
            slots=_within(self.slots, 1, _SEQUENCES_MAX),
            kv_usage=_within(self.kv_usage, 0, 1.0),
            kv_tokens_max=_within(self.kv_tokens_max, 1, _KV_TOKENS_MAX),
            steps_total=_within(self.steps_total, 0, _TOTAL_MAX),
            tokens_total=_within(self.tokens_total, 0, _TOTAL_MAX),
            preemptions_total=_within(self.preemptions_total, 0, _TOTAL_MAX),
            rejections_total=_within(self.rejections_total, 0, _TOTAL_MAX),
            memory_free_mib=_within(self.memory_free_mib, 0, _TOTAL_MAX),
            ready=self.ready,
        )


def _within(figure: Figure | None, lowest: float, highest: float) -> Figure | None:
    return figure if figure is not None and lowest <= figure <= highest else None  # NaN is within nothing
