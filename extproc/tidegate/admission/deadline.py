"""How long a request may wait: what its mode allows, what its caller can bear, and what its caller says of itself.

With B its time-to-first-token budget, T its client's timeout and H the longest hold the gateway can keep:

    hold     hybrid              min(0.9 B, 0.7 T, H)       admission-first  min(0.3 s, 0.7 T, H)
             backpressure-first  min(0.7 T, H)
    and      hybrid              wait + ttft <= 0.9 B       past it the first token comes too late to be of use
             not streamed        wait + ttft + answer <= T  its client waits for the whole answer
    patience backpressure-first  T / 2                      else  min(B / 2, T / 2)
             the longest predicted time to the first token, the queue included, that is worth starting to wait for

Half the budget, not all of it: in a queue that is served in order of arrival, whoever is let in at the full budget
makes everyone behind late as well. A request whose own prefill is longer than its budget is never held in hybrid mode:
waiting can only make it later. It goes at once when there is room, and a larger budget is its caller's to ask for.
"""

import re
from collections.abc import Mapping
from typing import assert_never

from msgspec import Struct

from tidegate.admission.cost import Cost
from tidegate.admission.limits import Mode
from tidegate.admission.work import Work

_BUDGET_SHARE = 0.9
_TIMEOUT_SHARE = 0.7
_ADMISSION_FIRST_HOLD_S = 0.3
_HOLD_S_MIN = 0.001  # no timer is that exact: a shorter hold would be over before it began

_TIMEOUT_S_MIN, _TIMEOUT_S_MAX = 0.05, 3600.0
_TEXT_LEN_MAX = 32
_DECIMAL = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,9})?", re.ASCII)
_GRPC = re.compile(r"([0-9]{1,8})([HMSmun])", re.ASCII)
_GRPC_UNIT_S = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_SECONDS_HEADERS = ("x-stainless-read-timeout", "x-stainless-timeout", "x-request-timeout")
_MILLISECONDS_HEADER = "x-envoy-upstream-rq-timeout-ms"
_GRPC_HEADER = "grpc-timeout"


def hold_s(work: Work, mode: Mode, cost: Cost) -> float:
    """The longest `work` may wait from its arrival on, in seconds; 0 where it must not wait at all."""
    hold = min(_TIMEOUT_SHARE * work.client_timeout_s, work.hold_s_max)
    match mode:
        case Mode.HYBRID:
            hold = min(hold, _BUDGET_SHARE * work.ttft_budget_s - cost.ttft_s)
        case Mode.ADMISSION_FIRST:
            hold = min(hold, _ADMISSION_FIRST_HOLD_S)
        case Mode.BACKPRESSURE_FIRST:
            pass
        case _ as never:
            assert_never(never)
    if not work.stream:
        hold = min(hold, work.client_timeout_s - cost.ttft_s - cost.answer_s)
    return hold if hold >= _HOLD_S_MIN else 0.0


def patience_s(work: Work, mode: Mode) -> float:
    """The longest predicted time to the first token that `work` is let into the queue with, in seconds."""
    half_timeout_s = work.client_timeout_s / 2.0
    return half_timeout_s if mode is Mode.BACKPRESSURE_FIRST else min(work.ttft_budget_s / 2.0, half_timeout_s)


class ClientTimeout(Struct, frozen=True, kw_only=True, gc=False):
    """What a client's headers say about its patience.

    Attributes:
        timeout_s: when it gives up, 0.05 to 3600 seconds, or None where it does not say.
        ignored: headers whose value was unusable, or outside that range and so clamped.
    """

    timeout_s: float | None
    ignored: int = 0


def client_timeout(headers: Mapping[str, str]) -> ClientTimeout:
    """Read the client's timeout; never raises, whatever the texts.

    Args:
        headers: by lower-case name; several values of one name are joined with a comma, which makes it unusable.

    Where several headers speak, the shortest timeout counts: that is who gives up first.
    """
    timeout_s: float | None = None
    ignored = 0
    for name, seconds_of in _READERS.items():
        text = headers.get(name)
        if text is None:
            continue
        seconds = seconds_of(text.strip(" \t")) if len(text) <= _TEXT_LEN_MAX else None
        if seconds is None:
            ignored += 1
            continue
        clamped_s = min(max(seconds, _TIMEOUT_S_MIN), _TIMEOUT_S_MAX)
        ignored += clamped_s != seconds
        timeout_s = clamped_s if timeout_s is None else min(timeout_s, clamped_s)
    return ClientTimeout(timeout_s=timeout_s, ignored=ignored)


def _seconds(text: str) -> float | None:
    """A plain positive decimal; zero means no timeout in some clients and nothing in others, so it says nothing."""
    return (float(text) or None) if _DECIMAL.fullmatch(text) else None


def _milliseconds(text: str) -> float | None:
    seconds = _seconds(text)
    return None if seconds is None else seconds / 1000.0


def _grpc_seconds(text: str) -> float | None:
    match = _GRPC.fullmatch(text)
    return (float(match[1]) * _GRPC_UNIT_S[match[2]] or None) if match else None


_READERS = {
    **dict.fromkeys(_SECONDS_HEADERS, _seconds),
    _MILLISECONDS_HEADER: _milliseconds,
    _GRPC_HEADER: _grpc_seconds,
}
