"""How much of what it has a pool uses."""

import pytest

from tidegate.admission.reading import EngineReading
from tidegate.admission.utilisation import Utilisation, utilisation

from .builders import patient, pool


def test_an_idle_pool_uses_nothing() -> None:
    """All shares are 0, and so are those of a pool without engines."""
    assert pool(slots=4).snapshot(0.0).utilisation == Utilisation()
    assert utilisation([]) == Utilisation()


def test_slots_in_use() -> None:
    """Two of eight slots, in one of two engines: an eighth of the pool."""
    controller = pool(slots=8, names=("a", "b"))
    for name in ("1", "2"):
        controller.submit(patient(name), 0.0)
    used = controller.snapshot(0.0).utilisation
    assert used.slots == pytest.approx(1 / 8)


def test_the_scarcest_resource_is_the_bottleneck() -> None:
    """One long answer among a hundred slots: KV tokens, as they will be at its end, not as they are now."""
    controller = pool(slots=100, kv_tokens=1000)
    controller.submit(patient(prompt_tokens=100, completion_tokens_max=375, log_mean=9.0, log_sigma=0.1), 0.0)
    used = controller.snapshot(0.0).utilisation
    assert used.kv == pytest.approx(0.5, rel=0.02)
    assert used.highest == max(used.kv, used.prefill) > used.slots == 0.01


def test_prompts_and_requests_without_tokens_count_too() -> None:
    """A long prompt is a backlog, and a timed request one of those that engines work on at once."""
    controller = pool(slots=None)
    controller.submit(patient("1", prompt_tokens=50_000), 0.0)
    assert controller.snapshot(0.0).utilisation.prefill > 1.0
    timed = pool(slots=None)
    timed.submit(patient("1", prompt_tokens=0, service_s=1.0), 0.0)
    state = timed.snapshot(0.0)
    assert state.utilisation.service == pytest.approx(1 / state.timed_max)


def test_others_use_slots_too() -> None:
    """Three of eight slots are somebody else's and one is ours: half."""
    controller = pool(slots=8)
    controller.submit(patient("1"), 0.0)
    for second in (1.0, 2.0, 3.0):
        controller.read("", EngineReading(running=4, waiting=0), second)
    assert controller.snapshot(3.0).utilisation.slots == pytest.approx(0.5)


def test_a_full_pool_is_at_one_and_has_a_backlog() -> None:
    """Where requests wait for slots all of them are used, and what waits is so many seconds of work."""
    controller = pool(slots=1)
    for name in ("1", "2", "3"):
        controller.submit(patient(name), 0.0)
    state = controller.snapshot(0.0)
    assert state.utilisation.slots == 1.0
    assert state.backlog_s == pytest.approx(state.queued_s / state.drain_rate)
    assert state.backlog_s > 0.0
