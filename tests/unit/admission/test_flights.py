"""What is known of a request until its truth has come."""

from tidegate.admission.engine_book import EngineBook
from tidegate.admission.flights import Flight, Flights
from tidegate.admission.limits import Limits
from tidegate.admission.work import Work

from .builders import cost

BOOK = EngineBook(Limits(), now_s=0.0)


def started(flights: Flights, *ids: str) -> list[Flight]:
    flying = [Flight(Work(id=work_id), cost(), BOOK) for work_id in ids]
    for flight in flying:
        flights.start(flight)
    return flying


def test_a_truth_that_comes_before_the_end() -> None:
    """It finds the flight, which goes on running until its stream ends."""
    flights = Flights()
    (flight,) = started(flights, "a")
    assert flights.settle("a") is flight
    assert flights.running("a") is flight
    assert flights.end("a", 1.0) is flight
    assert (len(flights), flights.running("a")) == (0, None)


def test_a_truth_that_comes_after_the_end() -> None:
    """It finds the flight as it ended, once."""
    flights = Flights()
    (flight,) = started(flights, "a")
    flights.end("a", 2.5)
    assert flight.ended_s == 2.5
    assert flights.settle("a") is flight
    assert flights.settle("a") is None


def test_a_stream_ends_once() -> None:
    """A second end, or the end of a stranger, finds nobody."""
    flights = Flights()
    started(flights, "a")
    assert flights.end("a", 1.0) is not None
    assert flights.end("a", 1.0) is None
    assert flights.end("stranger", 1.0) is None
    assert flights.settle("stranger") is None


def test_who_ended_is_remembered_for_a_minute() -> None:
    """Whoever ends later makes the earlier forgotten; what runs never is."""
    flights = Flights()
    started(flights, "old", "late", "new", "runs")
    flights.end("old", 0.0)
    flights.end("late", 0.1)
    flights.end("new", 60.05)
    assert flights.settle("old") is None
    assert flights.settle("late") is not None
    assert flights.running("runs") is not None


def test_of_those_that_ended_at_most_4096() -> None:
    """The one that ended first goes first."""
    flights = Flights()
    ids = [str(number) for number in range(5000)]
    started(flights, *ids)
    for work_id in ids:
        flights.end(work_id, 1.0)
    known = [work_id for work_id in ids if flights.settle(work_id) is not None]
    assert known == ids[-4096:]


def test_an_id_that_comes_again_is_another_request() -> None:
    """What is known of its namesake goes: a truth must not be credited to the wrong one."""
    flights = Flights()
    started(flights, "a")
    flights.end("a", 1.0)
    (second,) = started(flights, "a")
    assert flights.settle("a") is second
    assert flights.end("a", 2.0) is second
    assert len(flights) == 0


def test_an_id_that_comes_again_ends_again() -> None:
    """And is remembered from then on, behind those that ended before it."""
    flights = Flights()
    started(flights, "a", "b", "c")
    flights.end("a", 0.0)
    flights.end("b", 10.0)
    started(flights, "a")
    flights.end("a", 50.0)
    flights.end("c", 75.0)
    assert flights.settle("b") is None
    assert flights.settle("a") is not None
