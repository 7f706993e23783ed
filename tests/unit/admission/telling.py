"""What is seen of a controller, in words: decisions, engines and the queue; figures are rounded to thousandths."""

from collections.abc import Iterator, Sequence

from tidegate.admission.decision import Admit, Decision, Enqueue, Reject
from tidegate.admission.engine_book import EngineBook
from tidegate.admission.queues.fair import FairQueue

_SHOWN_MAX = 16


def abridged(words: Sequence[str], gap: str) -> list[str]:
    """All of them, or of more than 16 the first, how many were left out, and the last three."""
    if len(words) <= _SHOWN_MAX:
        return list(words)
    return [words[0], f"{gap} {len(words) - 4} more {gap}", *words[-3:]]


def said(decision: Decision) -> str:
    """A decision, with its rule, what was measured of what is allowed, and times in seconds."""
    reason = decision.reason
    unit = f" {short(reason.measured)} of {short(reason.threshold)} {reason.unit}" if reason.unit else ""
    match decision:
        case Enqueue():
            return f"{decision.id} waits: {reason.rule}{unit}; until {short(decision.expires_at_s)} s"
        case Admit():
            to = f" to {decision.engine}" if decision.engine else ""
            after = f"; after {short(decision.waited_s)} s" if decision.waited_s else ""
            return f"{decision.id} admit{to}: {reason.rule}{unit}{after}"
        case Reject():
            after = f"; after {short(decision.waited_s)} s" if decision.waited_s else ""
            again_s = decision.retry_after_s
            again = "never" if again_s is None else f"in {short(again_s)} s"
            return f"{decision.id} reject {decision.status}: {reason.rule}{unit}{after}; again {again}"


def engine(book: EngineBook) -> str:
    """What an engine is reckoned to do, and what it may."""
    name = f"engine {book.name}" if book.name else f"engines {book.width}"
    return (
        f"{name}: share {short(book.share)}, {book.sequences} of {book.slots} sequences,"
        f" {short(book.kv_tokens, 0)} of {book.kv_tokens_max} KV tokens, {short(book.prefill_left_s)} s of prompts"
    )


def learned(book: EngineBook) -> str:
    """Step times and capacities, as learned."""
    model = book.model
    bare_s, full_s = model.step_s(0.0, 0.0, 0.0), model.step_s(0.0, 400.0, 0.0)
    return (
        f"learned of {book.name or 'the pool'}: {short(model.windows)} windows, bare step {short(bare_s)} s,"
        f" of 400 tokens {short(full_s)} s, gain {short(model.gain)}; {book.slots_each} slots,"
        f" {book.kv_tokens_each} KV tokens"
    )


def queued(queue: FairQueue) -> Iterator[str]:
    """Tenants with the next in turn first, and the requests of each in their order."""
    for tenant in queue._turns:
        lane = queue._lanes[tenant]
        share = f" of {tenant} x{lane.weight} at {short(lane.counter)}" if tenant else ""
        for work_id in lane.entries:
            waiting = queue._waiting[work_id]
            yield (
                f"  {work_id}{share}: key {short(lane.entries.key(work_id))}, cost {short(waiting.cost_s)} s,"
                f" until {short(waiting.expires_at_s)} s"
            )


def short(value: float, digits: int = 3) -> str:
    """Rounded, without trailing zeros, and never a negative zero."""
    text = f"{value:.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text
