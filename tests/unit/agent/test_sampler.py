"""The sampler: a look that hangs or breaks holds up no page, and the page says so."""

import threading

import pytest

from tidegate.agent.records import STALE_S, NodeState, Sample
from tidegate.agent.sampler import Sampler
from tidegate.clock import ManualClock

WAIT_S = 10.0


class Driver:
    """Looks as a test wants them: `passes` lets one begin, `looked` says that one has ended."""

    def __init__(self) -> None:
        self.passes = threading.Semaphore(0)
        self.asked = threading.Semaphore(0)
        self.closed = threading.Event()
        self.error: Exception | None = None

    def look(self, now_s: float) -> Sample:
        self.asked.release()
        assert self.passes.acquire(timeout=WAIT_S)
        if self.error is not None:
            raise self.error
        return Sample(state=NodeState.OK, taken_s=now_s)

    def next(self) -> None:
        """Let one look pass, and wait until the one after it has been asked for."""
        self.passes.release()
        assert self.asked.acquire(timeout=WAIT_S)


@pytest.fixture
def driver() -> Driver:
    return Driver()


def started(driver: Driver, clock: ManualClock) -> Sampler:
    """A sampler whose first look has been asked for and hangs."""
    sampler = Sampler(driver.look, driver.closed.set, clock=clock, interval_s=0.001)
    sampler.start()
    assert driver.asked.acquire(timeout=WAIT_S)
    return sampler


def ended(sampler: Sampler, driver: Driver) -> None:
    sampler.stop(timeout_s=0.0)
    driver.error = None
    driver.passes.release(2)
    assert driver.closed.wait(WAIT_S)


def test_before_the_first_look_has_come_back(driver: Driver) -> None:
    """The node is starting, not well; and stuck where the first look hangs."""
    clock = ManualClock()
    sampler = started(driver, clock)
    assert (sampler.seen().state, sampler.seen().fresh) == (NodeState.STARTING, False)
    clock.advance(STALE_S + 0.1)
    assert sampler.seen().state is NodeState.STUCK
    ended(sampler, driver)


def test_a_look_that_hangs_ages_and_then_is_stuck(driver: Driver) -> None:
    """The last look stays readable with its age; once it is stale the node is stuck, until the call comes back."""
    clock = ManualClock()
    sampler = started(driver, clock)
    driver.next()
    assert (sampler.seen().state, sampler.seen().age_s, sampler.seen().fresh) == (NodeState.OK, 0.0, True)
    clock.advance(STALE_S)
    assert (sampler.seen().state, sampler.seen().age_s) == (NodeState.OK, STALE_S)
    clock.advance(0.1)
    seen = sampler.seen()
    assert (seen.state, seen.sample.state, seen.fresh) == (NodeState.STUCK, NodeState.OK, False)
    driver.next()
    driver.next()
    assert (sampler.seen().state, sampler.seen().age_s) == (NodeState.OK, 0.0)
    assert sampler.looks == 3
    ended(sampler, driver)


def test_a_look_that_took_long_is_told(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """While it hangs the thread cannot say so; afterwards it does."""
    clock = ManualClock()
    sampler = started(driver, clock)
    clock.advance(7.5)
    driver.next()
    assert "the driver took 7.5 s to answer" in caplog.text
    ended(sampler, driver)


def test_a_fault_of_ours_is_a_state_and_told_once(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a look raises, the thread goes on, the page says what it was, and the log has one traceback."""
    clock = ManualClock()
    sampler = started(driver, clock)
    driver.error = RuntimeError("no such thing")
    driver.next()
    driver.next()
    seen = sampler.seen()
    assert (seen.state, seen.sample.detail) == (NodeState.FAILED, "RuntimeError: no such thing")
    assert caplog.text.count("Traceback") == 1
    driver.error = None
    driver.next()
    assert sampler.seen().state is NodeState.OK
    ended(sampler, driver)


def test_stop_does_not_wait_for_a_hanging_look(driver: Driver) -> None:
    """The process can end; the driver is detached from only by the thread that uses it."""
    sampler = started(driver, ManualClock())
    sampler.stop(timeout_s=0.01)
    assert not driver.closed.is_set()
    ended(sampler, driver)
