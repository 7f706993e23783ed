"""Windows for the step model: what an engine did in a stretch of time, from its own counters or from an outcome.

    counters   seconds busy, steps and tokens as the engine counts them; KV tokens and token pairs as reckoned.
               Closed at the first reading 1 s or more after the last where the part done of a prompt weighs less than
               a tenth of the window's tokens (engines count a prompt when it is done), or after 5 s
    outcome    seconds = e2e - ttft, steps = tokens of a sequence - 1: exact, because a sequence gains one token a step;
               what else those steps carried is what the book reckons for the time between the two
               A whole answer has no ttft: its first token is where the book put it, and it weighs a third

Counters are the better source, so outcomes are left alone for 5 s after the last of them. Outcomes overlap: each weighs
by the seconds since the one before, so that a second of them weighs as one window, and at most 20 a second are taken.
"""

from collections.abc import Callable

from msgspec import Struct

from tidegate.admission.history import Totals
from tidegate.admission.reading import EngineReading
from tidegate.admission.step_model import Window

_CLOSE_S_MIN, _CLOSE_S_MAX, _STALE_S = 0.95, 5.0, 6.5
_PARTIAL_SHARE_MAX = 0.1
_BUSY_SHARE_MIN = 0.9
_PREFER_COUNTERS_S = 5.0
_OUTCOME_STEPS_MIN = 4
OUTCOME_S_MAX = 60.0
_OUTCOME_EVERY_S = 0.05
_UNSEEN_TTFT_WEIGHT = 0.3


class Passed(Struct, frozen=True, kw_only=True, gc=False):
    """What a book reckons to have passed by some moment: the time, its busy part, sums, the first prompt's part."""

    now_s: float
    busy_s: float
    totals: Totals
    done_tokens: float


class _Mark(Struct, frozen=True, gc=False):
    passed: Passed
    steps_total: float
    tokens_total: float


class EngineLearning:
    """Turns what becomes known of one engine, or of `width` alike, into windows."""

    __slots__ = ("_counted_s", "_mark", "_outcome_s")

    def __init__(self) -> None:
        self._mark: _Mark | None = None
        self._counted_s = -_PREFER_COUNTERS_S
        self._outcome_s = 0.0

    def of_reading(self, reading: EngineReading, passed: Passed, *, width: int) -> Window | None:
        """The window that this reading closes, if it does; counters that went back begin anew."""
        if reading.steps_total is None or reading.tokens_total is None:
            return None
        now = _Mark(passed, reading.steps_total, reading.tokens_total)
        mark = self._mark
        if mark is None or now.steps_total < mark.steps_total or now.tokens_total < mark.tokens_total:
            self._mark = now
            return None
        seconds = passed.now_s - mark.passed.now_s
        tokens = now.tokens_total - mark.tokens_total
        partial = abs(passed.done_tokens - mark.passed.done_tokens)
        if seconds < _CLOSE_S_MIN or (seconds < _CLOSE_S_MAX and partial > _PARTIAL_SHARE_MAX * tokens):
            return None
        self._mark = now
        busy_s = passed.busy_s - mark.passed.busy_s
        if busy_s < _BUSY_SHARE_MIN * seconds or seconds > _STALE_S:
            return None
        self._counted_s = passed.now_s
        steps = now.steps_total - mark.steps_total
        before, after = mark.passed.totals, passed.totals
        return Window(
            seconds=busy_s * width,
            steps=steps,
            tokens=tokens,
            kv_token_steps=(after.kv_token_s - before.kv_token_s) / seconds / width * steps,
            attention=after.attention - before.attention,
        )

    def of_outcome(
        self,
        *,
        first_s: float,
        last_s: float,
        ttft_seen: bool,
        tokens: float,
        at: Callable[[float], Totals | None],
        now_s: float,
        width: int,
    ) -> Window | None:
        """The window between the first and the last token of one sequence; `at` gives the book's totals at a time."""
        seconds, steps = last_s - first_s, tokens - 1.0
        since_s = now_s - self._outcome_s
        if (
            since_s < _OUTCOME_EVERY_S
            or now_s - self._counted_s < _PREFER_COUNTERS_S
            or steps < _OUTCOME_STEPS_MIN
            or not 0.0 < seconds <= OUTCOME_S_MAX
        ):
            return None
        before, after = at(first_s), at(last_s)
        if before is None or after is None:
            return None
        weight = min(since_s * (1.0 if ttft_seen else _UNSEEN_TTFT_WEIGHT), 1.0)
        self._outcome_s = now_s
        return Window(
            seconds=seconds,
            steps=steps,
            tokens=(
                (after.sequence_s - before.sequence_s) / seconds * steps
                + (after.position_tokens - before.position_tokens)
            )
            / width,
            kv_token_steps=(after.kv_token_s - before.kv_token_s) / seconds / width * steps,
            attention=(after.attention - before.attention) / width,
            weight=weight,
        )
