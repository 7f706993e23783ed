"""The keys that say what is read of engines, and what a pool does without."""

import pytest

from tidegate.admission.limits import Limits, Stale
from tidegate.errors import PolicyError
from tidegate.policy import PoolPolicy, parse_policy

ENGINES = ("tidegate-engines", "10.0.0.1:8000")
PROMETHEUS, VLLM = ("tidegate-engine", "prometheus"), ("tidegate-engine", "vllm")
METRICS = "tidegate-engine-metrics"
MAPPING = 'running=my_requests{state="running"};kv-usage=my_cache_percent*0.01'


def pool(*pairs: tuple[str, str]) -> PoolPolicy:
    return parse_policy(pairs, default_pool="p").pool


def refusal(*pairs: tuple[str, str]) -> PolicyError:
    with pytest.raises(PolicyError) as caught:
        pool(*pairs)
    return caught.value


def test_a_mapping_belongs_to_its_kind() -> None:
    """The kind `prometheus` cannot be read without one, and no other kind takes one; the errors name the other key."""
    assert pool(PROMETHEUS, (METRICS, MAPPING)).engine_metrics == MAPPING
    assert pool(VLLM).engine_metrics is None
    lonely = refusal(PROMETHEUS)
    assert (lonely.key, lonely.value) == PROMETHEUS
    assert METRICS in lonely.expected
    for others in ((), (VLLM,)):
        idle = refusal((METRICS, MAPPING), *others)
        assert (idle.key, idle.value) == (METRICS, MAPPING)
        assert "`tidegate-engine: prometheus`" in idle.expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("runnin=x", "'runnin' is none of running"),
        ("running=x;running=y", "a field is there twice"),
        ("running", "form FIELD=SERIES"),
        ("running=x*0", "factor"),
    ],
)
def test_a_wrong_mapping_is_refused_in_words(text: str, why: str) -> None:
    """The error is the key's, and says what is wrong with the mapping."""
    error = refusal(PROMETHEUS, (METRICS, text))
    assert (error.key, error.value) == (METRICS, text)
    assert why in error.expected


def test_stale_readings() -> None:
    """Degraded after five seconds unless stated; no time below what the pauses between polls of a sick engine need."""
    assert (pool().limits.stale, pool().limits.stale_after_s) == (Stale.DEGRADE, 5.0)
    for stale in Stale:
        assert pool(("tidegate-stale", stale.value)).limits == Limits(stale=stale)
    assert pool(("tidegate-stale-ms", "4000")).limits.stale_after_s == 4.0
    assert "from 4000 to" in refusal(("tidegate-stale-ms", "3999")).expected
    assert "open, closed, hold, degrade" in refusal(("tidegate-stale", "shut")).expected


@pytest.mark.parametrize(
    ("pairs", "seeks"),
    [
        ((ENGINES,), False),
        ((VLLM,), False),
        ((ENGINES, VLLM), True),
        ((("tidegate-engines", "dns:vllm.ns.svc:8000"),), True),
    ],
)
def test_engines_are_sought_where_there_is_a_reason(pairs: tuple[tuple[str, str], ...], seeks: bool) -> None:
    """A DNS name must be resolved, and engines of a known kind are asked; addresses alone are no reason."""
    assert pool(*pairs).seeks_engines is seeks
