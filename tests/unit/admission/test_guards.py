"""The guards: fed only where in force, and with the engines' own time."""

import pytest

from tidegate.admission.guards import Guards
from tidegate.admission.limits import GateName, Limits
from tidegate.admission.load import NO_SIGNALS, Signals
from tidegate.admission.outcome import Ending
from tidegate.admission.work import Work

from .builders import cost, outcome

WORK = Work(id="w", ttft_budget_s=2.0, tpot_target_s=0.1)


def guards(*gates: GateName, p99_target_s: float = 2.0) -> Guards:
    return Guards(Limits(gates=gates, p99_target_s=p99_target_s))


def busy(kept: Guards, *, seconds: int, per_s: int, **facts: object) -> float:
    """Requests that end, so many a second, for so long; the time after them."""
    now_s = 0.0
    for second in range(seconds):
        for number in range(per_s):
            now_s = second + number / per_s
            kept.watch(in_flight=10_000, now_s=now_s)
            kept.learn(outcome(f"{second}-{number}", **facts), now_s)
    kept.watch(in_flight=10_000, now_s=float(seconds))
    return float(seconds)


def signals(kept: Guards, now_s: float, *, completion_tokens: float = 80.0, sequences: int = 1) -> Signals:
    return kept.signals(WORK, cost(completion_tokens=completion_tokens, sequences=sequences), now_s)


def test_without_a_guard_nothing_is_kept() -> None:
    """The gates of the engines need none of it."""
    kept = guards(GateName.SLOTS, GateName.KV)
    now_s = busy(kept, seconds=20, per_s=50, ttft_s=9.0)
    assert signals(kept, now_s) is NO_SIGNALS


def test_only_the_guard_in_force_speaks() -> None:
    """The one that is not named has no limit, whatever was seen."""
    for name, window, law in [(GateName.P99_WINDOW, True, False), (GateName.LITTLES_LAW, False, True)]:
        kept = guards(name)
        said = signals(kept, busy(kept, seconds=20, per_s=5))
        assert (said.p99_window is not None, said.littles_law is not None) == (window, law)
        assert said.memory_free_mib is None


def test_littles_law_is_rate_times_the_time_a_request_may_take() -> None:
    """Five a second, each of which may take 2 s to its first token and 80 tokens of 0.1 s: fifty."""
    kept = guards(GateName.LITTLES_LAW)
    now_s = busy(kept, seconds=20, per_s=5)
    assert signals(kept, now_s).littles_law == pytest.approx(50.0)
    assert signals(kept, now_s, sequences=4).littles_law == pytest.approx(20.0)  # four decode side by side: 20 each


def test_the_window_closes_on_slow_engines() -> None:
    """Every five seconds 10 % less while first tokens take longer than the target, from 64 on."""
    kept = guards(GateName.P99_WINDOW)
    now_s = busy(kept, seconds=20, per_s=5, ttft_s=2.5)
    assert signals(kept, now_s).p99_window == pytest.approx(64.0 * 0.9**4)


def test_the_window_opens_on_fast_ones() -> None:
    """Every five seconds 5 % more while they do not, if the limit was reached."""
    kept = guards(GateName.P99_WINDOW)
    now_s = busy(kept, seconds=20, per_s=5, ttft_s=0.5)
    assert signals(kept, now_s).p99_window == pytest.approx(64.0 * 1.05**4)


def test_a_whole_answer_counts_whole() -> None:
    """Where nothing is streamed, its client waits for all of it: 2.5 s are more than the target."""
    kept = guards(GateName.P99_WINDOW)
    now_s = busy(kept, seconds=20, per_s=5, stream=False, ttft_s=0.5, e2e_s=2.5)
    assert signals(kept, now_s).p99_window == pytest.approx(64.0 * 0.9**4)


def test_a_wait_in_the_queue_is_none_of_the_engines() -> None:
    """However long a request was held, its time in the engine is what counts."""
    kept = guards(GateName.P99_WINDOW)
    now_s = busy(kept, seconds=20, per_s=5, ttft_s=0.5, hold_s=30.0, duration_s=33.0)
    assert signals(kept, now_s).p99_window == pytest.approx(64.0 * 1.05**4)


@pytest.mark.parametrize("ending", sorted(set(Ending) - {Ending.COMPLETE}))
def test_only_complete_answers_count(ending: Ending) -> None:
    """What was cut, refused or failed says nothing of how long an answer takes."""
    kept = guards(GateName.P99_WINDOW, GateName.LITTLES_LAW)
    now_s = busy(kept, seconds=20, per_s=5, ttft_s=9.0, ending=ending)
    assert signals(kept, now_s) == Signals(p99_window=64.0)


def test_a_guard_that_goes_and_comes_starts_afresh() -> None:
    """What it had learned is gone; with the same target under other limits it stays."""
    kept = guards(GateName.P99_WINDOW)
    now_s = busy(kept, seconds=20, per_s=5, ttft_s=2.5)
    kept.reconfigure(Limits(slots=7, gates=(GateName.P99_WINDOW, GateName.SLOTS)))
    assert signals(kept, now_s).p99_window == pytest.approx(64.0 * 0.9**4)
    kept.reconfigure(Limits(gates=(GateName.P99_WINDOW,), p99_target_s=5.0))
    assert signals(kept, now_s).p99_window == 64.0
    kept.reconfigure(Limits())
    assert signals(kept, now_s) is NO_SIGNALS
    kept.reconfigure(Limits(gates=(GateName.LITTLES_LAW,)))
    assert signals(kept, now_s) == NO_SIGNALS


def test_free_memory_is_passed_on() -> None:
    """As it was last told, with or without the other guards."""
    for kept in (guards(), guards(GateName.P99_WINDOW)):
        kept.memory_free_mib = 512.0
        assert signals(kept, 0.0).memory_free_mib == 512.0
