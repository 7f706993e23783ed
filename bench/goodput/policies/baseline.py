"""What the baselines share: books of who runs where, and the engine with the fewest.

Envoy's own balancing is round robin or least request; least request is taken for all, as the better one.
"""

from collections.abc import Mapping
from typing import Any

from bench.goodput.policy import Verdict


class Baseline:
    """Answers at once and never queues: `allows` decides. Subclasses override what they look at."""

    status = 503

    def __init__(self, pool: Mapping[str, Any]) -> None:
        self._running: dict[str, str] = {}
        self._per_engine: dict[str, int] = {str(engine["name"]): 0 for engine in pool["engines"]}

    @property
    def in_flight(self) -> int:
        """Requests admitted and not ended."""
        return len(self._running)

    # What a baseline is made of

    def allows(self, now_s: float) -> bool:
        """Whether one more may go."""
        return True

    def asked(self, now_s: float, request_id: str, ttft_budget_s: float) -> list[Verdict]:
        """The answer to a request that comes."""
        return [self.admit(now_s, request_id) if self.allows(now_s) else (request_id, "reject", self.status, None)]

    def began(self, now_s: float, request_id: str) -> None:
        """It was admitted."""

    def ended(self, now_s: float, request_id: str, *, ok: bool, ttft_s: float | None, e2e_s: float | None) -> None:
        """An admitted one ended; the times are None where the client left. It still counts as in flight."""

    # What the simulation drives

    def arrive(  # noqa: PLR0913, PLR0917
        self,
        now_s: float,
        id: str,  # noqa: A002
        tenant: str,
        prompt_tokens: int,
        max_tokens: int | None,
        log_mean: float,
        log_sigma: float,
        ttft_budget_s: float,
        tpot_slo_s: float,
        client_timeout_s: float,
        /,
    ) -> list[Verdict]:
        """Admit or reject."""
        return self.asked(now_s, id, ttft_budget_s)

    def tick(self, now_s: float, /) -> list[Verdict]:
        """Nobody waits."""
        return []

    def first_token(self, now_s: float, id: str, /) -> None:  # noqa: A002
        """Not looked at."""

    def finish(
        self,
        now_s: float,
        id: str,  # noqa: A002
        status: int,
        completion_tokens: int,
        ttft_s: float | None,
        e2e_s: float,
        /,
    ) -> None:
        """Give its place back."""
        self.ended(now_s, id, ok=status == 200, ttft_s=ttft_s, e2e_s=e2e_s)
        self._release(id)

    def cancel(self, now_s: float, id: str, /) -> None:  # noqa: A002
        """Give its place back."""
        if id in self._running:
            self.ended(now_s, id, ok=False, ttft_s=None, e2e_s=None)
            self._release(id)

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
        """Not looked at."""

    # Books

    def engine(self) -> str:
        """Where the next one goes."""
        return min(self._per_engine, key=self._per_engine.__getitem__)

    def admit(self, now_s: float, request_id: str) -> Verdict:
        """Book it and send it."""
        engine = self.engine()
        self._running[request_id] = engine
        self._per_engine[engine] += 1
        self.began(now_s, request_id)
        return request_id, "admit", engine

    def _release(self, request_id: str) -> None:
        self._per_engine[self._running.pop(request_id)] -= 1
