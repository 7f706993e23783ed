"""One finished request in one flat record: the log line, and what `explain` shows of it."""

from tidegate.admission.dollars import NANO
from tidegate.admission.outcome import Outcome

ReceiptField = str | float | int | bool | None


def receipt(
    outcome: Outcome, *, first: bool, inferred_tokens: int | None = None, cost_nanousd: int | None = None
) -> dict[str, ReceiptField]:
    """The record of one finished request; times in milliseconds, absent figures left out.

    Args:
        outcome: as read from the access-log entry.
        first: False where the same id was settled before.
        inferred_tokens: completion tokens as inferred, where the engine reported none.
        cost_nanousd: what it cost, where that is known.
    """
    fields: dict[str, ReceiptField] = {
        "event": "request",
        "id": outcome.id,
        "pool": outcome.pool,
        "tenant": outcome.tenant,
        "model": outcome.model,
        "api": outcome.api,
        "decision": outcome.decision,
        "reason": outcome.reason,
        "ending": outcome.ending.value,
        "status": outcome.status,
        "stream": outcome.stream,
        "hold_ms": _ms(outcome.hold_s),
        "duration_ms": _ms(outcome.duration_s),
        "ttft_ms": _ms(outcome.ttft_s),
        "e2e_ms": _ms(outcome.e2e_s),
        "prompt_tokens": outcome.prompt_tokens,
        "completion_tokens": outcome.completion_tokens if inferred_tokens is None else inferred_tokens,
        "predicted_tokens": outcome.predicted_tokens,
        "reserved_tokens": outcome.reserved_tokens,
        "engine": outcome.engine,
        "steered": outcome.steered if outcome.steered_wrong else "",
        "attempts": outcome.attempts,
        "details": outcome.details,
    }
    if inferred_tokens is not None:
        fields["inferred"] = True
    if outcome.charge is not None:
        fields["predicted_cost_usd"] = outcome.charge.predicted_nanousd / NANO
    if cost_nanousd is not None:
        fields["cost_usd"] = cost_nanousd / NANO
    if not first:
        fields["repeated"] = True
    return {name: value for name, value in fields.items() if value is not None and value != ""}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000.0, 1)
