"""Drives the controller that serves traffic from any simulator: requests, events and readings in, verdicts out.

Nothing of the control law is here. What a simulator knows and a gateway does not (true lengths, when an answer will
end) does not come in; the engine is chosen by the controller.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

_ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(_ROOT / "estimator"),
    str(_ROOT / "extproc"),
]  # it is loaded by path, also where nothing is installed

from tidegate.admission.controller import Controller  # noqa: E402
from tidegate.admission.decision import Admit, Enqueue, Reject, Verdict  # noqa: E402
from tidegate.admission.limits import Limits, Mode  # noqa: E402
from tidegate.admission.outcome import Ending, Outcome  # noqa: E402
from tidegate.admission.queues.orders import Order  # noqa: E402
from tidegate.admission.reading import EngineReading  # noqa: E402
from tidegate.admission.step_model import StepModel, Window  # noqa: E402
from tidegate.admission.work import Work  # noqa: E402

Admitted: TypeAlias = tuple[str, str, str]
Rejected: TypeAlias = tuple[str, str, int, float | None]
Final: TypeAlias = Admitted | Rejected
"""`(id, "admit", engine)` or `(id, "reject", status, retry_after_s)`."""

StepSeconds: TypeAlias = Callable[[float, float, float, float], float]
"""Seconds of a step, of decoding sequences, prefill tokens, KV tokens read and token pairs attended."""

QUEUE_LEN = 200
"""Requests that may wait, an engine, as in the model that the figures to reach come from."""

_TOO_LONG_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a reference or a variant changes; the defaults are what ships.

    Attributes:
        alpha: weight of cost against deadline in the queue's order.
        queue_len: requests that may wait, an engine.
        early_reject: refuse at once what would wait too long.
        order: of the queue.
        step_seconds: true step times by engine name, for a reference that need not learn.
    """

    alpha: float = 3.0
    queue_len: int = QUEUE_LEN
    early_reject: bool = True
    order: Order = Order.COST_DEADLINE
    mode: Mode = Mode.HYBRID
    step_seconds: Mapping[str, StepSeconds] = field(default_factory=dict)


class _KnownSteps(StepModel):
    """A step model that was told the truth and learns nothing."""

    def __init__(self, seconds: StepSeconds) -> None:
        super().__init__()
        self._seconds = seconds

    def step_s(self, decoding: float, prefill_tokens: float, kv_tokens: float, attention: float = 0.0) -> float:
        return self._seconds(decoding, prefill_tokens, kv_tokens, attention)

    def learn(self, window: Window, seconds_max: float = 0.0) -> bool:
        return False


class Adapter:
    """One pool of engines, each with its own book.

    Args:
        pool: `engines`: a list of `{"name", "slots"?, "kv_tokens"?, "batched_tokens"?}`. The figures of the first
            engine that has them count for all: a pool is of one kind.
        options: what differs from what ships.
    """

    def __init__(self, pool: Mapping[str, Any], options: Options | None = None) -> None:
        options = Options() if options is None else options
        engines = pool["engines"]
        names = [str(engine["name"]) for engine in engines]
        models = iter([_KnownSteps(options.step_seconds[name]) for name in names] if options.step_seconds else ())
        self._controller = Controller(
            _limits(engines, options),
            names=names,
            now_s=0.0,
            ramp=False,  # the engines are known to be empty at the start
            model_of=lambda: next(models, None) or StepModel(),
        )
        self._engine_of: dict[str, str] = {}

    def arrive(  # noqa: PLR0913, PLR0917  the interface's own arguments
        self,
        now_s: float,
        id: str,  # noqa: A002  the interface's own name
        tenant: str,
        prompt_tokens: int,
        max_tokens: int | None,
        log_mean: float,
        log_sigma: float,
        ttft_budget_s: float,
        tpot_slo_s: float,
        client_timeout_s: float,
    ) -> list[Final]:
        """A request comes; all verdicts that are final now."""
        work = Work(
            id=id,
            tenant=tenant,
            prompt_tokens=prompt_tokens,
            completion_tokens_max=max_tokens,
            log_mean=log_mean,
            log_sigma=log_sigma,
            ttft_budget_s=ttft_budget_s,
            tpot_target_s=tpot_slo_s,
            client_timeout_s=client_timeout_s,
            hold_s_max=_TOO_LONG_S,
        )
        decision = self._controller.submit(work, now_s)
        finals = self._take()
        if not isinstance(decision, Enqueue):
            finals.append(self._final(decision))
        return finals

    def tick(self, now_s: float) -> list[Final]:
        """Time passes; all verdicts that are final now."""
        self._controller.tick(now_s)
        return self._take()

    def first_token(self, now_s: float, id: str) -> None:  # noqa: A002
        """The first token of an admitted request was seen."""
        self._controller.first_token(id, now_s)

    def finish(
        self,
        now_s: float,
        id: str,  # noqa: A002
        status: int,
        completion_tokens: int | None,
        ttft_s: float | None,
        e2e_s: float | None,
    ) -> None:
        """An admitted request ended: released and settled at once."""
        outcome = Outcome(
            id=id,
            ending=_ending(status),
            status=status,
            stream=ttft_s is not None,
            completion_tokens=completion_tokens,
            ttft_s=ttft_s,
            e2e_s=e2e_s,
            engine=self._engine_of.pop(id, ""),
        )
        self._controller.release(id, now_s)
        self._controller.settle(outcome, now_s)

    def cancel(self, now_s: float, id: str) -> None:  # noqa: A002
        """The client left, while its request waited or ran."""
        self._controller.release(id, now_s)
        engine = self._engine_of.pop(id, "")
        if engine:
            outcome = Outcome(id=id, ending=Ending.CLIENT_CANCELLED, engine=engine, response_bytes=0)
            self._controller.settle(outcome, now_s)

    def reading(
        self,
        now_s: float,
        engine: str,
        running: int | None,
        waiting: int | None,
        kv_usage: float | None,
        steps_total: float | None,
        tokens_total: float | None,
    ) -> None:
        """An engine's own counters."""
        reading = EngineReading(
            running=running,
            waiting=waiting,
            kv_usage=kv_usage,
            steps_total=steps_total,
            tokens_total=tokens_total,
        )
        self._controller.read(engine, reading, now_s)

    def _take(self) -> list[Final]:
        return [self._final(verdict) for verdict in self._controller.take_verdicts()]

    def _final(self, verdict: Verdict) -> Final:
        if isinstance(verdict, Reject):
            return verdict.id, "reject", verdict.status, verdict.retry_after_s
        assert isinstance(verdict, Admit)
        self._engine_of[verdict.id] = verdict.engine
        return verdict.id, "admit", verdict.engine


def _limits(engines: list[Mapping[str, Any]], options: Options) -> Limits:
    stated: dict[str, Any] = {}
    for key in ("slots", "kv_tokens", "batched_tokens"):
        figures = [engine[key] for engine in engines if engine.get(key)]
        if figures:
            stated[key] = int(figures[0])
    return Limits(
        **stated,
        queue_len=options.queue_len,
        alpha=options.alpha,
        early_reject=options.early_reject,
        order=options.order,
        mode=options.mode,
    )


def _ending(status: int) -> Ending:
    if status in {429, 503}:
        return Ending.ENGINE_REFUSED
    if status >= 500 or status == 0:
        return Ending.ENGINE_FAILED
    return Ending.BAD_REQUEST if status >= 400 else Ending.COMPLETE
