"""Small requests and pools, in one place, so that each test names only what it is about."""

from typing import Any

from tidegate.admission.controller import Controller
from tidegate.admission.cost import Cost
from tidegate.admission.decision import Admit, Decision, Enqueue, Reject, Verdict
from tidegate.admission.limits import Limits, Mode
from tidegate.admission.load import Load
from tidegate.admission.outcome import Outcome
from tidegate.admission.work import Work


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
        "sequences": 1,
        "kv_tokens": 1,
        "ttft_s": 0.01,
        "answer_s": 0.01,
        "bottleneck_s": 0.01,
    }
    return Cost(**(defaults | facts))


def load(**facts: Any) -> Load:
    """One engine, nothing running, nobody waiting."""
    defaults: dict[str, Any] = {"cost": cost(), "engines": 1}
    return Load(**(defaults | facts))


def pool(*, slots: int = 1, engines: int = 1, now_s: float = 0.0, **facts: Any) -> Controller:
    """A pool at its full limits, patient with those that wait."""
    defaults: dict[str, Any] = {"slots": slots, "queue_len": 100, "mode": Mode.BACKPRESSURE_FIRST}
    limits = Limits(**(defaults | facts))
    return Controller(limits, engines=engines, now_s=now_s, ramp=False)


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
