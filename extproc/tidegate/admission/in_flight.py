"""What runs: what each request holds, in which engine's book, and what was known of it when it was admitted.

Three records go together and never apart: the booking that a restart keeps (ledger.py), the place in an engine's book
(fleet.py), and the flight that an outcome is compared with (flights.py).
"""

from collections.abc import Iterable, Mapping

from tidegate.admission import books
from tidegate.admission.cost import Cost
from tidegate.admission.decision import Admit, Rule
from tidegate.admission.fleet import Fleet
from tidegate.admission.flights import Flight, Flights
from tidegate.admission.ledger import Booking, Ledger
from tidegate.admission.work import Work

_ENDS_AFTER, _ENDS_AFTER_S = 2.0, 5.0  # times and seconds beyond which an answer should long be complete


class InFlight:
    """The requests that run in the engines of a fleet; `ledger` says how much they hold."""

    __slots__ = ("_fleet", "_flights", "ledger")

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._flights = Flights()
        self.ledger = Ledger()

    def __len__(self) -> int:
        """Those that run, orphans included."""
        return len(self.ledger) + self.ledger.orphans

    def __contains__(self, work_id: str) -> bool:
        return work_id in self.ledger

    def begin(self, work: Work, admit: Admit, cost: Cost, now_s: float) -> None:
        """It is admitted."""
        book = self._fleet.named(admit.engine)
        answer_s = book.ttft_s(cost.prompt_tokens) + cost.answer_s  # without tokens the former is next to nothing
        booking = Booking(
            sequences=cost.sequences,
            kv_tokens=cost.kv_tokens,
            over=admit.reason.rule is Rule.NOT_REFUSABLE,
            ends_at_s=now_s + min(work.client_timeout_s, _ENDS_AFTER * answer_s + _ENDS_AFTER_S),
        )
        if self.ledger.book(work.id, booking):
            self._fleet.forget_orphan(work.id, now_s)
        book.admit(work.id, cost, now_s)
        self._flights.start(Flight(work, cost, book))

    def end(self, work_id: str, now_s: float) -> bool:
        """Its stream has ended: what it holds is given back; False where it does not run."""
        if not self.ledger.release(work_id):
            return False
        flight = self._flights.end(work_id, now_s)
        assert flight is not None, f"{work_id} was booked without a flight"
        flight.timed = flight.book.service.release(work_id, now_s)
        if flight.timed is None:
            flight.row = flight.book.release(work_id, now_s)
        return True

    def running(self, work_id: str) -> Flight | None:
        """What is known of one that runs."""
        return self._flights.running(work_id)

    def settle(self, work_id: str) -> Flight | None:
        """What is known of one whose truth has come; it is asked once."""
        return self._flights.settle(work_id)

    def settle_orphan(self, work_id: str, now_s: float) -> bool:
        """One from before a restart has ended; False where there is none of that id."""
        if not self.ledger.settle(work_id):
            return False
        self._fleet.forget_orphan(work_id, now_s)
        return True

    def expire(self, now_s: float) -> None:
        """Give back the orphans whose time has come."""
        for work_id in self.ledger.expire(now_s):
            self._fleet.forget_orphan(work_id, now_s)

    def rebook(self, now_s: float) -> None:
        """Take what runs in books that are gone into those that there are."""
        for work_id, booking in self.ledger.items():
            flight = self._flights.running(work_id)
            if flight is None:
                self._fleet.adopt(work_id, booking, now_s)
            elif not self._fleet.keeps(flight.book):
                flight.book = self._fleet.take_in(work_id, booking, now_s)

    def dump(self, now_s: float) -> list[dict[str, object]]:
        """What runs, as plain records for a state file."""
        return books.dump(self.ledger.items(), now_s)

    def restore(self, records: Iterable[Mapping[str, object]], now_s: float) -> int:
        """Book what an earlier process left running; the number of records that were of use."""
        adopted = 0
        for work_id, booking in books.read(records, now_s):
            if self.ledger.adopt(work_id, booking):
                self._fleet.adopt(work_id, booking, now_s)
                adopted += 1
        return adopted
