"""Envoy's adaptive concurrency filter: a limit that follows the ratio of unloaded to present response times.

    every update interval with samples:   limit <- g limit + sqrt(g limit)
    g       minRTT (1 + buffer) / RTT, within 0.5 and 2
    RTT     percentile of the whole response times of the interval
    minRTT  the same over `request_count` responses, measured every minute at the lowest concurrency, and again when
            the limit has been the lowest five intervals in a row; requests sent before such a measurement do not count

A response of a language model takes as long as it is long, so that the ratio says little; the bench tries a grid of the
filter's settings and takes the best for each cell.

Source: Envoy documentation, "Adaptive Concurrency"; gradient_controller.cc; defaults where the grid does not vary them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from random import Random
from typing import Any

import numpy as np

from bench.goodput.policies.baseline import Baseline

LIMIT_MAX = 1000
RTT_MIN_S = 1e-3  # a refusal takes no time in the simulation; in Envoy it does
JITTER = 0.15
LOWEST_IN_A_ROW = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The filter's settings; the defaults are Envoy's, or its documentation's example where it has none."""

    percentile: float = 0.5
    update_s: float = 0.1
    min_rtt_every_s: float = 60.0
    request_count: int = 50
    concurrency_min: int = 3
    buffer: float = 0.25


class MinRttGradient(Baseline):
    """Reject above the limit."""

    def __init__(self, pool: Mapping[str, Any], tuning: Tuning, seed: int) -> None:
        super().__init__(pool)
        self._tuning = tuning
        self._random = Random(seed)
        self._limit = tuning.concurrency_min
        self._deferred = self._limit  # what the limit goes back to after a measurement
        self._measuring = True
        self._epoch_s = 0.0
        self._next_min_rtt_s = 0.0
        self._next_update_s = tuning.update_s
        self._min_rtt_s = 0.0
        self._samples_s: list[float] = []
        self._sent_s: dict[str, float] = {}
        self._lowest_in_a_row = 0

    def allows(self, now_s: float) -> bool:
        """Whether the limit leaves room."""
        self._roll(now_s)
        return self.in_flight < self._limit

    def began(self, now_s: float, request_id: str) -> None:
        """Remember when."""
        self._sent_s[request_id] = now_s

    def ended(self, now_s: float, request_id: str, *, ok: bool, ttft_s: float | None, e2e_s: float | None) -> None:
        """Take its response time; one whose client left has none."""
        self._roll(now_s)
        sent_s = self._sent_s.pop(request_id)
        if e2e_s is None or sent_s < self._epoch_s:
            return
        self._samples_s.append(max(e2e_s, RTT_MIN_S))
        if self._measuring and len(self._samples_s) >= self._tuning.request_count:
            self._end_measurement(now_s)

    def _roll(self, now_s: float) -> None:
        if self._measuring:
            return
        if now_s >= self._next_min_rtt_s:
            self._begin_measurement(now_s)
        elif now_s >= self._next_update_s:
            self._next_update_s = now_s + self._tuning.update_s
            if self._samples_s:
                self._set(self._limit_after(self._take()))

    def _limit_after(self, rtt_s: float) -> int:
        gradient = min(max(self._min_rtt_s * (1.0 + self._tuning.buffer) / rtt_s, 0.5), 2.0)
        limit = self._limit * gradient
        return int(min(max(limit + sqrt(limit), self._tuning.concurrency_min), LIMIT_MAX))

    def _set(self, limit: int) -> None:
        lowest = self._limit == limit == self._tuning.concurrency_min
        self._lowest_in_a_row = self._lowest_in_a_row + 1 if lowest else 0
        self._limit = limit
        if self._lowest_in_a_row >= LOWEST_IN_A_ROW:
            self._next_min_rtt_s = 0.0

    def _begin_measurement(self, now_s: float) -> None:
        self._measuring, self._epoch_s = True, now_s
        self._deferred, self._limit = self._limit, self._tuning.concurrency_min
        self._samples_s.clear()
        self._lowest_in_a_row = 0

    def _end_measurement(self, now_s: float) -> None:
        self._measuring = False
        self._min_rtt_s = self._take()
        self._set(self._deferred)
        self._next_min_rtt_s = now_s + self._tuning.min_rtt_every_s * (1.0 + JITTER * self._random.random())
        self._next_update_s = now_s + self._tuning.update_s

    def _take(self) -> float:
        rtt_s = float(np.quantile(self._samples_s, self._tuning.percentile))
        self._samples_s.clear()
        return rtt_s
