"""The utilisation gate of llm-d and the Gateway API Inference Extension, rejecting.

An engine is saturated when its KV cache is used above 80 % or more than 5 requests wait in it, by counts that are read
every 50 ms; a request is rejected while every engine is, else goes to the one with the shortest queue, then the most
free KV.

Source: gateway-api-inference-extension, saturation detector: queueDepthThreshold 5, kvCacheUtilThreshold 0.8; sheddable
requests are answered 429.
"""

from collections.abc import Mapping
from typing import Any

from bench.goodput.policies.baseline import Baseline

KV_USAGE_MAX = 0.8
WAITING_MAX = 5
PERIOD_S = 0.05


class UtilisationGate(Baseline):
    """Reject while every engine is saturated."""

    status = 429

    def __init__(self, pool: Mapping[str, Any]) -> None:
        super().__init__(pool)
        self._seen: dict[str, tuple[int, float]] = dict.fromkeys(self._per_engine, (0, 0.0))

    def reading(
        self,
        now_s: float,
        engine: str,
        running: int | None,
        waiting: int | None,
        kv_usage: float | None,
        steps_total: float | None,
        tokens_total: float | None,
        /,
    ) -> None:
        """Remember it."""
        self._seen[engine] = (waiting or 0, kv_usage or 0.0)

    def allows(self, now_s: float) -> bool:
        """Whether some engine is not saturated."""
        return not all(map(_saturated, self._seen.values()))

    def engine(self) -> str:
        """The least loaded of those that are not saturated."""
        return min(
            self._seen, key=lambda name: (_saturated(self._seen[name]), *self._seen[name], self._per_engine[name])
        )


def _saturated(seen: tuple[int, float]) -> bool:
    waiting, kv_usage = seen
    return waiting > WAITING_MAX or kv_usage > KV_USAGE_MAX
