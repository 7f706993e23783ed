"""What a pool does with readings that are fresh, late, or never came: through the controller, as callers see it."""

from typing import Any

import pytest

from tidegate.admission.controller import Controller
from tidegate.admission.decision import Admit, Enqueue
from tidegate.admission.limits import Stale
from tidegate.admission.outcome import Ending
from tidegate.admission.reading import EngineReading

from .builders import outcome, patient, pool, words

SLOTS = 10
FOREIGN = {"running": 4, "waiting": 0}


def followed(*engines: str, stale: Stale = Stale.DEGRADE, steered: bool = False, **facts: Any) -> Controller:
    """A pool of engines with ten slots each, that are asked how they are, from 0 s on."""
    controller = pool(slots=SLOTS, engines=len(engines), names=engines if steered else (), stale=stale, **facts)
    controller.follow(engines, 0.0, steered=steered, metered=True)
    return controller


def told(controller: Controller, *engines: str, upto_s: int, since_s: int = 1, **facts: Any) -> None:
    """Each of these is read every second."""
    for second in range(since_s, upto_s + 1):
        for engine in engines:
            controller.read(engine, EngineReading(**facts), float(second))


def slots(controller: Controller, now_s: float) -> int:
    return controller.snapshot(now_s).sequences_max


@pytest.mark.parametrize("steered", [False, True])
@pytest.mark.parametrize("stale", list(Stale))
def test_a_late_page_changes_nothing(stale: Stale, steered: bool) -> None:
    """One scrape late, or all that there are in less than five seconds: the pool has all of its slots."""
    controller = followed("a", "b", stale=stale, steered=steered)
    told(controller, "a", "b", upto_s=10, running=0, waiting=0)
    for now_s in (11.0, 12.0, 14.9):
        state = controller.snapshot(now_s)
        assert (state.sequences_max, state.engines_stale) == (2 * SLOTS, 0)


@pytest.mark.parametrize("steered", [False, True])
@pytest.mark.parametrize("late_s", [10.0, 300.0])
@pytest.mark.parametrize(("stale", "left"), [(Stale.OPEN, 10), (Stale.DEGRADE, 9), (Stale.HOLD, 6), (Stale.CLOSED, 1)])
def test_each_word_does_what_it_says(stale: Stale, left: int, late_s: float, steered: bool) -> None:
    """Of ten slots, four of them others' when the page was last read: open forgets the four, hold believes in them,
    degrade forgets them and takes a tenth off, closed sends nothing. The gauge shows the engine, and one reading
    brings all back.
    """
    controller = followed("a", stale=stale, steered=steered)
    told(controller, "a", upto_s=5, **FOREIGN)
    assert slots(controller, 5.0) == 6
    state = controller.snapshot(5.0 + late_s)
    assert (state.sequences_max, state.engines_stale) == (left, 1)
    decision = controller.submit(patient(hold_s_max=0.0), 5.0 + late_s)
    if stale is Stale.CLOSED:
        assert words([decision]) == ["w reject no_engine"]
    else:
        assert isinstance(decision, Admit)
    controller.read("a", EngineReading(running=0, waiting=0), 6.0 + late_s)
    state = controller.snapshot(6.0 + late_s)
    assert (state.sequences_max, state.engines_stale) == (SLOTS, 0)


def test_who_waits_is_served_when_the_page_is_back() -> None:
    """Closed holds those that may wait, and the next reading lets them in, without any other event."""
    controller = followed("a", stale=Stale.CLOSED)
    told(controller, "a", upto_s=5, running=0)
    assert isinstance(controller.submit(patient("1"), 20.0), Enqueue)
    controller.read("a", EngineReading(running=0), 21.0)
    assert words(controller.take_verdicts()) == ["1 admit"]


def test_time_alone_makes_a_reading_stale() -> None:
    """Nobody has to ask: a request that waits for a slot does not get it from an engine that fell silent."""
    controller = followed("a", "b", stale=Stale.CLOSED, steered=True)
    told(controller, "a", "b", upto_s=5)
    told(controller, "b", since_s=6, upto_s=12)
    decisions = [controller.submit(patient(str(number)), 12.0) for number in range(4)]
    assert {decision.engine for decision in decisions if isinstance(decision, Admit)} == {"b"}
    assert len(decisions) == 4


def test_one_engine_of_a_pool_falls_silent() -> None:
    """Where Envoy chooses, the pool loses that engine's part; where nobody was lost, nothing."""
    controller = followed("a", "b", stale=Stale.CLOSED)
    told(controller, "a", "b", upto_s=5)
    told(controller, "b", since_s=6, upto_s=12)
    assert slots(controller, 12.0) == SLOTS


@pytest.mark.parametrize("steered", [False, True])
def test_an_engine_that_says_it_is_not_ready_drains(steered: bool) -> None:
    """It gets nothing new, what runs there ends in peace, and it is back with its word."""
    controller = followed("a", steered=steered)
    told(controller, "a", upto_s=3)
    assert isinstance(controller.submit(patient("1"), 3.0), Admit)
    controller.read("a", EngineReading(ready=False), 4.0)
    assert isinstance(controller.submit(patient("2"), 4.0), Enqueue)
    assert controller.snapshot(4.0).in_flight == 1
    assert controller.release("1", 4.5)
    controller.read("a", EngineReading(), 5.0)
    assert words(controller.take_verdicts()) == ["2 admit"]


def test_a_pool_that_is_not_ready_is_not_kept_open_by_its_errors() -> None:
    """The quarter that a pool of sick engines keeps is not for those that ask for nothing."""
    controller = followed("a", steered=True)
    controller.read("a", EngineReading(ready=False), 1.0)
    for number in range(5):
        controller.settle(outcome(str(number), engine="a", ending=Ending.ENGINE_FAILED), 1.0)
    assert words([controller.submit(patient(hold_s_max=0.0), 1.0)]) == ["w reject no_engine"]


@pytest.mark.parametrize("steered", [False, True])
def test_closed_gives_an_engine_that_was_never_read_a_trial(steered: bool) -> None:
    """Gauges of some begin with the first request: for 30 s from the first poll that fails although it has requests
    it gets them, and then no more; however long it waits for the first.
    """
    controller = followed("a", stale=Stale.CLOSED, steered=steered)
    for second in range(1, 100):
        controller.missed("a", float(second))
    assert (slots(controller, 100.0), controller.snapshot(100.0).engines_stale) == (9, 1)
    assert isinstance(controller.submit(patient("1"), 100.0), Admit)
    controller.missed("a", 101.0)
    assert isinstance(controller.submit(patient("2"), 130.9), Admit)
    assert isinstance(controller.submit(patient("3"), 131.0), Enqueue)
    controller.read("a", EngineReading(), 132.0)
    assert words(controller.take_verdicts()) == ["3 admit"]


def test_an_engine_that_began_anew_is_on_trial_again() -> None:
    """It was read, went away and is back with half a page: another engine, that was never read."""
    controller = followed("a", stale=Stale.CLOSED, steered=True)
    told(controller, "a", upto_s=5)
    assert words([controller.submit(patient(hold_s_max=0.0), 20.0)]) == ["w reject no_engine"]
    controller.missed("a", 21.0, began_anew=True)
    assert isinstance(controller.submit(patient("1"), 30.0), Admit)


def test_no_engine_at_all_is_503_and_who_waits_is_served_in_order() -> None:
    """C5: three requests, room for two; the third is refused as there is no engine, never as too many; one that comes
    after 3 s takes those that still wait, in order.
    """
    controller = pool(slots=1, queue_len=2)
    controller.follow((), 0.0, steered=False, metered=True)
    decisions = [controller.submit(patient(name, hold_s_max=hold_s), 0.0) for name, hold_s in _C5]
    assert words(decisions) == ["1 enqueue no_engine", "2 enqueue no_engine", "3 reject no_engine"]
    assert [each.status for each in decisions if not isinstance(each, Admit | Enqueue)] == [503]
    controller.tick(2.0)
    assert words(controller.take_verdicts()) == ["1 reject no_engine"]
    assert isinstance(controller.submit(patient("4"), 2.5), Enqueue)
    controller.follow(("10.0.0.1:8000",), 3.0, steered=False, metered=True)
    assert words(controller.take_verdicts()) == ["2 admit"]
    controller.release("2", 4.0)
    assert words(controller.take_verdicts()) == ["4 admit"]


_C5 = (("1", 2.0), ("2", 10.0), ("3", 10.0))


@pytest.mark.parametrize("steered", [False, True])
def test_engines_come_and_go(steered: bool) -> None:
    """Their number is the pool's width, none at all included, and those that stay keep their readings."""
    controller = followed("a", "b", steered=steered)
    told(controller, "a", "b", upto_s=4, running=0)
    for engines in (("a", "b", "c"), ("b",), (), ("b", "d")):
        controller.follow(engines, 5.0, steered=steered, metered=True)
        state = controller.snapshot(5.0)
        assert (state.engines, state.sequences_max) == (len(engines), SLOTS * len(engines))
        assert [address for address, _, _ in controller.readings(5.0)] == list(engines)
    assert [reading is not None for _, reading, _ in controller.readings(5.0)] == [False, False]


def test_an_engine_that_leaves_drains() -> None:
    """It gets nothing more, what runs there is booked until it ends, and the others take what comes."""
    controller = followed("a", "b", steered=True)
    decisions = [controller.submit(patient(str(number)), 0.0) for number in range(2)]
    assert {each.engine for each in decisions if isinstance(each, Admit)} == {"a", "b"}
    controller.follow(("b",), 1.0, steered=True, metered=True)
    assert controller.snapshot(1.0).in_flight == 2
    after = [controller.submit(patient(f"later {number}"), 1.0) for number in range(9)]
    assert {each.engine for each in after if isinstance(each, Admit)} == {"b"}
    assert controller.release("0", 2.0)
    assert controller.release("1", 2.0)


def test_an_empty_answer_keeps_the_books() -> None:
    """While no engine is there nothing is spread over others or forgotten: who is back has what ran there before."""
    controller = followed("a", "b", steered=True)
    decision = controller.submit(patient("1"), 0.0)
    assert isinstance(decision, Admit)
    books = list(controller._fleet.books)
    controller.follow((), 1.0, steered=True, metered=True)
    controller.follow(("a", "b"), 2.0, steered=True, metered=True)
    assert controller._fleet.books == books
    assert [book.name for book in books if "1" in book] == [decision.engine]


def test_the_floor_is_that_of_the_fullest_gpu() -> None:
    """Free memory is the least that any engine tells; a stale word counts for nothing, but where it is held."""
    for stale, left in ((Stale.DEGRADE, True), (Stale.HOLD, False)):
        controller = followed("a", "b", stale=stale, gates=("memory-floor",), memory_floor_mib=4096)
        controller.read("a", EngineReading(memory_free_mib=9000.0), 1.0)
        assert isinstance(controller.submit(patient("1"), 1.0), Admit)
        controller.read("b", EngineReading(memory_free_mib=4000.0), 1.0)
        assert words([controller.submit(patient("2"), 1.0)]) == ["2 enqueue memory_floor"]
        assert isinstance(controller.submit(patient("3"), 60.0), Admit if left else Enqueue)


def test_others_in_a_whole_pool_are_found_and_counted() -> None:
    """Where Envoy chooses, the engines' counts are summed: three of somebody else's, over two engines."""
    controller = followed("a", "b")
    told(controller, "a", upto_s=1, running=1, waiting=1)
    for second in range(2, 8):
        controller.read("b", EngineReading(running=1, waiting=0), second + 0.5)
        controller.read("a", EngineReading(running=1, waiting=1), second + 1.0)
    state = controller.snapshot(8.0)
    assert (state.foreign, state.foreign_total, state.sequences_max) == (3, 3, 2 * SLOTS - 3)


@pytest.mark.parametrize(("stale", "foreign"), [(Stale.HOLD, 3), (Stale.DEGRADE, 0)])
def test_others_where_one_of_two_engines_fell_silent(stale: Stale, foreign: int) -> None:
    """Held, its last count goes on counting; else no sum is better than one that lacks an engine."""
    controller = followed("a", "b", stale=stale)
    told(controller, "a", "b", upto_s=8, running=1, waiting=1)
    assert controller.snapshot(8.0).foreign == 4
    told(controller, "b", since_s=9, upto_s=30, running=0, waiting=1)
    assert controller.snapshot(30.0).foreign == foreign


@pytest.mark.parametrize("steered", [False, True])
def test_bookings_that_leaked_over_a_restart_are_found_and_counted(steered: bool) -> None:
    """The requests ended while nobody listened: three readings later their slots are free, and who waits gets them."""
    before = pool(slots=SLOTS)
    for number in range(SLOTS):
        before.submit(patient(f"before {number}"), 0.0)
    controller = followed("a", steered=steered)
    assert controller.restore_books(before.dump_books(0.0), 0.0) == SLOTS
    assert isinstance(controller.submit(patient("1"), 0.5), Enqueue)
    told(controller, "a", upto_s=2, running=0, waiting=0)
    assert controller.take_verdicts() == []
    controller.read("a", EngineReading(running=0, waiting=0), 3.0)
    assert words(controller.take_verdicts()) == ["1 admit"]
    state = controller.snapshot(3.0)
    assert (state.gone, state.gone_total, state.orphans) == (SLOTS, SLOTS, SLOTS)


def test_what_engines_say_of_their_size_is_the_start() -> None:
    """Slots and KV tokens by the engine's word where no operator stated them, and only an operator's word refuses a
    request for ever.
    """
    controller = pool(slots=None)
    controller.follow(("a",), 0.0, steered=True, metered=True)
    controller.read("a", EngineReading(slots=7, kv_tokens_max=5000), 1.0)
    state = controller.snapshot(1.0)
    assert (state.sequences_max, state.kv_tokens_max) == (7, 5000)
    assert isinstance(controller.submit(patient(prompt_tokens=100_000), 1.0), Admit)
    stated = pool(slots=3, kv_tokens=4000)
    stated.follow(("a",), 0.0, steered=True, metered=True)
    stated.read("a", EngineReading(slots=7, kv_tokens_max=5000), 1.0)
    state = stated.snapshot(1.0)
    assert (state.sequences_max, state.kv_tokens_max) == (3, 4000)


def test_a_pool_whose_engines_are_no_longer_asked_is_as_before() -> None:
    """Nothing is stale where nothing is expected."""
    controller = followed("a", stale=Stale.CLOSED, gates=("memory-floor",), memory_floor_mib=4096)
    controller.read("a", EngineReading(memory_free_mib=1.0), 1.0)
    assert isinstance(controller.submit(patient("1"), 1.0), Enqueue)
    controller.unfollow(2.0)
    state = controller.snapshot(60.0)
    assert (state.engines_stale, state.sequences_max) == (0, SLOTS)
    assert isinstance(controller.submit(patient("2"), 60.0), Admit | Enqueue)
    assert "1 admit" in words(controller.take_verdicts())
