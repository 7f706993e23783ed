"""The registry of pools: who belongs where, which text holds, who may go."""

from collections.abc import Iterable

import pytest

from tests.building import SHADOW, SLOTS_8, SLOTS_9, WRONG, Site
from tidegate.admission.limits import Limits
from tidegate.admission.work import Work
from tidegate.policy import REPORTS_MAX, PoolPolicy, RequestPolicy
from tidegate.pools import OVERFLOW, POOLS_MAX, Change, Pool
from tidegate_estimator import GuardedEstimator, WindowEstimator


@pytest.fixture
def site() -> Site:
    return Site()


def names(pools: Iterable[Pool]) -> list[str]:
    return [pool.name for pool in pools]


def test_a_stream_finds_the_pool_of_its_cluster_or_the_one_it_names(site: Site) -> None:
    """The cluster is the pool unless the keys name another; the pool is built once."""
    first, _ = site.stream()
    second, _ = site.stream(("tidegate-pool", "vllm"), cluster="canary")
    other, _ = site.stream(("tidegate-pool", "batch"))
    assert first is second
    assert names(site.pools) == ["vllm", "batch"]
    assert site.pools.get("batch") is other
    assert site.pools.get("canary") is None
    assert len(site.pools) == 2
    assert first.started_s == first.last_seen_s == site.clock.now_s()


def test_the_tenant_comes_with_the_stream(site: Site) -> None:
    """What the mesh says about the tenant is handed on, None where it says nothing."""
    assert site.pools.find([("tidegate-tenant", "acme")], "vllm", 0.0)[2] == "acme"
    assert site.pools.find([], "vllm", 0.0)[2] is None


def test_a_bad_text_runs_under_the_last_good_one(site: Site) -> None:
    """A mistake in the configuration changes nothing for traffic and is reported once."""
    site.stream(SLOTS_8, SHADOW)
    for _ in range(3):
        pool, request = site.stream(SLOTS_9, WRONG)
        assert pool.policy.limits.slots == 8
        assert request.shadow
    assert site.errors == [("tidegate-mode", "vllm")]
    assert site.pools.reader.errors_total == 3
    assert site.pools.conflicts(site.clock.now_s()) == []


def test_a_bad_text_before_any_good_one_runs_under_the_defaults(site: Site) -> None:
    """The pool starts with defaults and takes the first good text at once."""
    pool, request = site.stream(SLOTS_8, WRONG)
    assert pool.policy == PoolPolicy(name="vllm")
    assert request == RequestPolicy()
    assert site.slots(SLOTS_8) == 8


def test_an_unknown_key_is_a_bad_text(site: Site) -> None:
    """A mistyped key is reported and breaks nothing."""
    site.stream(("tidegate-slot-max", "8"))
    assert site.errors == [("tidegate-slot-max", "vllm")]


def test_reports_are_granted_anew_each_minute(site: Site) -> None:
    """Values that differ by request cannot flood the log, and cannot silence it for good."""
    site.housekeep()
    for number in range(REPORTS_MAX + 5):
        site.stream(("tidegate-mode", f"m{number}"))
    assert len(site.errors) == REPORTS_MAX
    for seconds, reported in ((59.0, 0), (1.0, 1)):
        site.clock.advance(seconds)
        site.housekeep()
        site.stream(("tidegate-mode", f"after {seconds}"))
        assert len(site.errors) == REPORTS_MAX + reported


def test_the_first_text_stays_until_it_has_not_been_seen_for_a_minute(site: Site) -> None:
    """Two texts for one pool: the one in force holds for both, and the newer takes over 60 s after its last stream."""
    assert site.slots(SLOTS_8) == 8
    site.clock.advance(59.0)
    assert site.slots(SLOTS_8) == 8
    for _ in range(2):
        site.clock.advance(29.9)
        assert site.slots(SLOTS_9) == 8
    site.clock.advance(0.2)
    assert site.slots(SLOTS_9) == 9
    assert site.changes() == [Change.STARTED, Change.CONFLICT, Change.RECONFIGURED]
    assert [event.details for event in site.events] == [
        "tidegate-slots-max=8",
        "tidegate-slots-max=9",
        "tidegate-slots-max=9",
    ]
    assert site.slots(SLOTS_8) == 9


def test_a_conflict_shows_while_it_lasts_and_is_told_once(site: Site) -> None:
    """As long as both texts come the gauge shows the pool; a minute after the last rival it no longer does."""
    for _ in range(10):
        site.slots(SLOTS_8)
        assert site.slots(SLOTS_9) == 8
        assert site.pools.conflicts(site.clock.now_s()) == ["vllm"]
        site.clock.advance(30.0)
    assert site.changes().count(Change.CONFLICT) == 1
    site.clock.advance(30.0)
    assert site.pools.conflicts(site.clock.now_s()) == []
    site.slots(SLOTS_8)
    site.slots(SLOTS_9)
    assert site.pools.conflicts_total == 2


def test_routes_may_differ_in_what_concerns_the_request(site: Site) -> None:
    """Request-scoped keys, other spellings and other orders are no conflict."""
    assert not site.stream(SLOTS_8, ("tidegate-engine", "vllm"))[1].shadow
    assert site.stream(SHADOW, ("tidegate-engine", "vllm"), ("tidegate-slots-max", "008"))[1].shadow
    assert not site.stream(("tidegate-engine", "vllm"), SLOTS_8, cluster="vllm")[1].shadow
    assert site.changes() == [Change.STARTED]
    assert site.pools.conflicts(site.clock.now_s()) == []


def test_an_equal_text_in_another_spelling_keeps_the_text_in_force(site: Site) -> None:
    """What means the same counts as seen."""
    site.slots(SLOTS_8)
    site.clock.advance(59.0)
    site.slots(("tidegate-slots-max", "08"))
    site.clock.advance(2.0)
    assert site.slots(SLOTS_9) == 8


def test_more_engines_take_effect_without_a_restart(site: Site) -> None:
    """A takeover reaches the controller: capacity is the sum over the engines, and whoever waits may go."""
    one = [("tidegate-engines", "a:1"), ("tidegate-slots-max", "2")]
    two = [("tidegate-engines", "a:1,dns:b:1"), ("tidegate-slots-max", "2")]
    pool, _ = site.stream(*one)
    assert pool.controller.snapshot(site.clock.now_s()).sequences_max == 2
    site.clock.advance(60.0)
    assert site.stream(*two)[0] is pool
    assert pool.controller.snapshot(site.clock.now_s()).sequences_max == 4


async def test_a_takeover_lets_waiters_through(site: Site) -> None:
    """A request that waits for a slot gets its verdict when the new text brings more of them."""
    pool, _ = site.stream(("tidegate-slots-max", "1"))
    site.clock.advance(60.0)
    first, second = Work(id="a", stream=False), Work(id="b", stream=False, hold_s_max=5.0, ttft_budget_s=60.0)
    with pool.turnstile.entered(first), pool.turnstile.entered(second) as passage:
        assert passage.late is not None
        assert not passage.late.done()
        site.stream(SLOTS_8)
        assert (await passage.late).id == "b"


def test_an_idle_pool_is_dropped_after_a_quarter_of_an_hour(site: Site) -> None:
    """Idle means that no stream came; a stream in between starts the time anew."""
    site.stream()
    site.stream(cluster="busy")
    site.clock.advance(899.0)
    assert site.housekeep() == []
    site.stream(cluster="busy")
    site.clock.advance(1.0)
    assert site.housekeep() == ["vllm"]
    assert names(site.pools) == ["busy"]
    assert site.changes()[-1] is Change.DROPPED
    assert site.slots(SLOTS_8) == 8


async def test_a_pool_that_holds_a_request_is_kept(site: Site) -> None:
    """A generation of twenty minutes keeps its pool, idle or not."""
    pool, _ = site.stream()
    with pool.turnstile.entered(Work(id="a")):
        site.clock.advance(1200.0)
        assert site.housekeep() == []
    assert site.housekeep() == ["vllm"]


def test_the_257th_pool_is_the_shared_one(site: Site) -> None:
    """Beyond 256 pools requests share one at default limits, under their own request policy; it is told once."""
    for number in range(POOLS_MAX):
        site.stream(SLOTS_8, cluster=f"c{number}")
    assert site.pools.overflowed_total == 0
    for cluster in ("late-1", "late-2", "late-1"):
        pool, request = site.stream(SLOTS_8, SHADOW, cluster=cluster)
        assert pool.name == OVERFLOW
        assert pool.policy == PoolPolicy(name=OVERFLOW, limits=Limits())
        assert request.shadow
    assert site.stream(WRONG, cluster="late-3")[1] == RequestPolicy()
    assert site.stream(SLOTS_8, cluster="c7")[0].name == "c7"
    assert site.pools.overflowed_total == 4
    assert len(site.pools) == POOLS_MAX + 1
    assert site.changes().count(Change.OVERFLOWED) == 1
    assert site.pools.conflicts(site.clock.now_s()) == []


def test_places_come_free_again(site: Site) -> None:
    """Once idle pools are gone, a late one gets a place of its own and the shared one goes too."""
    for number in range(POOLS_MAX + 1):
        site.stream(cluster=f"c{number}")
    site.clock.advance(900.0)
    assert len(site.housekeep()) == POOLS_MAX + 1
    assert site.stream(SLOTS_8, cluster=f"c{POOLS_MAX}")[0].policy.limits.slots == 8


def test_a_new_text_may_bring_another_estimator(site: Site) -> None:
    """The estimator is pool-scoped: it changes with the text, and pools of one kind share what was learned."""
    window, ngram = ("tidegate-estimator", "window"), ("tidegate-estimator", "ngram")
    pool, _ = site.stream(window)
    other, _ = site.stream(window, cluster="other")
    assert isinstance(pool.estimator, WindowEstimator)
    assert pool.estimator is other.estimator
    site.clock.advance(60.0)
    site.stream(ngram)
    assert isinstance(pool.estimator, GuardedEstimator)
