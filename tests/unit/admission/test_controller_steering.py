"""Engines that come and go where the controller chooses among them, and the choice that passes from Envoy and back."""

import pytest

from tidegate.admission.controller import Controller
from tidegate.admission.decision import Admit
from tidegate.admission.limits import Limits, Mode
from tidegate.admission.outcome import Ending

from .builders import outcome, patient, pool, words

ONE_SLOT = Limits(slots=1, queue_len=100, mode=Mode.BACKPRESSURE_FIRST)
UNREACHED = "upstream_reset_before_response_started{connection_failure}"


def sent_to(controller: Controller, work_id: str, now_s: float = 0.0) -> str:
    """The engine that a request goes to at once."""
    decision = controller.submit(patient(work_id), now_s)
    assert isinstance(decision, Admit), decision
    return decision.engine


def granted(controller: Controller) -> list[tuple[str, str]]:
    """Who was let in out of the queue since the last look, and where to."""
    return [(each.id, each.engine) for each in controller.take_verdicts() if isinstance(each, Admit)]


def missed(controller: Controller, number: int, now_s: float = 0.0) -> None:
    """A request that was steered to `a` and served by `b`."""
    assert controller.settle(outcome(f"missed-{number}", steered="a", engine="b"), now_s)


def test_an_engine_that_stays_keeps_its_book() -> None:
    """With `b` kept, `a` gone and `c` new, only `c` is free, and what ends in `a` makes room nowhere."""
    controller = pool(names=("a", "b"))
    assert [sent_to(controller, name) for name in ("in-a", "in-b")] == ["a", "b"]
    controller.reconfigure(ONE_SLOT, 2, 1.0, names=("b", "c"))
    assert sent_to(controller, "in-c", 1.0) == "c"
    assert words([controller.submit(patient("next"), 1.0)]) == ["next enqueue slots"]
    assert controller.release("in-a", 2.0)
    assert granted(controller) == []
    assert controller.release("in-b", 3.0)
    assert granted(controller) == [("next", "b")]


def test_an_engine_that_left_drains() -> None:
    """It counts for no capacity, holds what runs in it to the end, and then nothing is left of it."""
    controller = pool(slots=2, names=("a", "b"))
    for name in ("1", "2", "3"):
        sent_to(controller, name)
    controller.reconfigure(Limits(slots=2), 1, 1.0, names=("b",))
    state = controller.snapshot(1.0)
    assert (state.engines, state.sequences_max, state.in_flight, state.sequences) == (1, 2, 3, 3)
    for name in ("1", "2", "3"):
        assert controller.release(name, 2.0)
    assert (controller.snapshot(3.0).sequences, controller.snapshot(3.0).kv_tokens) == (0, 0)
    assert controller.dump_pace()["engines"].keys() == {"b"}  # type: ignore[attr-defined]


def test_an_engine_that_returns_still_holds_what_it_runs() -> None:
    """Taken out and put back while its request runs, it is not taken for an empty one."""
    controller = pool(names=("a", "b"))
    assert sent_to(controller, "in-a") == "a"
    controller.reconfigure(ONE_SLOT, 1, 1.0, names=("b",))
    controller.reconfigure(ONE_SLOT, 2, 2.0, names=("a", "b"))
    assert sent_to(controller, "in-b", 2.0) == "b"
    assert words([controller.submit(patient("next"), 2.0)]) == ["next enqueue slots"]
    assert controller.release("in-a", 3.0)
    assert granted(controller) == [("next", "a")]


def test_an_idle_engine_that_stays_keeps_what_it_learned() -> None:
    """A change of the list leaves the step times of who stays as they are, in whatever order it is written."""
    controller = pool(slots=None, names=("a", "b"))
    taught(controller)
    before = controller.dump_pace()["engines"]
    controller.reconfigure(Limits(), 3, 100.0, names=("c", "b", "a"))
    after = controller.dump_pace()["engines"]
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    assert before["a"] != after["c"]
    assert {name: after[name] for name in ("a", "b")} == before


@pytest.mark.parametrize("steer", [True, False], ids=["on", "off"])
def test_the_choice_passes_with_what_runs(steer: bool) -> None:
    """Whoever chooses from now on, the two that run fill both engines until they end."""
    names = ("a", "b")
    controller = pool(engines=2, names=() if steer else names)
    for name in ("1", "2"):
        sent_to(controller, name)
    controller.reconfigure(ONE_SLOT, 2, 1.0, names=names if steer else ())
    state = controller.snapshot(1.0)
    assert (state.engines, state.sequences_max, state.sequences, state.in_flight) == (2, 2, 2, 2)
    assert words([controller.submit(patient("next"), 1.0)]) == ["next enqueue slots"]
    assert controller.release("2", 2.0)
    ((work_id, engine),) = granted(controller)
    assert work_id == "next"
    assert (engine in names) == steer
    for name in ("1", "next"):
        assert controller.release(name, 3.0)
    assert controller.snapshot(3.0).sequences == controller.snapshot(3.0).kv_tokens == 0


@pytest.mark.parametrize("steer", [True, False], ids=["on", "off"])
def test_the_choice_passes_with_what_was_learned(steer: bool) -> None:
    """They are the same engines: their books start from the step times that the old ones had learned."""
    names = ("a",)
    controller = pool(slots=None, engines=1, names=() if steer else names)
    taught(controller)
    (before,) = controller.dump_pace()["engines"].values()  # type: ignore[attr-defined]
    controller.reconfigure(Limits(), 1, 100.0, names=names if steer else ())
    assert controller.dump_pace()["engines"] == {"a" if steer else "": before}


def test_what_runs_since_before_a_restart_passes_too() -> None:
    """A booking of an earlier process is in the books there are then, and goes when the log tells its end."""
    before = pool()
    sent_to(before, "1")
    after = pool(engines=1, now_s=100.0)
    assert after.restore_books(before.dump_books(0.0), 100.0) == 1
    after.reconfigure(ONE_SLOT, 1, 101.0, names=("a",))
    assert words([after.submit(patient("next"), 101.0)]) == ["next enqueue slots"]
    assert after.settle(outcome("1"), 102.0)
    assert granted(after) == [("next", "a")]
    assert after.snapshot(102.0).sequences == 1


def test_engines_added_later_see_first_tokens_too() -> None:
    """Where first tokens are reported, a new engine's prompts count as unfinished until theirs has come."""
    controller = pool(slots=None, names=("a",))
    sent_to(controller, "1")
    controller.first_token("1", 0.1)
    controller.reconfigure(Limits(), 1, 1.0, names=("b",))
    assert sent_to(controller, "2", 1.0) == "b"
    assert controller.snapshot(50.0).prefill_left_s > 0.0
    controller.first_token("2", 51.0)
    assert controller.snapshot(51.0).prefill_left_s == 0.0


def test_three_that_never_got_there_take_an_engine_out() -> None:
    """One miss may be chance, three in a row are a failure of the engine, although all were served elsewhere."""
    controller = pool(slots=None, names=("a", "b"))
    for number in range(2):
        missed(controller, number)
    assert sent_to(controller, "1") == "a"
    missed(controller, 2)
    assert {sent_to(controller, name) for name in ("2", "3", "4")} == {"b"}
    assert controller.snapshot(0.0).engines_down == 1


def test_an_answer_in_between_forgives_a_miss() -> None:
    """What the engine answers itself says that it can be reached."""
    controller = pool(slots=None, names=("a", "b"))
    for number in range(6):
        missed(controller, number)
        assert controller.settle(outcome(f"fine-{number}", steered="a", engine="a"), 0.0)
    assert controller.snapshot(0.0).engines_down == 0


def test_a_request_that_reached_nobody_speaks_against_the_engine_it_was_for() -> None:
    """Where the try after it could not be reached either, or Envoy names nobody, one such request is enough."""
    for tried in ("b", ""):
        controller = pool(slots=None, names=("a", "b"))
        entry = outcome("x", steered="a", engine=tried, ending=Ending.ENGINE_FAILED, details=UNREACHED)
        assert controller.settle(entry, 0.0)
        assert controller.snapshot(0.0).engines_down == 2 - (not tried)


def test_a_removed_engine_is_not_counted_as_down() -> None:
    """The gauge speaks of the engines there are."""
    controller = pool(names=("a", "b"))
    assert controller.settle(outcome("x", engine="a", ending=Ending.ENGINE_FAILED, details=UNREACHED), 0.0)
    assert controller.snapshot(0.0).engines_down == 1
    controller.reconfigure(ONE_SLOT, 1, 0.0, names=("b",))
    assert controller.snapshot(0.0).engines_down == 0


def test_times_of_another_engine_teach_nothing() -> None:
    """A request that Envoy sent elsewhere leaves the step times of the engine that was meant as they are."""
    taught_by_itself, not_taught = pool(slots=None, names=("a",)), pool(slots=None, names=("a",))
    fresh = not_taught.dump_pace()["engines"]
    taught(not_taught, engine="b")
    assert not_taught.dump_pace()["engines"] == fresh
    taught(taught_by_itself, engine="a")
    assert taught_by_itself.dump_pace()["engines"] != fresh


def taught(controller: Controller, engine: str = "") -> None:
    """Twenty answers of 101 tokens, three seconds apart, of the engine that each went to or of this one."""
    for i in range(20):
        name, now_s = f"taught-{i}", 3.0 * i
        went_to = sent_to(controller, name, now_s)
        controller.tick(now_s + 1.0)
        assert controller.release(name, now_s + 2.5)
        assert controller.settle(outcome(name, steered=went_to, engine=engine or went_to), now_s + 2.6)
