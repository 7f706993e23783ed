"""Whatever stands in the metadata, a request gets a pool and a policy."""

from hypothesis import given
from hypothesis import strategies as st

from tests.building import builder
from tidegate.admission.limits import GateName, Limits
from tidegate.clock import ManualClock
from tidegate.errors import PolicyError
from tidegate.estimators import Estimators
from tidegate.policy import KEYS, POOL_NAMES_RESERVED, Policy, PolicyReader, pairs_of, parse_policy
from tidegate.pools import Pools

any_text = st.text(st.characters(), max_size=1200) | st.text("0123456789.:,;=|-abcdnsmetrics/", max_size=60)
good_values = {
    "tidegate-pool": "gpu",
    "tidegate-engines": "10.0.0.1:8000,dns:vllm:80;metrics=/m",
    "tidegate-slots-max": "8",
    "tidegate-mode": "hybrid",
    "tidegate-queue-order": "deadline",
    "tidegate-queue-alpha": "2.5",
    "tidegate-queue-fair": "off",
    "tidegate-gates": "slots,littles-law,p99-window",
    "tidegate-p99-target-ms": "1500",
    "tidegate-shadow": "on",
    "tidegate-hold-ms-max": "100",
    "tidegate-tenant-from": "header:x-team",
    "tidegate-class": "gold",
    "tidegate-class-gold": "weight=2",
    "tidegate-ask-usage": "on",
    "tidegate-price-engine-hour-usd": "2.5",
    "tidegate-price-prompt-usd": "0.00015",
}
guarded = [
    ("tidegate-gates", "slots,concurrency,memory-floor"),
    ("tidegate-concurrency-max", "64"),
    ("tidegate-memory-floor-mib", "2048"),
]
names = st.sampled_from([*KEYS, *good_values, "user-agent"]) | any_text | any_text.map(lambda text: f"tidegate-{text}")
good_pairs = st.sampled_from(sorted(good_values.items()))
guards = st.just(guarded) | st.lists(st.sampled_from(guarded), max_size=3)
good = st.tuples(guards, st.lists(good_pairs, max_size=24)).map(lambda parts: [*parts[0], *parts[1]])
pairs = good | st.lists(good_pairs | st.tuples(names, any_text), max_size=24)
metadata = good | st.lists(good_pairs | st.tuples(names, any_text | st.binary(max_size=1200)), max_size=24)


def check_limits(limits: Limits) -> None:
    """What is in force is within its bounds, and a guard has its figure if and only if it is in force."""
    assert limits.slots is None or limits.slots >= 1
    assert limits.kv_tokens is None or limits.kv_tokens >= 1
    assert limits.queue_len is None or limits.queue_len >= 0
    assert 0.0 <= limits.alpha <= 1000.0
    assert limits.p99_target_s > 0.0
    assert len(set(limits.gates)) == len(limits.gates) > 0
    assert (limits.concurrency is not None) == (GateName.CONCURRENCY in limits.gates)
    assert (limits.memory_floor_mib is not None) == (GateName.MEMORY_FLOOR in limits.gates)


def parsed(pairs: list[tuple[str, str]]) -> Policy | PolicyError:
    try:
        return parse_policy(pairs, default_pool="vllm")
    except PolicyError as error:
        return error


@given(metadata=metadata, cluster=any_text)
def test_reading_never_raises(metadata: list[tuple[str, str | bytes]], cluster: str) -> None:
    """Any metadata gives a usable pool name, and either a policy or an error that was reported."""
    reports: list[str] = []
    reader = PolicyReader(lambda error, pool: reports.append(pool))
    first, second = reader.read(metadata, cluster), reader.read(metadata, cluster)
    assert first == second
    assert parse_policy([("tidegate-pool", first.pool)], default_pool="").pool.name == first.pool
    assert first.pool not in POOL_NAMES_RESERVED
    assert (first.policy is None) <= (first.error is not None)
    assert first.policy is None or first.error is None or first.policy.request.tenant_class == ""
    assert reports == ([first.pool] if first.error else [])
    assert first.tenant_value is None or 0 < len(first.tenant_value) <= 1024


ESTIMATORS = Estimators(None)  # nothing is learned here, and making one costs 20 ms


@given(streams=st.lists(st.tuples(metadata, any_text), max_size=8))
def test_finding_a_pool_never_raises(streams: list[tuple[list[tuple[str, str | bytes]], str]]) -> None:
    """Any streams, one after the other, each get a pool, a policy and at most a tenant."""
    clock = ManualClock()

    build = builder(clock, ESTIMATORS)
    pools = Pools(build, estimator_of=ESTIMATORS.of, clock=clock, on_policy_error=lambda error, pool: None)
    for pairs, cluster in streams:
        pool, request, tenant = pools.find(pairs, cluster, clock.now_s())
        assert pools.get(pool.name) is pool
        assert request.weight >= 1
        assert tenant is None or tenant
        clock.advance(45.0)
    again = Pools(build, estimator_of=ESTIMATORS.of, clock=clock, on_policy_error=lambda error, pool: None)
    again.restore(pools.dump(clock.now_s()), clock.now_s())
    assert {(pool.name, pool.policy) for pool in again} == {(pool.name, pool.policy) for pool in pools}


@given(pairs=pairs)
def test_parsing_raises_nothing_but_policy_errors(pairs: list[tuple[str, str]]) -> None:
    """A text is read or refused with a key of its own; what is read comes back from its canonical text."""
    policy = parsed(pairs)
    if isinstance(policy, PolicyError):
        assert policy.key.startswith("tidegate-")
        assert len(str(policy)) < 2000
    else:
        again = parse_policy(pairs_of(policy.text), default_pool="vllm")
        assert again == policy
        halves = [*pairs_of(policy.pool.text), *pairs_of(policy.request.text)]
        assert parse_policy(halves, default_pool="vllm") == policy
        assert 0.0 <= policy.request.hold_s_max <= 3600.0
        assert policy.request.weight >= 1
        check_limits(policy.pool.limits)
