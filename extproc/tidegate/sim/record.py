"""What a client saw of one request."""

from dataclasses import dataclass
from enum import StrEnum


class End(StrEnum):
    """How a request ended for its client."""

    COMPLETE = "complete"  # the whole answer came
    REFUSED = "refused"  # any status but 200
    GAVE_UP_FIRST = "gave_up_first"  # the client left: no first token in time
    GAVE_UP_WHOLE = "gave_up_whole"  # the client left: the answer took too long
    BROKEN = "broken"  # the connection failed, the stream was cut or carried an error event
    CUT = "cut"  # the run ended first
    OVERFLOW = "overflow"  # never sent: the load driver had too many requests in flight


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One request, as its client saw it; times in seconds.

    Attributes:
        at_s: planned moment of sending, from the run's start.
        late_s: how much later it was really sent; large values mean that the machine was too busy to measure.
        status: HTTP status, 0 where no answer came.
        ttft_s: from sending to the first token of content, waiting at the gateway included; None where none came.
        tpot_s: mean time between tokens after the first; None below two tokens.
        e2e_s: from sending to the end, whatever the end.
        tokens: completion tokens that reached the client.
        held_s: how long the gateway says it held the request; None where it does not say.
        retry_after_s: the refusal's Retry-After, or None.
    """

    tenant: str
    at_s: float
    late_s: float = 0.0
    end: End
    status: int = 0
    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float = 0.0
    tokens: int = 0
    held_s: float | None = None
    retry_after_s: float | None = None

    @property
    def ended_s(self) -> float:
        """Moment of its end, from the run's start."""
        return self.at_s + self.late_s + self.e2e_s
