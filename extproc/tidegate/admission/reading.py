"""What an engine says of itself, in the core's terms."""

from msgspec import Struct


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
