"""Who holds what, what outlives a restart, and which outcomes were seen."""

from typing import Any

import pytest

from tidegate.admission import books
from tidegate.admission.expiry import ExpiryHeap
from tidegate.admission.ledger import Booking, Ledger
from tidegate.admission.settled import Settled


def booking(**facts: Any) -> Booking:
    return Booking(**({"sequences": 2, "kv_tokens": 30, "ends_at_s": 10.0} | facts))


def sums(ledger: Ledger) -> tuple[int, int, int, int]:
    return ledger.sequences, ledger.kv_tokens, ledger.over_sequences, ledger.over_kv_tokens


def test_a_booking_is_given_back_once() -> None:
    """Release takes off what book put on; a second release finds nothing."""
    ledger = Ledger()
    assert not ledger.book("a", booking())
    ledger.book("b", booking(over=True))
    assert sums(ledger) == (4, 60, 2, 30)
    assert ledger.release("b")
    assert not ledger.release("b")
    assert sums(ledger) == (2, 30, 0, 0)


def test_an_id_is_booked_once() -> None:
    """Booking a live id again is a bug of the caller's."""
    ledger = Ledger()
    ledger.book("a", booking())
    with pytest.raises(AssertionError):
        ledger.book("a", booking())


def test_an_orphan_is_settled_or_expires() -> None:
    """An orphan holds its share until its outcome comes or its time is over; no stream's end gives it back."""
    ledger = Ledger()
    assert ledger.adopt("settled", booking())
    assert ledger.adopt("expired", booking(ends_at_s=20.0))
    assert not ledger.adopt("expired", booking())
    assert not ledger.release("settled")
    assert ledger.settle("settled")
    assert not ledger.settle("settled")
    assert (ledger.orphans, ledger.next_expiry_s()) == (1, 20.0)
    assert ledger.expire(19.9) == []
    assert ledger.expire(20.0) == ["expired"]
    assert (ledger.orphans, sums(ledger)) == (0, (0, 0, 0, 0))


def test_a_new_request_takes_over_from_an_orphan_of_its_name() -> None:
    """Ids are unique within a process; one that an earlier process used as well is booked once, for the living, and
    the caller is told.
    """
    ledger = Ledger()
    ledger.adopt("a", booking(kv_tokens=500))
    assert ledger.book("a", booking())
    assert (ledger.orphans, sums(ledger)) == (0, (2, 30, 0, 0))


def test_books_survive_a_restart() -> None:
    """Records carry what is held and for how long still, so that another clock can take them up."""
    records = books.dump([("a", booking(ends_at_s=130.0))], 100.0)
    assert records == [{"id": "a", "sequences": 2, "kv_tokens": 30, "expires_in_s": 30.0}]
    assert list(books.read(records, 5000.0)) == [("a", booking(ends_at_s=5030.0))]


@pytest.mark.parametrize(
    "damage",
    [
        {"id": 7},
        {"id": ""},
        {"id": "x" * 1000},
        {"sequences": 0},
        {"sequences": True},
        {"sequences": "2"},
        {"kv_tokens": -1},
        {"kv_tokens": 10**30},
        {"kv_tokens": None},
        {"expires_in_s": float("nan")},
        {"expires_in_s": -1},
        {"expires_in_s": "soon"},
        {"expires_in_s": 10**400},
    ],
)
def test_a_damaged_record_is_skipped(damage: dict[str, object]) -> None:
    """A record that is not of the right shape is passed over, and the others are read."""
    good: dict[str, object] = {"id": "a", "sequences": 1, "kv_tokens": 1, "expires_in_s": 5}
    assert [work_id for work_id, _ in books.read([good | damage, good], 0.0)] == ["a"]


def test_an_outcome_counts_once_a_minute() -> None:
    """The same id of the same replica is taken once; another replica's is another request."""
    settled = Settled()
    assert settled.first_time(("r1", "a"), 0.0)
    assert not settled.first_time(("r1", "a"), 59.0)
    assert settled.first_time(("r2", "a"), 59.0)
    assert settled.first_time(("r1", "a"), 60.0)


def test_the_memory_of_outcomes_is_bounded() -> None:
    """After more outcomes than it remembers, the oldest are forgotten."""
    settled = Settled()
    for i in range(65_537):
        settled.first_time(("", str(i)), 0.0)
    assert len(settled) == 65_536
    assert settled.first_time(("", "0"), 0.0)


def test_a_key_added_again_ends_at_its_new_time() -> None:
    """The heap of expiry times follows the latest time of each key."""
    heap = ExpiryHeap()
    heap.add("a", 10.0)
    heap.add("a", 20.0)
    assert heap.pop_ended(10.0) == []
    assert heap.next_s() == 20.0
    heap.discard("a")
    assert (len(heap), heap.next_s()) == (0, None)
