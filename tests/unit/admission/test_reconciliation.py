"""What an engine runs beside what is booked in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.cost import Cost
from tidegate.admission.engine_book import EngineBook
from tidegate.admission.limits import Limits
from tidegate.admission.reading import EngineReading
from tidegate.admission.reconciliation import Reconciliation, is_explained

from .builders import cost


def counted(*excess: int, overdue: int = 0, held_each: float = 0.0, kv: float | None = None) -> Reconciliation:
    """Readings of these differences, one after the other."""
    found = Reconciliation()
    for each in excess:
        found.reading(each, overdue=overdue, held_each=held_each, kv_excess_tokens=kv)
    return found


@pytest.mark.parametrize(
    ("excess", "foreign"),
    [((5,), 0), ((5, 5), 0), ((5, 5, 5), 5), ((9, 3, 5), 3), ((5, 5, 0), 0), ((5, 5, 5, 7), 5), ((5, 5, 5, 0), 0)],
)
def test_traffic_of_others_is_what_three_readings_agree_on(excess: tuple[int, ...], foreign: int) -> None:
    """Fewer are no proof, the least of three counts, and one reading without it is enough to give the slots back."""
    found = counted(*excess)
    assert (found.foreign, found.sequences) == (foreign, foreign)


def test_bookings_are_given_up_only_where_they_are_overdue() -> None:
    """An engine that counts late looks like one whose requests are gone: what has its time yet is left alone."""
    assert counted(-8, -8, -8).gone == 0
    assert counted(-8, -8, -8, overdue=3).sequences == -3
    assert counted(-2, -8, -8, overdue=3).gone == 2
    assert counted(-8, -8, 0, overdue=3).gone == 0


def test_kv_tokens_go_with_their_sequences() -> None:
    """Those of others take up room, those of requests that are gone give theirs back, and alone they are rounding."""
    assert counted(4, 4, 4, kv=900.0).kv_tokens == 900.0
    assert counted(4, 4, 4).kv_tokens == 0.0
    assert counted(0, 0, 0, kv=900.0).kv_tokens == 0.0
    assert counted(-4, -4, -4, overdue=2, held_each=50.0).kv_tokens == -100.0


def test_what_was_found_can_be_forgotten() -> None:
    """Then it takes three readings again."""
    found = counted(4, 4, 4, kv=900.0)
    found.forget()
    assert (found.sequences, found.kv_tokens) == (0, 0.0)
    found.reading(4, overdue=0, held_each=0.0, kv_excess_tokens=None)
    assert found.sequences == 0


@given(excess=st.lists(st.integers(-1000, 1000), max_size=8), overdue=st.integers(0, 1000))
def test_no_count_moves_the_books_beyond_itself(excess: list[int], overdue: int) -> None:
    """Never more foreign ones than one reading found, never more gone than are overdue, and never both."""
    found = counted(*excess, overdue=overdue)
    assert 0 <= found.foreign <= max([*excess, 0])
    assert 0 <= found.gone <= overdue
    assert not (found.foreign and found.gone)


def test_a_few_on_their_way_explain_themselves() -> None:
    """Two sequences, or a tenth of those booked."""
    assert is_explained(2, 0)
    assert not is_explained(3, 0)
    assert is_explained(10, 100)
    assert not is_explained(11, 100)


def engine(**limits: int) -> EngineBook:
    return EngineBook(Limits(**limits), now_s=0.0)


def answer(**facts: float) -> Cost:
    """Of 100 prompt tokens, and done within a second."""
    return cost(**({"prompt_tokens": 100.0, "answer_s": 1.0} | facts))


def read(book: EngineBook, times: int = 3, at_s: float = 1.0, **facts: float) -> None:
    for number in range(times):
        book.read(EngineReading(**facts), at_s + number)


def test_others_take_slots_and_kv_tokens() -> None:
    """Of 8 slots and 1000 tokens, of which others have 3 and 500, 5 and 500 are left for ours; then all again."""
    book = engine(slots=8, kv_tokens=1000)
    read(book, running=2, waiting=1, kv_usage=0.5)
    assert (book.others.foreign, book.slots, book.kv_tokens_max) == (3, 5, 500)
    read(book, times=1, at_s=4.0, running=0, waiting=0, kv_usage=0.0)
    assert (book.slots, book.kv_tokens_max) == (8, 1000)


def test_an_engine_full_of_others_takes_one_of_ours() -> None:
    """No count shuts an engine for good: it may be wrong."""
    book = engine(slots=8)
    read(book, running=50, waiting=50)
    assert book.slots == 1


def test_ours_are_not_others() -> None:
    """What is booked is what it counts: nothing is found."""
    book = engine(slots=8)
    for name in "abc":
        book.admit(name, answer(), 0.5)
    read(book, running=3, waiting=0)
    assert (book.others.sequences, book.slots) == (0, 8)


def test_a_booking_that_should_long_be_over_is_given_up() -> None:
    """The engine runs nothing any more: within seconds of its time the slot is free, and not before."""
    book = engine(slots=8)
    book.admit("a", answer(), 0.0)
    read(book, at_s=1.0, running=0, waiting=0)
    assert book.slots - book.sequences == 7
    read(book, at_s=60.0, running=0, waiting=0)
    assert (book.others.gone, book.slots - book.sequences) == (1, 8)
    book.release("a", 63.0)
    read(book, at_s=63.0, times=1, running=0, waiting=0)
    assert (book.others.gone, book.slots - book.sequences) == (0, 8)


def test_a_booking_from_before_a_restart_is_given_up_at_once() -> None:
    """Nobody can say when it should be over, so the engine's word is all there is."""
    book = engine(slots=8)
    book.adopt("a", sequences=2, kv_tokens=100, now_s=0.0)
    read(book, running=0, waiting=0)
    assert book.slots - book.sequences == 8


def test_an_engine_that_does_not_count_is_left_alone() -> None:
    """Without `running` there is nothing to compare with, and what was found before is of no use any more."""
    book = engine(slots=8)
    read(book, kv_usage=0.9, waiting=5)
    assert book.others.sequences == 0
    read(book, at_s=5.0, running=4)
    assert book.others.sequences == 4
    read(book, at_s=9.0, times=1, kv_usage=0.0)
    assert book.others.sequences == 0


def test_others_do_not_change_what_is_learned_of_the_cache() -> None:
    """Their tokens would make the cache look small: own tokens / usage is asked only where all of it is ours."""
    book = engine()
    for number in range(50):
        book.admit(str(number), answer(prompt_tokens=400.0), 0.0)
    read(book, times=20, running=50, waiting=0, kv_usage=0.2)
    alone = book.kv_tokens_each
    assert alone != 100_000
    read(book, times=20, at_s=30.0, running=100, waiting=0, kv_usage=0.9)
    assert book.kv_tokens_each == alone
