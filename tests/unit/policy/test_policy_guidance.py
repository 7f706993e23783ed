"""Keys about what clients are told and how long they are believed to wait."""

import pytest

from tidegate.errors import PolicyError
from tidegate.policy import RequestPolicy, parse_policy


def request(**keys: str) -> RequestPolicy:
    pairs = [(f"tidegate-{key.replace('_', '-')}", value) for key, value in keys.items()]
    return parse_policy(pairs, default_pool="p").request


def test_what_refusals_show() -> None:
    """Figures are shown unless the policy asks for codes."""
    assert request().shows_figures
    assert request(reason="full").shows_figures
    assert not request(reason="code").shows_figures


def test_the_deadline_header() -> None:
    """None is read by default; one is named like the tenant's."""
    assert request().deadline_header == ""
    assert request(deadline_header="header:x-deadline-ms").deadline_header == "x-deadline-ms"


def test_the_budget_of_conversations() -> None:
    """It is a budget of its own, and none by default."""
    assert request().conversation_budget_s is None
    both = request(ttft_budget_ms="1000", conversation_budget_ms="8000")
    assert (both.ttft_budget_s, both.conversation_budget_s) == (1.0, 8.0)


def test_a_class_with_a_budget_has_one_for_all_its_requests() -> None:
    """A class's budget wins over that of conversations too; a class without one leaves both as they are."""
    budget = {"class": "gold", "class_gold": "ttft-budget-ms=500", "conversation_budget_ms": "8000"}
    gold = request(**budget)
    assert (gold.ttft_budget_s, gold.conversation_budget_s) == (0.5, None)
    heavy = request(**budget | {"class_gold": "weight=4"})
    assert (heavy.ttft_budget_s, heavy.conversation_budget_s, heavy.weight) == (2.0, 8.0, 4)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("reason", "short"),
        ("reason", "on"),
        ("reason", ""),
        ("deadline_header", "x-deadline-ms"),
        ("deadline_header", "header:"),
        ("deadline_header", "header:X-Deadline"),
        ("deadline_header", "header::path"),
        ("conversation_budget_ms", "0"),
        ("conversation_budget_ms", "600001"),
        ("conversation_budget_ms", "8s"),
    ],
)
def test_anything_else_is_a_mistake(key: str, value: str) -> None:
    """A value that is not as the table says is an error that names its key, a class with a budget or not."""
    for others in ({}, {"class": "gold", "class_gold": "ttft-budget-ms=500"}):
        with pytest.raises(PolicyError) as caught:
            request(**others | {key: value})
        assert caught.value.key == f"tidegate-{key.replace('_', '-')}"
