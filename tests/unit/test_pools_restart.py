"""The registry of pools over a restart: what comes back, what yields and what is too damaged to."""

import pytest

from tests.building import SHADOW, SLOTS_8, SLOTS_9, WRONG, Site
from tidegate.admission.outcome import Outcome
from tidegate.admission.work import Work
from tidegate.pools import POOLS_MAX, Change
from tidegate.state_file import PoolState, SavedState, pack, unpack
from tidegate_estimator.usage import AnswerKind

KIND = AnswerKind("m", True, "openai_chat")


@pytest.fixture
def site() -> Site:
    return Site()


def names(site: Site) -> list[str]:
    return [pool.name for pool in site.pools]


def saved_and_loaded(site: Site) -> SavedState:
    return unpack(pack(site.pools.dump(site.clock.now_s())))


async def test_pools_come_back_after_a_restart(site: Site) -> None:
    """Policy, last good request policy, books and what was learned are as before in a new process."""
    pool, _ = site.stream(SLOTS_8, SHADOW)
    unlearned = pool.controller.dump_pace()
    for _ in range(8):
        pool.usage.learn(KIND, 2000, 20)
    with pool.turnstile.entered(Work(id="z")):
        for _ in range(10):  # reckons on, as the ticks of a queue would
            site.clock.advance(0.25)
            pool.controller.tick(site.clock.now_s())
    pool.turnstile.settle(Outcome(id="z", stream=True, completion_tokens=101, ttft_s=0.5, e2e_s=2.5))
    with pool.turnstile.entered(Work(id="a", prompt_tokens=100, completion_tokens_max=50)):
        state = saved_and_loaded(site)
    assert state.saved_at_s == site.clock.wall_s()

    later = Site()
    later.pools.restore(state, later.clock.now_s())
    again = later.pools.get("vllm")
    assert again is not None
    assert again.policy == pool.policy
    gauges = again.controller.snapshot(later.clock.now_s())
    assert (gauges.orphans, gauges.sequences) == (1, 1)
    assert again.usage.infer(KIND, 3000) == pool.usage.infer(KIND, 3000)
    learned = pool.controller.dump_pace()
    assert again.controller.dump_pace() == learned
    assert all(learned[part] != unlearned[part] for part in ("tau_s", "calibration", "engines"))
    assert later.stream(WRONG)[1].shadow
    assert later.changes() == [Change.STARTED]


def test_a_restored_text_yields_at_once(site: Site) -> None:
    """The configuration may have changed while the process was down: the first stream decides, without a conflict."""
    site.stream(SLOTS_8)
    later = Site()
    later.pools.restore(saved_and_loaded(site), later.clock.now_s())
    assert later.slots(SLOTS_9) == 9
    assert Change.CONFLICT not in later.changes()


def test_a_pool_that_cannot_be_restored_does_not_stop_the_others(site: Site) -> None:
    """Each bad part is reported; good pools come back, and the bad ones start afresh with their first stream."""
    good = PoolState(name="good", policy=[SLOTS_8])
    state = SavedState(
        saved_at_s=0.0,
        pools=[
            PoolState(name="bad-policy", policy=[("tidegate-gone", "1")]),
            PoolState(name="bad-pace", policy=[], pace={"tau_s": -1.0}),
            PoolState(name="bad-calibration", policy=[], pace={"calibration": []}),
            PoolState(name="bad-engines", policy=[], pace={"engines": {"": {"steps": {"gain": "fast"}}}}),
            PoolState(name="bad-books", policy=[], books=[{}, {"id": 3}, {"id": "x", "sequences": -1}]),
            good,
            good,
        ],
    )
    site.pools.restore(state, site.clock.now_s())
    assert names(site) == ["bad-pace", "bad-calibration", "bad-engines", "bad-books", "good"]
    failed = [event.pool for event in site.events if event.change is Change.NOT_RESTORED]
    assert failed == ["bad-policy", "bad-pace", "bad-calibration", "bad-engines", "good"]


def test_no_more_pools_come_back_than_there_may_be(site: Site) -> None:
    """The bound on pools holds for a restart as well, and the shared pool is not saved."""
    for number in range(POOLS_MAX + 1):
        site.stream(cluster=f"c{number}")
    state = saved_and_loaded(site)
    assert len(state.pools) == POOLS_MAX
    more = SavedState(saved_at_s=0.0, pools=[*state.pools, PoolState(name="more", policy=[])])
    later = Site()
    later.pools.restore(more, later.clock.now_s())
    assert len(later.pools) == POOLS_MAX
