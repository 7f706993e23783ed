"""Classes: their terms, who is in one, and who may step down to one."""

import pytest

from tidegate.admission.contract import Contract
from tidegate.errors import PolicyError
from tidegate.policy import PolicyReader, RequestPolicy, parse_policy

GOLD = ("tidegate-class-gold", "ttft-budget-ms=500,weight=8,concurrency-max=4,tokens-per-minute-max=90000")
BATCH = ("tidegate-class-batch", "ttft-budget-ms=60000,weight=1,requests-per-minute-max=30")
FROM_HEADER = ("tidegate-class-from", "header:x-priority")


def request(*pairs: tuple[str, str]) -> RequestPolicy:
    """The request-scoped part of a policy."""
    return parse_policy(pairs, default_pool="vllm").request


def test_a_class_grants_its_terms() -> None:
    """Budget, weight and contract are those of the class in force; the contract is named after it."""
    policy = request(GOLD, BATCH, ("tidegate-class", "gold"))
    assert (policy.tenant_class, policy.ttft_budget_s, policy.weight) == ("gold", 0.5, 8)
    assert policy.contract == Contract(name="gold", requests=4, tokens_per_minute=90_000)


def test_no_class_has_no_contract() -> None:
    """Defining classes puts nobody in one; a class without limits has none."""
    assert request(GOLD).contract is None
    plain = request(("tidegate-class-plain", "weight=2"), ("tidegate-class", "plain"))
    assert (plain.weight, plain.contract) == (2, None)


@pytest.mark.parametrize(
    "terms",
    [
        "", "weight", "weight=0", "concurrency-max=0", "concurrency-max=1.5", "tokens-per-minute-max=-1", "weight=2,",
        "weight=2,weight=3",
        "requests-per-minute-max=1000000001", "concurrency=3", "concurrency-max=1000001", "priority=1",
    ],
)  # fmt: skip
def test_bad_terms_are_named(terms: str) -> None:
    """A term that is unknown, twice there or out of range fails with the key, the value and what would be right."""
    with pytest.raises(PolicyError, match="concurrency-max=8") as caught:
        request(("tidegate-class-gold", terms))
    assert (caught.value.key, caught.value.value) == ("tidegate-class-gold", terms)


def test_a_client_may_step_down_and_never_up() -> None:
    """Of both budgets the longer holds, of both weights the smaller, and the contract stays that of the grant."""
    gold = request(GOLD, BATCH, FROM_HEADER, ("tidegate-class", "gold"))
    assert gold.class_header == "x-priority"
    batch = gold.steps_down["batch"]
    assert (batch.tenant_class, batch.ttft_budget_s, batch.weight, batch.contract) == ("batch", 60.0, 1, gold.contract)
    poor = request(GOLD, BATCH, FROM_HEADER, ("tidegate-class", "batch"))
    up = poor.steps_down["gold"]
    assert (up.ttft_budget_s, up.weight, up.contract) == (60.0, 1, poor.contract)


def test_without_a_grant_the_route_s_own_terms_bound_what_is_asked_for() -> None:
    """Nobody in a class gets a better place by naming one, but is bound by its contract."""
    policy = request(GOLD, BATCH, FROM_HEADER)
    assert policy.contract is None
    gold = policy.steps_down["gold"]
    assert (gold.ttft_budget_s, gold.weight) == (2.0, 1)
    assert gold.contract == Contract(name="gold", requests=4, tokens_per_minute=90_000)


def test_a_header_that_names_classes_needs_classes() -> None:
    """`tidegate-class-from` without a class is a mistake that shows at once, and `from` is no name for a class."""
    with pytest.raises(PolicyError, match="tidegate-class-NAME"):
        request(FROM_HEADER)
    with pytest.raises(PolicyError, match="header:NAME"):
        request(("tidegate-class-from", "weight=3"))


def test_a_claim_that_names_no_class_gets_no_other_class_s_terms() -> None:
    """What an unknown class falls back on is the same text without a class, and the mistake is reported."""
    reports: list[str] = []
    reader = PolicyReader(lambda error, pool: reports.append(error.key))
    assert reader.read([GOLD, BATCH, ("tidegate-class", "gold")], "vllm").error is None
    reading = reader.read([GOLD, BATCH, ("tidegate-class", "platinum")], "vllm")
    assert reading.policy is not None
    assert (reading.policy.request.tenant_class, reading.policy.request.weight) == ("", 1)
    assert reading.error is not None
    assert (reports, reader.errors_total) == (["tidegate-class"], 1)
    worse = reader.read([GOLD, ("tidegate-class", "platinum"), ("tidegate-mode", "fast")], "vllm")
    assert worse.policy is None
