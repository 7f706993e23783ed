"""Prices and the wish for usage, as keys."""

import pytest

from tidegate.admission.dollars import Price
from tidegate.errors import PolicyError
from tidegate.policy import RequestPolicy, parse_policy

HOUR, PROMPT, COMPLETION = (f"tidegate-price-{what}-usd" for what in ("engine-hour", "prompt", "completion"))


def request(*pairs: tuple[str, str]) -> RequestPolicy:
    return parse_policy(pairs, default_pool="p").request


@pytest.mark.parametrize(
    ("text", "nanousd"),
    [
        ("0", 0),
        ("2.5", 2_500_000_000),
        ("0.1", 100_000_000),
        ("0.000000001", 1),
        ("0.29", 290_000_000),
        ("1000000", 10**15),
        ("1000000.000000000", 10**15),
        ("0999999.999999999", 10**15 - 1),
    ],
)
def test_dollars_are_read_without_a_float(text: str, nanousd: int) -> None:
    """Every digit counts, up to the ninth decimal."""
    assert request((HOUR, text)).price == Price(engine_hour_nanousd=nanousd)


@pytest.mark.parametrize(
    "text",
    ["", " 1", "-1", "+1", "1e3", ".5", "1.", "1,5", "NaN", "Infinity", "1000000.000000001", "1000001", "0.0000000001",
     "\u0661", "0x1", "1_0", "$1", "1.2.3"],
)  # fmt: skip
def test_anything_else_is_a_mistake(text: str) -> None:
    """The error names the key and what was expected."""
    with pytest.raises(PolicyError, match="dollars from 0 to 1000000"):
        request((PROMPT, text))


def test_prices_are_of_the_request() -> None:
    """Without any there is none; a price of 0 is a price; routes may differ in them without a conflict."""
    assert request().price is None
    assert request((PROMPT, "0"), (COMPLETION, "0.0006")).price == Price(prompt_nanousd=0, completion_nanousd=600_000)
    assert parse_policy([(HOUR, "1")], default_pool="p").pool == parse_policy([], default_pool="p").pool


def test_asking_for_usage_is_off_by_default() -> None:
    """Only `on` turns it on."""
    assert not request().ask_usage
    assert request(("tidegate-ask-usage", "on")).ask_usage
    with pytest.raises(PolicyError):
        request(("tidegate-ask-usage", "yes"))
