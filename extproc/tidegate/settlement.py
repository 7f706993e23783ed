"""What becomes of a finished request: settled by its pool, learned from by the estimator, counted and logged.

Releasing and settling are two events: the slot comes back when the ext_proc stream ends, the truth comes with the
access-log entry, before or after. Settling happens at most once an id.
"""

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import NamedTuple

from tidegate.admission.allowance import Allowance
from tidegate.admission.cost import finished
from tidegate.admission.dollars import NANO
from tidegate.admission.outcome import Charge, Ending, Outcome
from tidegate.admission.work import Work
from tidegate.clock import Clock
from tidegate.intake import Intake
from tidegate.pools import Pool, Pools
from tidegate.receipt import ReceiptField, receipt
from tidegate.seal import Seal
from tidegate.tally import Count, Tally
from tidegate_estimator.service_ticket import ServiceTicket, open_service_ticket
from tidegate_estimator.usage import AnswerKind

LEARNED_PER_S_MAX = 200.0
"""Answers a second that teach the estimator. More would teach it little that these do not, and cost verdicts time:
learning takes as long as a decision does."""


class _Scores(NamedTuple):
    """The sums that predictions of one unit are scored with."""

    answers: Count
    predicted: Count
    truth: Count
    within_p90: Count
    pinball: Count


_OF_TOKENS = _Scores(
    Count.SCORED_ANSWERS,
    Count.SCORED_PREDICTED_TOKENS,
    Count.SCORED_COMPLETION_TOKENS,
    Count.SCORED_WITHIN_P90,
    Count.SCORED_P90_PINBALL_TOKENS,
)
_OF_SECONDS = _Scores(
    Count.SCORED_TIMED_ANSWERS,
    Count.SCORED_PREDICTED_SECONDS,
    Count.SCORED_SERVICE_SECONDS,
    Count.SCORED_TIMED_WITHIN_P90,
    Count.SCORED_P90_PINBALL_SECONDS,
)


class Settlement:
    """Takes in outcomes, a batch at a time."""

    def __init__(
        self,
        pools: Pools,
        intake: Intake,
        tally: Tally,
        seal: Seal,
        clock: Clock,
        write_receipt: Callable[[dict[str, ReceiptField]], None] | None,
    ) -> None:
        self._pools = pools
        self._intake = intake
        self._tally = tally
        self._seal = seal
        self._clock = clock
        self._lessons = Allowance(LEARNED_PER_S_MAX, clock.now_s())
        self._write_receipt = write_receipt

    def take(self, outcomes: Iterable[Outcome]) -> None:
        """Settle each; a repeated id is counted and logged, and changes nothing."""
        for outcome in outcomes:
            self._take_one(outcome)

    def _take_one(self, outcome: Outcome) -> None:
        pool = self._pools.get(outcome.pool)
        first = True
        inferred_tokens = cost_nanousd = None
        if pool is not None and outcome.decision != "pass":
            first = pool.turnstile.settle(outcome)
        if first:
            self._count(outcome)
            if pool is not None and outcome.ticket:
                inferred_tokens = self._learn(pool, outcome)
            if outcome.charge is not None:
                cost_nanousd = self._charge(pool, outcome, outcome.charge, inferred_tokens)
        else:
            self._tally.add(Count.REPEATED_OUTCOMES)
        if self._write_receipt is not None:
            self._write_receipt(
                receipt(outcome, first=first, inferred_tokens=inferred_tokens, cost_nanousd=cost_nanousd)
            )

    def _learn(self, pool: Pool, outcome: Outcome) -> int | None:
        """Teach the pool's estimator; returns the completion tokens where they had to be inferred."""
        complete = outcome.ending is Ending.COMPLETE
        if not complete and outcome.ending is not Ending.CLIENT_CANCELLED:
            self._tally.add(Count.UNLEARNED, outcome.pool, outcome.ending.value)
            return None
        ticket = self._seal.open(outcome.ticket, outcome.id)
        if ticket is None:  # another key's, or forged: it teaches nothing
            self._tally.add(Count.UNLEARNED, outcome.pool, "not_sealed_by_us")
            return None
        if complete:
            self._intake.prove(outcome.tenant, outcome.model)
        service = open_service_ticket(ticket)
        if service is not None:
            self._learn_service_time(pool, outcome, service)
            return None
        # Of streams only: a whole JSON answer always tells its usage, or its bytes say little about its tokens.
        whole = complete and outcome.stream and outcome.status == HTTPStatus.OK and outcome.response_bytes > 0
        kind = AnswerKind(outcome.model, outcome.stream, outcome.api)
        tokens = outcome.completion_tokens
        if tokens is None and outcome.prompt_tokens is not None and not outcome.stream:
            tokens = 0  # embeddings and the like tell their prompt alone
        if tokens is None:
            inferred = pool.usage.infer(kind, outcome.response_bytes) if whole else None
            self._learn_inferred(pool, outcome, ticket, inferred)
            return inferred
        self._tally.add(Count.USAGE, outcome.pool, "reported")
        if whole:
            pool.usage.learn(kind, outcome.response_bytes, tokens)
        if complete and outcome.completion_tokens is not None:
            mean, p90 = outcome.predicted_tokens, outcome.predicted_p90_tokens
            self._score(_OF_TOKENS, outcome, mean=mean, p90=p90, truth=tokens)
        self._teach(pool, outcome, ticket, tokens)
        return None

    def _learn_service_time(self, pool: Pool, outcome: Outcome, ticket: ServiceTicket) -> None:
        """Teach how long a model without tokens takes, and compare with what was predicted where no queue is in it."""
        cut = outcome.ending is Ending.CLIENT_CANCELLED
        # Envoy times the way to the client only where it got there; of one that left, all but the hold was the engine's
        took_s = outcome.duration_s - outcome.hold_s if cut else outcome.e2e_s
        if took_s is None or (cut and not outcome.attempts):
            self._tally.add(Count.UNLEARNED, outcome.pool, outcome.ending.value)
            return
        if ticket.trust >= 1.0 and not cut:
            self._score(_OF_SECONDS, outcome, mean=ticket.mean_s, p90=ticket.p90_s, truth=took_s)
        if not self._lessons.take(self._clock.now_s()):
            self._tally.add(Count.UNLEARNED, outcome.pool, "enough_learned")
        elif not pool.service_times.learn(ticket, took_s, cut=cut):
            self._tally.add(Count.UNLEARNED, outcome.pool, "crowded")

    def _score(self, scores: _Scores, outcome: Outcome, *, mean: float, p90: float, truth: float) -> None:
        """Keep the estimator honest in public: coverage of p90, bias of the mean, pinball loss, by tenant and model.

        All as sums, so that any window of time can be looked at; an answer that its caller's cap kept below p90 counts
        as within.
        """
        if p90 <= 0:
            return
        labels = self._intake.tenants.label(outcome.tenant), self._intake.models.label(outcome.model)
        add = self._tally.add
        add(scores.answers, *labels)
        add(scores.predicted, *labels, by=mean)
        add(scores.truth, *labels, by=truth)
        if truth <= p90:
            add(scores.within_p90, *labels)
            add(scores.pinball, *labels, by=0.1 * (p90 - truth))
        else:
            add(scores.pinball, *labels, by=0.9 * (truth - p90))

    def _learn_inferred(self, pool: Pool, outcome: Outcome, ticket: bytes, inferred: int | None) -> None:
        """Teach the estimator every second inferred length: it is worth less than one that the engine counted."""
        if inferred is None:
            self._tally.add(Count.UNLEARNED, outcome.pool, "no_usage")
            return
        self._tally.add(Count.USAGE, outcome.pool, "inferred")
        if pool.usage.inferred_total % 2 == 0:
            self._tally.add(Count.UNLEARNED, outcome.pool, "inferred")
        else:
            self._teach(pool, outcome, ticket, inferred)

    def _teach(self, pool: Pool, outcome: Outcome, ticket: bytes, tokens: int) -> None:
        finish_reason = "" if outcome.ending is Ending.COMPLETE else "abort"
        if not self._lessons.take(self._clock.now_s()):
            self._tally.add(Count.UNLEARNED, outcome.pool, "enough_learned")
        elif not pool.estimator.learn(ticket, tokens, finish_reason, outcome.prompt_tokens):
            self._tally.add(Count.UNLEARNED, outcome.pool, "not_taken")

    def _charge(self, pool: Pool | None, outcome: Outcome, charge: Charge, inferred_tokens: int | None) -> int | None:
        """What the request cost, in nano-dollars, counted too; None where nobody can say."""
        if charge.timed:
            nanousd = _time_nanousd(pool, outcome, charge)
        else:
            nanousd = _token_nanousd(pool, outcome, charge, inferred_tokens)
        if nanousd is None:
            return None
        tenant, model = self._intake.tenants.label(outcome.tenant), self._intake.models.label(outcome.model)
        self._tally.add(Count.COST_USD, _label_of(outcome, pool), tenant, model, by=nanousd / NANO)
        return nanousd

    def _count(self, outcome: Outcome) -> None:
        pool = _label_of(outcome, self._pools.get(outcome.pool))
        self._tally.add(Count.OUTCOMES, pool, outcome.ending.value)
        if outcome.steered_wrong:
            self._tally.add(Count.STEER_MISSED, pool)
        if outcome.prompt_tokens:
            self._tally.add(Count.PROMPT_TOKENS, pool, by=outcome.prompt_tokens)
        if outcome.completion_tokens:
            self._tally.add(Count.COMPLETION_TOKENS, pool, by=outcome.completion_tokens)
            if outcome.ending is Ending.CLIENT_CANCELLED:
                self._tally.add(Count.WASTED_TOKENS, pool, by=outcome.completion_tokens)


def _label_of(outcome: Outcome, pool: Pool | None) -> str:
    return "unknown" if pool is None else outcome.pool


def _time_nanousd(pool: Pool | None, outcome: Outcome, charge: Charge) -> int | None:
    """What a request without tokens cost, by the time it took; None where it has no price or did not end well."""
    if pool is None or charge.price.by_tokens or outcome.ending is not Ending.COMPLETE or outcome.e2e_s is None:
        return None
    return charge.price.of_time(pool.controller.price(Work(id="", service_s=outcome.e2e_s)).bottleneck_s)


def _token_nanousd(pool: Pool | None, outcome: Outcome, charge: Charge, inferred_tokens: int | None) -> int | None:
    """What a request cost by its tokens; None where nobody says how many they were."""
    completion_tokens = outcome.completion_tokens if inferred_tokens is None else inferred_tokens
    if completion_tokens is None and outcome.prompt_tokens is None:
        return None
    completion_tokens = completion_tokens or 0  # embeddings have none
    prompt_tokens = outcome.prompt_tokens
    if prompt_tokens is None:
        prompt_tokens = charge.predicted_prompt_tokens
    if charge.price.by_tokens:
        return charge.price.of_tokens(prompt_tokens, completion_tokens)
    if pool is None:  # another replica's, whose engines this one knows nothing of
        return None
    work = finished(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens, sequences=charge.sequences)
    return charge.price.of_time(pool.controller.price(work).bottleneck_s)
