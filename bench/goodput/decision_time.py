"""How long one decision takes (G15), with 256 requests in flight on an engine and a queue that is full.

The queue is as deep as asked; every arrival is decided by the same code that serves traffic, then withdrawn, so that
the next one meets the same state. Times of one process on whatever else the machine does: the best of three rounds.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from math import log
from time import perf_counter
from typing import Any

import numpy as np

from bench.goodput.figure import Line
from bench.goodput.policy import Policy

IN_FLIGHT = 256
QUEUE_LENS = (100, 1_000, 10_000)
QUEUE_LEN = 1_000
SLOTS_BIND = {"name": "engine0", "slots": IN_FLIGHT, "kv_tokens": 10_000_000, "batched_tokens": 2_048}
KV_BINDS = {"name": "engine0", "slots": 2_048, "kv_tokens": 75_000, "batched_tokens": 4_096}
ROUNDS, DECISIONS = 3, 400
P99_MS_MAX = 0.5
PATIENCE_S = 1e5
STEP_S = 0.02
FILLED_MAX = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """In milliseconds: an arrival that joins the queue, and an end with the dispatch that follows."""

    in_flight: int
    p50_ms: float
    p99_ms: float
    dispatch_p99_ms: float


class Crowd:
    """A policy with an engine that is full and a queue of a given length."""

    def __init__(self, policy: Policy, queue_len: int) -> None:
        self._policy = policy
        self._generator = np.random.default_rng(queue_len)
        self._now_s = 0.0
        self._asked = 0
        self.running: list[str] = []
        while self._asked < FILLED_MAX and self._fill():
            pass
        for _ in range(queue_len - (self._asked - len(self.running))):
            self.arrive()

    def arrive(self) -> tuple[str, float]:
        """One more request: its id and how long the decision took, in seconds."""
        self._asked += 1
        self._now_s += 1e-4
        request_id = str(self._asked)
        prompt_tokens, log_mean = int(self._generator.integers(16, 64)), float(self._generator.normal(5.0, 0.6))
        started = perf_counter()
        verdicts = self._policy.arrive(
            self._now_s, request_id, "", prompt_tokens, 16_384, log_mean, 0.6, PATIENCE_S, 60.0, PATIENCE_S
        )
        took_s = perf_counter() - started
        self.running.extend(verdict[0] for verdict in verdicts if verdict[1] == "admit")
        return request_id, took_s

    def withdraw(self, request_id: str) -> None:
        """Its client leaves."""
        self._policy.cancel(self._now_s, request_id)
        self.tick()

    def tick(self) -> float:
        """Admit what may go; how long that took, in seconds."""
        started = perf_counter()
        verdicts = self._policy.tick(self._now_s)
        took_s = perf_counter() - started
        self.running.extend(verdict[0] for verdict in verdicts if verdict[1] == "admit")
        return took_s

    def replace_one(self) -> float:
        """One of those in flight ends and the next goes: seconds of both."""
        request_id = self.running.pop(0)
        self._now_s += 1e-4
        started = perf_counter()
        self._policy.finish(self._now_s, request_id, 200, 150, 0.5, 10.0)
        took_s = perf_counter() - started
        took_s += self.tick()
        self.arrive()
        return took_s

    def _fill(self) -> bool:
        """Let one in, its prefill done; False where it has to wait for somebody's end."""
        already = len(self.running)
        self.arrive()
        for _ in range(100):
            self._now_s += STEP_S
            self.tick()
            if len(self.running) > already:
                break
        for request_id in self.running[already:]:
            self._policy.first_token(self._now_s, request_id)
        self.tick()
        return len(self.running) > already


def lines(make: Callable[[dict[str, Any], int], Policy], *, p99_ms_max: float = P99_MS_MAX) -> list[Line]:
    """The figures; `make` builds the policy from a pool and a queue length."""
    by_len = {queue_len: _timed(make, SLOTS_BIND, queue_len) for queue_len in QUEUE_LENS}
    kv_bound = _timed(make, KV_BINDS, QUEUE_LEN)
    shortest, longest = QUEUE_LENS[0], QUEUE_LENS[-1]
    return [
        Line(key="G15_in_flight", value=min(each.in_flight for each in by_len.values()), at_least=IN_FLIGHT),
        *(_p99(f"queue_{each}", by_len[each], p99_ms_max if each == QUEUE_LEN else None) for each in QUEUE_LENS),
        *(Line(key=f"G15_dispatch_p99_ms_queue_{each}", value=by_len[each].dispatch_p99_ms) for each in QUEUE_LENS),
        Line(
            key="G15_growth_p50",
            value=by_len[longest].p50_ms / by_len[shortest].p50_ms,
            at_most=log(longest) / log(shortest),
        ),
        Line(key="G15_in_flight_kv_bound", value=kv_bound.in_flight, at_least=IN_FLIGHT),
        _p99(f"kv_bound_queue_{QUEUE_LEN}", kv_bound, p99_ms_max),
        Line(key=f"G15_dispatch_p99_ms_kv_bound_queue_{QUEUE_LEN}", value=kv_bound.dispatch_p99_ms),
    ]


def _p99(name: str, times: Times, at_most: float | None) -> Line:
    return Line(key=f"G15_p99_ms_{name}", value=times.p99_ms, at_most=at_most)


def _timed(make: Callable[[dict[str, Any], int], Policy], engine: dict[str, Any], queue_len: int) -> Times:
    """Times with one engine; the queue has room for a few more, so that each newcomer is ranked and taken in."""
    crowd = Crowd(make({"engines": [engine]}, queue_len + 8), queue_len)
    in_flight = len(crowd.running)
    decided = [_decisions_s(crowd) for _ in range(ROUNDS)]
    dispatched = [[crowd.replace_one() for _ in range(DECISIONS // 4)] for _ in range(ROUNDS)]
    return Times(
        in_flight=in_flight,
        p50_ms=_best_ms(decided, 0.5),
        p99_ms=_best_ms(decided, 0.99),
        dispatch_p99_ms=_best_ms(dispatched, 0.99),
    )


def _best_ms(rounds: list[list[float]], quantile: float) -> float:
    return min(float(np.quantile(each, quantile)) for each in rounds) * 1e3


def _decisions_s(crowd: Crowd) -> list[float]:
    gc.collect()
    times = []
    for _ in range(DECISIONS):
        request_id, took_s = crowd.arrive()
        times.append(took_s)
        crowd.withdraw(request_id)
    return times
