"""How long a request may wait: what its mode allows, what its caller can bear, and what its caller says of itself.

With B its time-to-first-token budget, T its client's timeout and H the longest hold the gateway can keep:

    hold     hybrid              min(0.9 B, 0.7 T, H)       admission-first  min(0.3 s, 0.7 T, H)
             backpressure-first  min(0.7 T, H)
    and      hybrid              wait + ttft <= b B         past it the first token comes too late to be of use
             b                   max(0.9, 1.3 - 0.8 Q / B)  Q: seconds it takes to serve all that wait
             not streamed        wait + ttft + answer <= T  its client waits for the whole answer
    patience backpressure-first  T / 2                      else  min(2.25 B, max(T / 2, min(B, 0.7 T))),
                                                            in order of arrival  min(B / 2, T / 2)
             the longest predicted time to the first token, the queue included, that is worth starting to wait for
             and the queue alone must be predicted within 2.5 times min(0.7 T, H), or 0.3 s in admission-first

Under load a request that will just miss its budget takes the place of one that would not, and predictions err to either
side: so a tenth is kept back. Where nobody waits it takes nothing from anyone, and a late first token is worth more to
its caller than a refusal: it may be late by three tenths.

A queue in order of deadline and cost serves small requests sooner than what is ahead of them suggests, so it pays to
let in what seems to come late: it is expired in time if it does. In order of arrival nobody overtakes, and whoever is
let in at the full budget makes everyone behind late as well: half the budget there. A request whose own prefill is
longer than its budget is never held in hybrid mode: waiting can only make it later. It goes at once when there is room,
and a larger budget is its caller's to ask for.
"""

import re
from collections.abc import Callable, Mapping
from typing import assert_never

from msgspec import Struct

from tidegate.admission.limits import Limits, Mode
from tidegate.admission.queues.orders import Order
from tidegate.admission.work import Work

_BUDGET_SHARE_MIN, _BUDGET_SHARE_MAX, _BUDGET_SHARE_FALL = 0.9, 1.3, 0.8
_PATIENCE, _PATIENCE_IN_ORDER_OF_ARRIVAL = 2.25, 0.5
PATIENCE_HOLDS = 2.5
"""Predicted waits of so many of the longest holds are still worth starting: as many as 2.25 budgets are of 0.9."""
_TIMEOUT_SHARE = 0.7
_ADMISSION_FIRST_HOLD_S = 0.3
_HOLD_S_MIN = 0.001  # no timer is that exact: a shorter hold would be over before it began

_TIMEOUT_S_MIN, _TIMEOUT_S_MAX = 0.05, 3600.0
_TEXT_LEN_MAX = 32
_DECIMAL = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,9})?", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,20}", re.ASCII)
_GRPC = re.compile(r"([0-9]{1,8})([HMSmun])", re.ASCII)
_GRPC_UNIT_S = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_SECONDS_HEADERS = ("x-stainless-read-timeout", "x-stainless-timeout", "x-request-timeout")
_MILLISECONDS_HEADER = "x-envoy-upstream-rq-timeout-ms"
_GRPC_HEADER = "grpc-timeout"


def hold_s(work: Work, mode: Mode, *, ttft_s: float, answer_s: float, pressure_s: float) -> float:
    """The longest `work` may wait from its arrival on, in seconds; 0 where it must not wait at all.

    `ttft_s` and `answer_s` are what the engine will take once it is sent: to the first token, and from it to the last.
    `pressure_s` is how long it would take to serve all that wait.
    """
    hold = hold_s_max(work, mode)
    match mode:
        case Mode.HYBRID:
            budget_s = max(work.ttft_budget_s, _HOLD_S_MIN)
            share = max(_BUDGET_SHARE_MAX - _BUDGET_SHARE_FALL * pressure_s / budget_s, _BUDGET_SHARE_MIN)
            hold = min(hold, share * budget_s - ttft_s, _BUDGET_SHARE_MIN * budget_s)
        case Mode.ADMISSION_FIRST | Mode.BACKPRESSURE_FIRST:
            pass
        case _ as never:
            assert_never(never)
    if not work.stream:
        hold = min(hold, work.client_timeout_s - ttft_s - answer_s)
    return hold if hold >= _HOLD_S_MIN else 0.0


def hold_s_max(work: Work, mode: Mode) -> float:
    """The longest hold that gateway, client and mode allow, whatever the budget, in seconds."""
    hold = min(_TIMEOUT_SHARE * work.client_timeout_s, work.hold_s_max)
    return min(hold, _ADMISSION_FIRST_HOLD_S) if mode is Mode.ADMISSION_FIRST else hold


def patience_s(work: Work, limits: Limits) -> float:
    """The longest predicted time to the first token that `work` is let into the queue with, in seconds."""
    half_timeout_s = work.client_timeout_s / 2.0
    if limits.mode is Mode.BACKPRESSURE_FIRST:
        return half_timeout_s
    budget_s = work.ttft_budget_s
    if limits.order is Order.FIFO:
        return min(_PATIENCE_IN_ORDER_OF_ARRIVAL * budget_s, half_timeout_s)
    return min(_PATIENCE * budget_s, max(half_timeout_s, min(budget_s, _TIMEOUT_SHARE * work.client_timeout_s)))


class ClientTimeout(Struct, frozen=True, kw_only=True, gc=False):
    """What a client's headers say about its patience.

    Attributes:
        timeout_s: when it gives up, 0.05 to 3600 seconds, or None where it does not say.
        ignored: headers whose value was unusable, or outside that range and so clamped.
    """

    timeout_s: float | None
    ignored: int = 0


_SILENT, _UNUSABLE = ClientTimeout(timeout_s=None), ClientTimeout(timeout_s=None, ignored=1)


def client_timeout(headers: Mapping[str, str], *, deadline_header: str = "") -> ClientTimeout:
    """Read the client's timeout; never raises, whatever the texts.

    Args:
        headers: by lower-case name; several values of one name are joined with a comma, which makes it unusable.
        deadline_header: one that an operator has chosen, in whole milliseconds; where it is usable, no other counts.

    Where several of the others speak, the shortest timeout counts: that is who gives up first.
    """
    chosen = _read(headers.get(deadline_header) if deadline_header else None, _whole_milliseconds)
    if chosen.timeout_s is not None:
        return chosen
    timeout_s, ignored = chosen.timeout_s, chosen.ignored
    for name, seconds_of in _READERS.items():
        if name == deadline_header:
            continue  # it has had its say, in its own unit
        said = _read(headers.get(name), seconds_of)
        ignored += said.ignored
        if said.timeout_s is not None:
            timeout_s = said.timeout_s if timeout_s is None else min(timeout_s, said.timeout_s)
    return ClientTimeout(timeout_s=timeout_s, ignored=ignored)


def _read(text: str | None, seconds_of: Callable[[str], float | None]) -> ClientTimeout:
    """What one header says; an absent one says nothing."""
    if text is None:
        return _SILENT
    seconds = seconds_of(text.strip(" \t")) if len(text) <= _TEXT_LEN_MAX else None
    if seconds is None:
        return _UNUSABLE
    clamped_s = min(max(seconds, _TIMEOUT_S_MIN), _TIMEOUT_S_MAX)
    return ClientTimeout(timeout_s=clamped_s, ignored=int(clamped_s != seconds))


def _seconds(text: str) -> float | None:
    """A plain positive decimal; zero means no timeout in some clients and nothing in others, so it says nothing."""
    return (float(text) or None) if _DECIMAL.fullmatch(text) else None


def _milliseconds(text: str) -> float | None:
    seconds = _seconds(text)
    return None if seconds is None else seconds / 1000.0


def _whole_milliseconds(text: str) -> float | None:
    return (int(text) / 1000.0 or None) if _WHOLE.fullmatch(text) else None


def _grpc_seconds(text: str) -> float | None:
    match = _GRPC.fullmatch(text)
    return (float(match[1]) * _GRPC_UNIT_S[match[2]] or None) if match else None


_READERS = {
    **dict.fromkeys(_SECONDS_HEADERS, _seconds),
    _MILLISECONDS_HEADER: _milliseconds,
    _GRPC_HEADER: _grpc_seconds,
}
