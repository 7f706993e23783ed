"""When engines are polled, and what all polls together may take."""

import asyncio
from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.signals_polling.harness import let_run
from tidegate.clock import ManualClock
from tidegate.signals.budget import IN_FLIGHT_MAX, LOOP_SHARE_MAX, POLL_COST_S, PollBudget
from tidegate.signals.pace import BACK_OFF_S_MAX, FIRST_S_MAX, first_wait_s, period_s


@given(st.integers(0, 10**9), st.integers(1, 10**9), st.randoms(use_true_random=False))
def test_no_pause_is_longer_than_the_longest(failures: int, polls: int, rng: Random) -> None:
    """However long an engine has been gone, it is looked at again within 4 s; a healthy one within 1.1 s."""
    wait_s = period_s(failures=failures, polls=polls, rng=rng)
    assert 0.0 <= wait_s <= (BACK_OFF_S_MAX if failures else 1.1)
    assert polls == 1 or failures or wait_s >= 0.9
    assert not failures or wait_s >= 0.8


def test_pauses_grow_with_failures() -> None:
    """One failure costs about a second, two about two, more about four."""
    rng = Random(1)
    means = [sum(period_s(failures=n, polls=9, rng=rng) for _ in range(1000)) / 1000 for n in (1, 2, 3, 4, 50)]
    assert [round(mean, 1) for mean in means] == [0.9, 1.8, 3.6, 3.6, 3.6]


def test_a_hundred_engines_do_not_come_in_step() -> None:
    """Engines that begin together are spread from the second poll on: no twentieth of a second has a fifth of them."""
    rng = Random(2)
    polls: list[float] = []
    for _ in range(100):
        at_s = first_wait_s(rng)
        assert at_s <= FIRST_S_MAX
        for number in range(1, 61):
            polls.append(at_s)
            at_s += period_s(failures=0, polls=number, rng=rng)
    busiest = Counter(int(at_s * 20) for at_s in polls if at_s > FIRST_S_MAX)
    assert max(busiest.values()) < 20


async def hold(budget: PollBudget, end: asyncio.Event, running: list[str], *, failing: bool) -> None:
    """A poll that takes its turn and lasts until the test ends it."""
    async with budget.turn(failing=failing):
        running.append("failing" if failing else "healthy")
        await end.wait()


async def test_hung_engines_do_not_hold_up_the_others() -> None:
    """When all places of engines that fail are taken, one that does not takes its turn all the same."""
    clock = ManualClock()
    budget, end, running = PollBudget(clock), asyncio.Event(), list[str]()
    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT_MAX + 10):
            group.create_task(hold(budget, end, running, failing=True))
        for _ in range(IN_FLIGHT_MAX + 10):
            group.create_task(hold(budget, end, running, failing=False))
        await let_run()
        clock.advance(10.0)
        await let_run()
        assert Counter(running) == {"failing": IN_FLIGHT_MAX, "healthy": IN_FLIGHT_MAX}
        end.set()
    assert Counter(running) == {"failing": IN_FLIGHT_MAX + 10, "healthy": IN_FLIGHT_MAX + 10}


async def test_polls_take_a_share_of_the_loop_and_no_more() -> None:
    """Of a thousand polls that are due at once, each tenth of a second starts as many as its share of a core allows."""
    clock = ManualClock()
    budget, started = PollBudget(clock), list[None]()

    async def poll() -> None:
        async with budget.turn(failing=False):
            started.append(None)

    tenth_s = 100 * POLL_COST_S / LOOP_SHARE_MAX
    async with asyncio.TaskGroup() as group:
        for _ in range(1000):
            group.create_task(poll())
        await let_run()
        for round_ in range(1, 11):
            clock.advance(tenth_s)
            await let_run()
            assert abs(len(started) - 100 * round_) <= 1
        clock.advance(tenth_s)


async def test_a_page_that_is_long_to_read_delays_the_next_polls() -> None:
    """A tenth of a second of reading is half a second without polls, whoever's turn is next."""
    clock = ManualClock()
    budget = PollBudget(clock)
    async with budget.turn(failing=False):
        budget.spend(0.1)
    begin_s, started = clock.now_s(), list[float]()

    async def poll() -> None:
        async with budget.turn(failing=False):
            started.append(clock.now_s() - begin_s)

    task = asyncio.create_task(poll())
    await let_run()
    clock.advance(0.1 / LOOP_SHARE_MAX - 0.01)
    await let_run()
    assert not started
    clock.advance(0.1)
    await task
    assert started


async def test_a_turn_that_is_given_up_goes_to_the_next() -> None:
    """Cancelled while it waits or while it is held, a turn is not lost."""
    clock = ManualClock()
    budget, end, running = PollBudget(clock), asyncio.Event(), list[str]()
    tasks = [asyncio.create_task(hold(budget, end, running, failing=False)) for _ in range(3 * IN_FLIGHT_MAX)]
    await let_run()
    clock.advance(10.0)
    await let_run()
    for task in tasks[: 2 * IN_FLIGHT_MAX]:
        task.cancel()
    await let_run()
    assert len(running) == 2 * IN_FLIGHT_MAX
    end.set()
    await asyncio.gather(*tasks, return_exceptions=True)
