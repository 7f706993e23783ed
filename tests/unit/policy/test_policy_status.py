"""Keys about the form of a refusal: which HTTP status it has, and in whose words it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.decision import STATUS_BY_RULE, Rule
from tidegate.dialects import ErrorFormat
from tidegate.errors import PolicyError
from tidegate.policy import RequestPolicy, parse_policy

SOME_MAP = st.dictionaries(st.sampled_from(sorted(STATUS_BY_RULE)), st.integers(400, 599), min_size=1)


def request(**keys: str) -> RequestPolicy:
    pairs = [(f"tidegate-{key.replace('_', '-')}", value) for key, value in keys.items()]
    return parse_policy(pairs, default_pool="p").request


def test_without_the_keys_refusals_are_as_usual() -> None:
    """No rule has another status than its own, and each API has its own words."""
    assert (request().statuses, request().error_format) == ({}, ErrorFormat.API)


def test_a_map_names_rules_and_statuses() -> None:
    """A site may have its 408, 503 and 529; a space after a comma is no mistake."""
    mapped = request(status_map="queue_full=503, wait_too_long=529,expired=408").statuses
    assert mapped == {Rule.QUEUE_FULL: 503, Rule.WAIT_TOO_LONG: 529, Rule.EXPIRED: 408}


@given(SOME_MAP)
def test_any_map_of_refusals_to_errors_is_read_as_written(statuses: dict[Rule, int]) -> None:
    """Every rule that refuses can have every status of an error, up to all of them together."""
    text = ",".join(f"{rule}={status}" for rule, status in statuses.items())
    assert request(status_map=text).statuses == statuses


@given(st.text(st.sampled_from("queue_fullexpired=,0459 é٤"), max_size=64))
def test_any_other_text_is_a_mistake_and_nothing_worse(text: str) -> None:
    """Whatever stands there, it is a map of errors or a PolicyError."""
    try:
        statuses = request(status_map=text).statuses
    except PolicyError:
        return
    assert statuses
    assert all(rule in STATUS_BY_RULE and 400 <= status <= 599 for rule, status in statuses.items())


def test_the_order_of_a_map_means_nothing() -> None:
    """Two texts that say the same are one policy."""
    assert request(status_map="expired=408,no_engine=529") == request(status_map="no_engine=529,expired=408")


@pytest.mark.parametrize("form", list(ErrorFormat))
def test_every_format_has_a_name(form: ErrorFormat) -> None:
    """Each is chosen by its own word."""
    assert request(error_format=form.value).error_format is form


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("status_map", ""),
        ("status_map", "queue_full"),
        ("status_map", "queue_full="),
        ("status_map", "=503"),
        ("status_map", "503=queue_full"),
        ("status_map", "queue_full=200"),
        ("status_map", "queue_full=302"),
        ("status_map", "queue_full=399"),
        ("status_map", "queue_full=600"),
        ("status_map", "queue_full=+503"),
        ("status_map", "queue_full=٥٠٣"),
        ("status_map", "queue_full =503"),
        ("status_map", "queue_full=503=504"),
        ("status_map", "Queue_Full=503"),
        ("status_map", "queue_full=503,"),
        ("status_map", "queue_full=503;expired=408"),
        ("status_map", "queue_full=503,queue_full=529"),
        ("status_map", "slots=503"),
        ("status_map", "capacity=503"),
        ("status_map", "overload=503"),
        ("error_format", ""),
        ("error_format", "API"),
        ("error_format", "json"),
    ],
)
def test_anything_else_is_a_mistake_that_says_what_is_right(key: str, value: str) -> None:
    """The error names the key, and what could have stood there."""
    with pytest.raises(PolicyError) as caught:
        request(**{key: value})
    assert caught.value.key == f"tidegate-{key.replace('_', '-')}"
    expected = (*STATUS_BY_RULE, "400 to 599") if key == "status_map" else tuple(ErrorFormat)
    assert all(word in str(caught.value) for word in expected)
