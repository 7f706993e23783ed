"""The key that lets tidegate choose the engine."""

import pytest

from tidegate.errors import PolicyError
from tidegate.policy import PoolPolicy, parse_policy


def parse(steer: str | None, engines: str | None) -> PoolPolicy:
    pairs = (("tidegate-steer", steer), ("tidegate-engines", engines))
    return parse_policy([(name, value) for name, value in pairs if value is not None], default_pool="vllm").pool


@pytest.mark.parametrize("engines", ["10.0.0.1:8000,10.0.0.2:8000", "[2001:db8::1]:8000"])
def test_steered_engines_are_named_as_envoy_knows_them(engines: str) -> None:
    """On, the choice is among the addresses of the policy, in its order; off or unsaid, Envoy chooses."""
    assert parse("on", engines).steered == tuple(engines.split(","))
    assert parse("on", engines) != parse("off", engines) == parse(None, engines)
    assert parse("off", engines).steered == ()


@pytest.mark.parametrize(
    ("engines", "found"),
    [
        (None, ""),
        ("10.0.0.1:8000,vllm-1.vllm:8000", "vllm-1.vllm:8000"),
        ("10.0.0.1:8000,1a.2.3.4:8000", "1a.2.3.4:8000"),
    ],
)
def test_steering_needs_addresses(engines: str | None, found: str) -> None:
    """Without engines, or with one that is a name, the error says which and what would be right."""
    with pytest.raises(PolicyError) as caught:
        parse("on", engines)
    error = caught.value
    assert (error.key, error.value) == ("tidegate-steer", "on")
    assert "`tidegate-engines`" in error.expected
    assert "IP address" in error.expected
    assert found in error.expected
    assert parse("off", engines).steered == ()


def test_steered_engines_may_be_found_by_dns() -> None:
    """What a `dns:` name resolves to are addresses; until it is known, Envoy chooses."""
    for engines in ("dns:vllm.ns.svc:8000", "10.0.0.1:8000,dns:vllm.ns.svc:8000"):
        policy = parse("on", engines)
        assert policy.steer
        assert policy.steered == ()
        assert policy.seeks_engines


def test_steer_is_on_or_off() -> None:
    """Any other word is refused."""
    with pytest.raises(PolicyError, match="`on` or `off`"):
        parse("yes", "10.0.0.1:8000")
