"""Windows for the step model, from counters and from outcomes."""

from typing import Any

import pytest

from tidegate.admission.engine_learning import EngineLearning, Passed
from tidegate.admission.history import Totals
from tidegate.admission.reading import EngineReading
from tidegate.admission.step_model import Window


def totals(at_s: float, *, decoding: float = 20.0, kv_tokens: float = 8000.0) -> Totals:
    """Of an engine that decodes so many sequences, holds so much and prefills 3,000 tokens of 1,000 each a second."""
    return Totals(decoding * at_s, kv_tokens * at_s, 3000.0 * at_s, 1.5e6 * at_s, 3000.0 * at_s, 0.0)


def passed(at_s: float, *, busy_s: float | None = None, done_tokens: float = 0.0) -> Passed:
    return Passed(now_s=at_s, busy_s=at_s if busy_s is None else busy_s, totals=totals(at_s), done_tokens=done_tokens)


def count(at_s: float, **facts: Any) -> EngineReading:
    """Forty steps a second, of 95 tokens each."""
    return EngineReading(**({"steps_total": 40.0 * at_s, "tokens_total": 3800.0 * at_s} | facts))


def learned(learning: EngineLearning, at_s: float, *, width: int = 1, **facts: Any) -> Window | None:
    return learning.of_reading(count(at_s), passed(at_s, **facts), width=width)


def told(learning: EngineLearning, now_s: float, **facts: Any) -> Window | None:
    """An answer of 81 tokens, whose first one came at 10 s and the last at 12 s."""
    defaults: dict[str, Any] = {
        "first_s": 10.0,
        "last_s": 12.0,
        "ttft_seen": True,
        "tokens": 81.0,
        "at": totals,
        "now_s": now_s,
        "width": 1,
    }
    return learning.of_outcome(**(defaults | facts))


def test_two_readings_are_a_window() -> None:
    """Steps and tokens as counted between them, KV tokens and token pairs as reckoned, of the seconds that passed."""
    learning = EngineLearning()
    assert learned(learning, 10.0) is None
    assert learned(learning, 12.0) == Window(
        seconds=2.0, steps=80.0, tokens=7600.0, kv_token_steps=8000.0 * 80.0, attention=3e6
    )


def test_a_window_spans_a_second_or_more() -> None:
    """A reading that comes earlier closes nothing, and the next one counts from the first."""
    learning = EngineLearning()
    learned(learning, 10.0)
    assert learned(learning, 10.5) is None
    window = learned(learning, 11.0)
    assert window is not None
    assert window.steps == 40.0


def test_a_prompt_half_done_waits_for_its_end() -> None:
    """Engines count a prompt when it is done: where one under way weighs a tenth of the tokens, the window stays open,
    for five seconds at most.
    """
    learning = EngineLearning()
    learned(learning, 10.0)
    assert learned(learning, 12.0, done_tokens=1000.0) is None  # of 7,600
    assert learned(learning, 13.0, done_tokens=1000.0) is not None  # of 11,400
    assert learned(learning, 17.0, done_tokens=9000.0) is None
    assert learned(learning, 18.0, done_tokens=9000.0) is not None


def test_idle_time_teaches_nothing() -> None:
    """Where the engine was busy for less than nine tenths of the time, nobody knows which steps took long; a little
    idle time is left out.
    """
    learning = EngineLearning()
    learned(learning, 10.0, busy_s=0.0)
    assert learned(learning, 12.0, busy_s=1.7) is None
    window = learned(learning, 14.0, busy_s=3.6)
    assert window is not None
    assert window.seconds == pytest.approx(1.9)


def test_a_gap_teaches_nothing() -> None:
    """Readings 6.5 s apart or more; what follows counts from the second of them."""
    learning = EngineLearning()
    learned(learning, 10.0)
    assert learned(learning, 17.0) is None
    window = learned(learning, 18.0)
    assert window is not None
    assert window.steps == 40.0


def test_an_engine_that_began_anew() -> None:
    """Counters that went back are a restart: the window begins with them."""
    learning = EngineLearning()
    learned(learning, 10.0)
    assert learning.of_reading(count(0.0), passed(11.0), width=1) is None
    window = learning.of_reading(count(1.0), passed(12.0), width=1)
    assert window is not None
    assert (window.seconds, window.steps) == (1.0, 40.0)


@pytest.mark.parametrize("facts", [{"steps_total": None}, {"tokens_total": None}])
def test_an_engine_that_does_not_count(facts: dict[str, Any]) -> None:
    """Without steps or tokens there is no window."""
    learning = EngineLearning()
    for at_s in (10.0, 12.0):
        assert learning.of_reading(count(at_s, **facts), passed(at_s), width=1) is None


def test_several_engines_are_so_many_times_the_seconds() -> None:
    """Sums over four: their steps took four times as long together, and each read a quarter of the KV tokens."""
    learning = EngineLearning()
    learned(learning, 10.0, width=4)
    window = learned(learning, 12.0, width=4)
    assert window is not None
    assert (window.seconds, window.steps, window.kv_token_steps) == (8.0, 80.0, 2000.0 * 80.0)


def test_an_outcome_is_a_window() -> None:
    """From its first token to its last a sequence gains one a step: 80 steps in 2 s, with all that they carried."""
    assert told(EngineLearning(), 100.0) == Window(
        seconds=2.0,
        steps=80.0,
        tokens=20.0 * 80.0 + 6000.0,
        kv_token_steps=8000.0 * 80.0,
        attention=3e6,
        weight=1.0,
    )


def test_outcomes_of_a_second_weigh_as_one_window() -> None:
    """Each by the time since the one before, a third of that where nobody saw its first token."""
    learning = EngineLearning()
    told(learning, 100.0)
    weights = [window.weight for at_s in (100.25, 100.5, 101.0) if (window := told(learning, at_s)) is not None]
    assert weights == pytest.approx([0.25, 0.25, 0.5])
    unseen = told(learning, 102.0, ttft_seen=False)
    assert unseen is not None
    assert unseen.weight == pytest.approx(0.3)


def test_twenty_outcomes_a_second_are_enough() -> None:
    """More of them cost time and say the same."""
    learning = EngineLearning()
    told(learning, 99.0)
    assert sum(told(learning, 100.0 + number / 200.0) is not None for number in range(200)) == pytest.approx(20, abs=1)


@pytest.mark.parametrize(
    "facts",
    [
        {"tokens": 4.0},  # three steps
        {"last_s": 10.0},
        {"last_s": 9.0},
        {"last_s": 71.0},
        {"at": lambda time_s: None},
        {"at": lambda time_s: None if time_s < 11.0 else totals(time_s)},
    ],
)
def test_an_outcome_that_teaches_nothing(facts: dict[str, Any]) -> None:
    """Too short, no time, more than a minute, or before the book's memory; and it keeps no other from teaching."""
    learning = EngineLearning()
    assert told(learning, 100.0, **facts) is None
    window = told(learning, 100.01)
    assert window is not None
    assert window.weight == 1.0


def test_counters_are_the_better_source() -> None:
    """For five seconds after they closed a window outcomes are left alone."""
    learning = EngineLearning()
    learned(learning, 100.0)
    assert learned(learning, 101.0) is not None
    assert told(learning, 105.9) is None
    assert told(learning, 106.0) is not None


def test_an_outcome_of_several_engines() -> None:
    """The sequence ran in one of them, which did its part of what all did."""
    window = told(EngineLearning(), 100.0, width=4)
    assert window is not None
    assert (window.seconds, window.steps) == (2.0, 80.0)
    assert (window.tokens, window.attention) == (1900.0, 7.5e5)
    assert window.kv_token_steps == 2000.0 * 80.0
