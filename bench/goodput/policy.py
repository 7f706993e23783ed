"""The one interface through which everything that admits is driven, ours and the baselines.

A verdict is final: `(id, "admit", engine)` or `(id, "reject", status, retry_after_s)`. `arrive` and `tick` return those
that became final, of any request; the other calls return nothing, and `tick` follows each of them at the same instant.
`ttft_s` and `e2e_s` of a finished request count from its admission. Times are seconds.
"""

from typing import Protocol, TypeAlias

from bench.goodput.adapter import Final

Verdict: TypeAlias = Final


class Policy(Protocol):
    """What the simulation drives."""

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
        """A request came; `client_timeout_s` is how long its client waits for a first token."""
        ...

    def tick(self, now_s: float, /) -> list[Verdict]:
        """Time has passed, or something else was told."""
        ...

    def first_token(self, now_s: float, id: str, /) -> None:  # noqa: A002
        """The first token of an admitted request went to its client; told only where the gateway sees responses."""
        ...

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
        """An admitted request ended, well or not."""
        ...

    def cancel(self, now_s: float, id: str, /) -> None:  # noqa: A002
        """The client left, while its request was queued or running."""
        ...

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
        """An engine's own counts; told only where there are metrics."""
        ...
