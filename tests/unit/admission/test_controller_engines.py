"""Several engines behind one controller: where a request goes, and what the answers of an engine say of it."""

from tidegate.admission.controller import Controller
from tidegate.admission.decision import Admit, Enqueue, Rule
from tidegate.admission.outcome import Ending

from .builders import outcome, patient, pool, words

UNREACHED = "upstream_reset_before_response_started{connection_failure}"


def sent_to(controller: Controller, work_id: str, now_s: float = 0.0) -> str:
    """The engine that a request goes to at once."""
    decision = controller.submit(patient(work_id), now_s)
    assert isinstance(decision, Admit), decision
    return decision.engine


def lost(controller: Controller, engine: str, now_s: float) -> None:
    """An engine that could not be reached."""
    entry = outcome(f"lost-{engine}-{now_s}", engine=engine, ending=Ending.ENGINE_FAILED, details=UNREACHED)
    assert controller.settle(entry, now_s)


def test_requests_spread_over_the_engines() -> None:
    """With two slots in each of three engines six requests go to all of them alike, and the seventh waits."""
    controller = pool(slots=2, names=("a", "b", "c"))
    assert sorted(sent_to(controller, str(i)) for i in range(6)) == ["a", "a", "b", "b", "c", "c"]
    decision = controller.submit(patient("7"), 0.0)
    assert isinstance(decision, Enqueue)
    assert (decision.reason.rule, decision.reason.measured) == (Rule.SLOTS, 3)


def test_who_waits_goes_to_the_engine_that_comes_free() -> None:
    """The engine is chosen when there is room in it, not when the request arrives."""
    controller = pool(names=("a", "b"))
    engine_of = {name: sent_to(controller, name) for name in ("1", "2")}
    controller.submit(patient("3"), 0.0)
    controller.release("2", 1.0)
    (verdict,) = controller.take_verdicts()
    assert isinstance(verdict, Admit)
    assert (verdict.id, verdict.engine) == ("3", engine_of["2"])


def test_a_long_prompt_sends_the_next_ones_elsewhere() -> None:
    """An engine with prompts to do is less welcome than one that decodes."""
    controller = pool(slots=None, names=("a", "b"))
    decision = controller.submit(patient("long", prompt_tokens=6000), 0.0)
    assert isinstance(decision, Admit)
    others = {sent_to(controller, str(i), 0.01) for i in range(5)}
    assert others == {"a", "b"} - {decision.engine}


def test_where_envoy_chooses_no_engine_is_named() -> None:
    """A pool booked as a whole holds the sum of its engines, and leaves the choice to Envoy."""
    controller = pool(slots=2, engines=3)
    assert [sent_to(controller, str(i)) for i in range(6)] == [""] * 6
    assert words([controller.submit(patient("7"), 0.0)]) == ["7 enqueue slots"]


def test_an_engine_that_cannot_be_reached_gets_nothing() -> None:
    """One failed connection takes an engine down; the others take all, and who does not fit waits for them."""
    controller = pool(slots=2, names=("a", "b"))
    lost(controller, "a", 0.0)
    assert [sent_to(controller, name) for name in ("1", "2")] == ["b", "b"]
    assert words([controller.submit(patient("3"), 0.0)]) == ["3 enqueue slots"]


def test_an_engine_that_comes_back_takes_who_waits() -> None:
    """A second later one is sent as a probe; after another, time alone lets in as many as its share holds."""
    controller = pool(slots=4, names=("a",))
    lost(controller, "a", 0.0)
    for name in ("1", "2"):
        assert words([controller.submit(patient(name), 0.0)]) == [f"{name} enqueue no_engine"]
    admitted_at_s: list[float] = []
    while (wake_s := controller.next_wake_s()) is not None:
        controller.tick(wake_s)
        admitted_at_s += [wake_s] * len(controller.take_verdicts())
    assert admitted_at_s[0] == 1.0
    assert 5.0 < admitted_at_s[1] < 6.0  # a share of 0.5: 0.25 and a third of the ten seconds to all


def test_when_all_are_down_who_cannot_wait_is_503() -> None:
    """Engines that are known to be down are none, whatever the operator says there are."""
    controller = pool(names=("a", "b"))
    for name in ("a", "b"):
        lost(controller, name, 0.0)
    assert words([controller.submit(patient("1", hold_s_max=0.0), 0.0)]) == ["1 reject no_engine"]
    assert isinstance(controller.submit(patient("2", refusable=False), 0.0), Admit)
    assert controller.release("2", 0.1)


def test_what_ran_in_a_lost_engine_still_comes_back() -> None:
    """Streams that end after their engine went down give back what they held, once."""
    controller = pool(names=("a", "b"))
    for name in ("1", "2"):
        sent_to(controller, name)
    for name in ("a", "b"):
        lost(controller, name, 0.5)
    assert controller.release("1", 1.0)
    assert not controller.release("1", 1.0)
    assert controller.release("2", 1.0)
    state = controller.snapshot(60.0)
    assert (state.in_flight, state.sequences, state.kv_tokens) == (0, 0, 0)


def test_a_lost_engine_takes_its_part_of_a_whole_pool() -> None:
    """Where Envoy chooses, one of two known engines down leaves half of the slots, and later a part of its trial."""
    controller = pool(slots=8, engines=2)
    for name in ("a", "b"):
        assert controller.settle(outcome(f"seen-{name}", engine=name), 0.0)
    assert controller.snapshot(0.0).sequences_max == 16
    lost(controller, "a", 0.0)
    assert controller.snapshot(0.0).sequences_max == 8
    assert controller.snapshot(1.0).sequences_max == 8
    assert controller.snapshot(2.0).sequences_max == 10
    assert controller.snapshot(12.0).sequences_max == 16


def test_an_answer_of_another_replica_tells_of_the_engine_too() -> None:
    """Whoever sent the request: an engine that cannot be reached cannot be reached."""
    controller = pool(names=("a", "b"))
    entry = outcome("x", replica="other", engine="a", ending=Ending.ENGINE_FAILED, details=UNREACHED)
    assert controller.settle(entry, 0.0)
    assert sent_to(controller, "1") == "b"


def test_what_runs_since_before_a_restart_counts_somewhere() -> None:
    """Nobody knows where it runs, so it takes up slots in the emptiest engines; settled, it is gone from there."""
    before = pool(slots=2)
    for name in ("1", "2"):
        before.submit(patient(name), 0.0)
    after = pool(slots=1, names=("a", "b"), now_s=100.0)
    assert after.restore_books(before.dump_books(0.0), 100.0) == 2
    assert words([after.submit(patient("3"), 100.0)]) == ["3 enqueue slots"]
    assert after.settle(outcome("1"), 101.0)
    assert words(after.take_verdicts()) == ["3 admit"]
    state = after.snapshot(101.0)
    assert (state.in_flight, state.orphans, state.sequences) == (1, 1, 2)
