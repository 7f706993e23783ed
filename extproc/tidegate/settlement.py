"""What becomes of a finished request: its pool settles it, the estimator learns from it, counters and the log record
it.

Releasing and settling are two events: the slot comes back when the ext_proc stream ends, the truth comes with the
access-log entry, before or after. Settling happens at most once an id.
"""

from collections.abc import Callable, Iterable

from tidegate.admission.outcome import Ending, Outcome
from tidegate.intake import Intake
from tidegate.pools import Pools
from tidegate.receipt import ReceiptField, receipt
from tidegate.seal import Seal
from tidegate.tally import Count, Tally


class Settlement:
    """Takes in outcomes, a batch at a time."""

    def __init__(
        self,
        pools: Pools,
        intake: Intake,
        tally: Tally,
        seal: Seal,
        write_receipt: Callable[[dict[str, ReceiptField]], None] | None,
    ) -> None:
        self._pools = pools
        self._intake = intake
        self._tally = tally
        self._seal = seal
        self._write_receipt = write_receipt

    def take(self, outcomes: Iterable[Outcome]) -> None:
        """Settle each; a repeated id is counted and logged, and changes nothing."""
        for outcome in outcomes:
            self._take_one(outcome)

    def _take_one(self, outcome: Outcome) -> None:
        pool = self._pools.get(outcome.pool)
        first = True
        if pool is not None and outcome.decision != "pass":
            first = pool.turnstile.settle(outcome)
        if first:
            self._count(outcome)
            if pool is not None:
                self._learn(pool.estimator.learn, outcome)
        else:
            self._tally.add(Count.REPEATED_OUTCOMES)
        if self._write_receipt is not None:
            self._write_receipt(receipt(outcome, first=first))

    def _learn(self, learn: Callable[[bytes, int, str, int | None], bool], outcome: Outcome) -> None:
        if not outcome.ticket:
            return
        if outcome.ending is Ending.COMPLETE:
            self._intake.prove(outcome.tenant, outcome.model)
            finish_reason = ""
        elif outcome.ending is Ending.CLIENT_CANCELLED:
            finish_reason = "abort"
        else:
            self._tally.add(Count.UNLEARNED, outcome.pool, outcome.ending.value)
            return
        ticket = self._seal.open(outcome.ticket, outcome.id)
        if ticket is None:  # another key's, or forged: it teaches nothing
            self._tally.add(Count.UNLEARNED, outcome.pool, "not_sealed_by_us")
        elif outcome.completion_tokens is None:
            self._tally.add(Count.UNLEARNED, outcome.pool, "no_usage")
        elif not learn(ticket, outcome.completion_tokens, finish_reason, outcome.prompt_tokens):
            self._tally.add(Count.UNLEARNED, outcome.pool, "not_taken")

    def _count(self, outcome: Outcome) -> None:
        pool = outcome.pool if self._pools.get(outcome.pool) is not None else "unknown"
        self._tally.add(Count.OUTCOMES, pool, outcome.ending.value)
        if outcome.prompt_tokens:
            self._tally.add(Count.PROMPT_TOKENS, pool, by=outcome.prompt_tokens)
        if outcome.completion_tokens:
            self._tally.add(Count.COMPLETION_TOKENS, pool, by=outcome.completion_tokens)
            if outcome.ending is Ending.CLIENT_CANCELLED:
                self._tally.add(Count.WASTED_TOKENS, pool, by=outcome.completion_tokens)
