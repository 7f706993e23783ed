"""Learns from finished answers as a running service would: predict first, learn later, in order.

    for each row:  estimate -> ticket;   learn the answer of the row `in_flight` before

Whoever learns an answer before predicting the next one has no requests in flight and flatters himself. So an answer is
learned only after the `in_flight` requests behind it were predicted, and what was predicted before the answer was
known is what is scored (Dawid's prequential or "progressive" validation, 1984): every row is unseen, none is held out.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, assert_never

from tidegate_estimator.cost import CostEstimate
from tidegate_estimator.request import CompletionRequest

IN_FLIGHT = 16


class Learner(Protocol):
    """The part of an `Estimator` that a replay needs."""

    def estimate(self, request: CompletionRequest) -> CostEstimate:
        """Predict."""
        ...

    def learn(
        self, ticket: bytes, completion_tokens: int, finish_reason: str, prompt_tokens: int | None = None
    ) -> bool:
        """Take in one answer; False where it taught nothing."""
        ...


class Answered(NamedTuple):
    """A request and how long its answer became.

    `completion_tokens`: all sequences together. `finish_reason`: stop, length, abort, or empty where nobody knows.
    `prompt_tokens`: as the engine counted them, or None.
    """

    request: CompletionRequest
    completion_tokens: int
    finish_reason: str = ""
    prompt_tokens: int | None = None


class Ticketed(NamedTuple):
    """An answer to a request of which only the estimate's ticket is left: it teaches, but cannot be scored."""

    ticket: bytes
    completion_tokens: int
    finish_reason: str = ""
    prompt_tokens: int | None = None


@dataclass(slots=True)
class Progressive:
    """What was predicted before the truth was known, one entry an answer of known length.

    Attributes:
        tenants: who asked.
        observed, p50, p90, mean: tokens.
        learned, refused: answers that taught something, and that did not.
    """

    tenants: list[str] = field(default_factory=list)
    observed: "array[float]" = field(default_factory=lambda: array("d"))
    p50: "array[float]" = field(default_factory=lambda: array("d"))
    p90: "array[float]" = field(default_factory=lambda: array("d"))
    mean: "array[float]" = field(default_factory=lambda: array("d"))
    learned: int = 0
    refused: int = 0


def replay(
    estimator: Learner,
    rows: Iterable[Answered | Ticketed],
    *,
    in_flight: int = IN_FLIGHT,
    on_progress: Callable[[], None] | None = None,
) -> Progressive:
    """Predict and learn every row; answers still in flight at the end are learned too.

    Args:
        estimator: learns in place.
        rows: in the order in which the requests came.
        in_flight: requests predicted between a request and its answer.
        on_progress: called once a row.
    """
    found = Progressive()
    waiting: deque[Ticketed] = deque()
    for row in rows:
        waiting.append(_ticketed(estimator, row, found))
        if len(waiting) > in_flight:
            _learn(estimator, waiting.popleft(), found)
        if on_progress is not None:
            on_progress()
    while waiting:
        _learn(estimator, waiting.popleft(), found)
    return found


def _ticketed(estimator: Learner, row: Answered | Ticketed, found: Progressive) -> Ticketed:
    """The row with its ticket; what was predicted for it is noted."""
    match row:
        case Ticketed():
            return row
        case Answered(request, tokens, finish_reason, prompt_tokens):
            estimate = estimator.estimate(request)
            if finish_reason != "abort":  # nobody knows how long it would have become
                found.tenants.append(request.tenant)
                found.observed.append(tokens)
                found.p50.append(estimate.p50)
                found.p90.append(estimate.p90)
                found.mean.append(estimate.mean)
            return Ticketed(estimate.ticket, tokens, finish_reason, prompt_tokens)
    assert_never(row)


def _learn(estimator: Learner, row: Ticketed, found: Progressive) -> None:
    if estimator.learn(*row):
        found.learned += 1
    else:
        found.refused += 1
