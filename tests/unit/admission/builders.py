"""Small requests, engines and pools, in one place, so that each test names only what it is about."""

from dataclasses import dataclass
from math import inf
from typing import Any

from tidegate.admission.controller import Controller
from tidegate.admission.cost import Cost
from tidegate.admission.decision import Admit, Decision, Enqueue, Reject, Verdict
from tidegate.admission.limits import Limits, Mode
from tidegate.admission.load import Load, TimedLoad
from tidegate.admission.outcome import Outcome
from tidegate.admission.work import Work

_ROOM_FOR_4 = TimedLoad(most=4)


def patient(work_id: str = "w", /, **facts: Any) -> Work:
    """A request of a few tokens whose caller waits for long: only capacity and the queue's bound decide about it."""
    defaults: dict[str, Any] = {
        "prompt_tokens": 10,
        "completion_tokens_max": 1,
        "ttft_budget_s": 3600.0,
        "client_timeout_s": 3600.0,
        "hold_s_max": 3600.0,
    }
    return Work(id=work_id, **(defaults | facts))


def cost(**facts: Any) -> Cost:
    """A cost of next to nothing."""
    defaults: dict[str, Any] = {
        "prompt_tokens": 1.0,
        "completion_tokens": 1.0,
        "log_mean": 0.0,
        "log_sigma": 0.5,
        "completion_tokens_max": inf,
        "estimate": (0.0, 0.5),
        "sequences": 1,
        "kv_tokens": 1,
        "answer_s": 0.01,
        "bottleneck_s": 0.01,
    }
    return Cost(**(defaults | facts))


@dataclass(frozen=True, slots=True, kw_only=True)
class StillEngine:
    """An engine whose figures are given, whatever the request. Implements `EngineLoad`.

    Attributes:
        demand_tokens, peak_tokens: KV tokens needed, and at the coming peak.
        first_token_s: from being sent to the first token.
        step_s: time of a step.
        paced_tokens_per_s, saved_tokens: prompt tokens a second that the pace allows, and those saved up.
        timed: its requests without tokens.
    """

    name: str = ""
    share: float = 1.0
    sequences: int = 0
    slots: int = 4
    kv_tokens: float = 0.0
    kv_tokens_max: int = 1000
    prefilling: bool = False
    prefill_left_s: float = 0.0
    demand_tokens: float = 0.0
    peak_tokens: float = 0.0
    first_token_s: float = 0.01
    step_s: float = 0.02
    paced_tokens_per_s: float = inf
    saved_tokens: float = 1.0
    timed: TimedLoad = _ROOM_FOR_4

    def timed_load(self) -> TimedLoad:
        return self.timed

    def kv_demand_tokens(self, cost: Cost) -> float:
        return self.demand_tokens

    def kv_peak_tokens(self, cost: Cost) -> float:
        return self.peak_tokens

    def ttft_s(self, prompt_tokens: float) -> float:
        return self.first_token_s

    def tpot_s(self, *, joining: int, prefill: bool) -> float:
        return self.step_s

    def prefill_allowance(self, tpot_target_s: float) -> tuple[float, float]:
        return self.paced_tokens_per_s, self.saved_tokens


def engine(name: str = "", /, **facts: Any) -> StillEngine:
    """An engine of 4 slots and 1000 KV tokens, with nothing to do."""
    return StillEngine(name=name, **facts)


def full(name: str = "", /, **facts: Any) -> StillEngine:
    """An engine whose 4 slots are taken."""
    return StillEngine(name=name, sequences=4, **facts)


def load(*engines: StillEngine, **facts: Any) -> Load:
    """The pool of these engines, of an idle one where none is named; nobody waits."""
    up = engines or (engine(),)
    defaults: dict[str, Any] = {"cost": cost(), "engines": up, "width": len(up)}
    return Load(**(defaults | facts))


def gone(**facts: Any) -> Load:
    """A pool without any engine."""
    defaults: dict[str, Any] = {"cost": cost(), "engines": (), "width": 0}
    return Load(**(defaults | facts))


def pool(
    *, slots: int | None = 1, engines: int = 1, names: tuple[str, ...] = (), now_s: float = 0.0, **facts: Any
) -> Controller:
    """A pool at its full limits, patient with those that wait; with `names` it chooses among its engines."""
    defaults: dict[str, Any] = {"slots": slots, "queue_len": 100, "mode": Mode.BACKPRESSURE_FIRST}
    limits = Limits(**(defaults | facts))
    return Controller(limits, engines=engines, names=names, now_s=now_s, ramp=False)


def outcome(work_id: str = "w", /, **facts: Any) -> Outcome:
    """A streamed answer of 101 tokens at 20 ms each."""
    defaults: dict[str, Any] = {"stream": True, "completion_tokens": 101, "ttft_s": 0.5, "e2e_s": 2.5}
    return Outcome(id=work_id, **(defaults | facts))


def words(verdicts: list[Verdict] | list[Decision]) -> list[str]:
    """Verdicts in short: `a admit`, `b reject expired`."""
    return [_word(verdict) for verdict in verdicts]


def _word(verdict: Decision) -> str:
    match verdict:
        case Admit(id=work_id):
            return f"{work_id} admit"
        case Enqueue(id=work_id, reason=reason):
            return f"{work_id} enqueue {reason.rule}"
        case Reject(id=work_id, reason=reason):
            return f"{work_id} reject {reason.rule}"
