"""What is known of the requests that were admitted, until their truth has come.

The stream's end gives back what a request holds; the access-log entry says what it really was. Either may come first.
So what the controller knew of a request stays for a minute after its end, of at most 4,096 that have ended; whoever is
forgotten teaches nothing more, and that is all.
"""

from collections import OrderedDict
from typing import assert_never

from tidegate.admission.cost import Cost
from tidegate.admission.engine_book import EngineBook
from tidegate.admission.outcome import Ending, Outcome
from tidegate.admission.reckoning import Row
from tidegate.admission.service_book import TimedRow
from tidegate.admission.work import Work

_ENDED_MAX = 4096
_ENDED_S = 60.0


class Flight:
    """One admitted request: its work, the cost it was admitted with, the book it is in and, once it ended, its row.

    `timed` is the row of a request without tokens.
    """

    __slots__ = ("book", "cost", "ended_s", "row", "timed", "work")

    def __init__(self, work: Work, cost: Cost, book: EngineBook) -> None:
        self.work = work
        self.cost = cost
        self.book = book
        self.row: Row | None = None
        self.timed: TimedRow | None = None
        self.ended_s = 0.0

    @property
    def known_row(self) -> Row | None:
        """What its engine's book knows of it, or knew when it ended."""
        return self.row or self.book.row(self.work.id)

    def went_elsewhere(self, outcome: Outcome) -> bool:
        """Whether Envoy sent it to another engine than its book's."""
        return bool(self.book.name) and bool(outcome.engine) and outcome.engine != self.book.name

    def learn_timed(self, outcome: Outcome, now_s: float) -> None:
        """Take in how a request without tokens ended."""
        row = self.timed or self.book.service.row(self.work.id)
        if row is not None and not self.went_elsewhere(outcome):
            self.book.service.settle(row, outcome.ending, now_s)

    def tokens_taken(self, outcome: Outcome, tau_s: float, now_s: float) -> float:
        """Tokens that it has cost its tenant, as its engine says or, where it does not, as far as it came.

        An answer cut short has cost what was prefilled and generated until then, one token of each sequence every
        `tau_s`; one that the engine refused or broke off, nothing that its tenant owes.
        """
        cost = self.cost
        prompt = cost.prompt_tokens if outcome.prompt_tokens is None else float(outcome.prompt_tokens)
        if outcome.completion_tokens is not None:
            return prompt + outcome.completion_tokens
        match outcome.ending:
            case Ending.COMPLETE:
                return prompt + cost.completion_tokens
            case Ending.CLIENT_CANCELLED:
                row = self.known_row
                if row is None or row.first_s is None:
                    return prompt
                generated = max((self.ended_s or now_s) - row.first_s, 0.0) / tau_s * cost.sequences
                return prompt + min(generated, cost.completion_tokens_max)
            case Ending.REJECTED | Ending.ENGINE_REFUSED | Ending.ENGINE_FAILED | Ending.BAD_REQUEST:
                return 0.0
            case _ as never:
                assert_never(never)

    def silent_s(self, outcome: Outcome, now_s: float) -> float:
        """How long the client of a stream, who left, had waited for a first byte that was due; 0 where one came.

        Of a whole answer nobody can say when it is due.
        """
        if outcome.ending is not Ending.CLIENT_CANCELLED or not self.work.stream:
            return 0.0
        row = self.known_row
        if row is None or outcome.response_bytes or outcome.ttft_s is not None:
            return 0.0
        due_s = row.admitted_s + self.book.ttft_s(self.cost.prompt_tokens) if row.first_s is None else row.first_s
        return (self.ended_s or now_s) - due_s


class Flights:
    """Those that run, and those that ended a moment ago and are not settled yet."""

    __slots__ = ("_ended", "_running")

    def __init__(self) -> None:
        self._running: dict[str, Flight] = {}
        self._ended: OrderedDict[str, Flight] = OrderedDict()

    def __len__(self) -> int:
        """Those that run."""
        return len(self._running)

    def start(self, flight: Flight) -> None:
        """A request is admitted."""
        self._ended.pop(flight.work.id, None)
        self._running[flight.work.id] = flight

    def end(self, work_id: str, now_s: float) -> Flight | None:
        """Its stream has ended; None where it does not run."""
        flight = self._running.pop(work_id, None)
        if flight is None:
            return None
        flight.ended_s = now_s
        self._ended[work_id] = flight
        while self._ended and (
            len(self._ended) > _ENDED_MAX or next(iter(self._ended.values())).ended_s < now_s - _ENDED_S
        ):
            self._ended.popitem(last=False)
        return flight

    def running(self, work_id: str) -> Flight | None:
        """A request that runs."""
        return self._running.get(work_id)

    def settle(self, work_id: str) -> Flight | None:
        """What is known of a request whose truth has come; it is asked once."""
        return self._running.get(work_id) or self._ended.pop(work_id, None)
