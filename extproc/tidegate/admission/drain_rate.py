"""How much queued work the pool really takes up: bottleneck seconds admitted in a second of one engine.

    each second of waiting:   D = 0.8 D + 0.2 clip(admitted cost / (engines x seconds), 0.2, 3),   start 1

If the cost model were exact and its bottleneck always busy, D would be 1. It is measured only while somebody waits: at
other times the arrivals, not the engines, decide how much is admitted. A second of waiting may be put together from
shorter ones, or a queue that is often empty for a moment would never teach anything. A window that closes late weighs
as the seconds it spans.
"""

_WINDOW_S = 1.0
_KEEP_PER_S = 0.8
_SAMPLE_MIN, _SAMPLE_MAX = 0.2, 3.0


class DrainRate:
    """The running drain rate; always within 0.2 and 3."""

    __slots__ = ("_admitted_s", "_since_s", "_waited_s", "value")

    def __init__(self) -> None:
        self.value = 1.0
        self._since_s: float | None = None  # somebody has been waiting since; None: nobody waits
        self._waited_s = 0.0  # earlier parts of this window
        self._admitted_s = 0.0

    @property
    def closes_at_s(self) -> float | None:
        """When this window closes if somebody goes on waiting; None while nobody waits."""
        return None if self._since_s is None else self._since_s + (_WINDOW_S - self._waited_s)

    def watch(self, *, waiting: bool, now_s: float) -> None:
        """Tell whether somebody waits from now on."""
        if waiting and self._since_s is None:
            self._since_s = now_s
        elif not waiting and self._since_s is not None:
            self._waited_s += now_s - self._since_s
            self._since_s = None

    def admitted(self, cost_s: float) -> None:
        """Count one admission of `cost_s` bottleneck seconds, if somebody waits."""
        if self._since_s is not None:
            self._admitted_s += cost_s

    def roll(self, *, engines: int, now_s: float) -> None:
        """Close the window if it is due, and open the next; one that ends without any engine measures nothing."""
        closes_at_s = self.closes_at_s
        if self._since_s is None or closes_at_s is None or now_s < closes_at_s:
            return
        span_s = max(self._waited_s + now_s - self._since_s, _WINDOW_S)
        if engines > 0:
            sample = min(max(self._admitted_s / (engines * span_s), _SAMPLE_MIN), _SAMPLE_MAX)
            keep = _KEEP_PER_S**span_s
            self.value = keep * self.value + (1.0 - keep) * sample
        self._since_s, self._waited_s, self._admitted_s = now_s, 0.0, 0.0
