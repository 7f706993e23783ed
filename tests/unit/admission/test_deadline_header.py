"""The header that an operator has chosen for clients' timeouts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.deadline import client_timeout

NAME = "x-deadline-ms"
STANDARD = ("x-stainless-read-timeout", "x-request-timeout", "x-envoy-upstream-rq-timeout-ms", "grpc-timeout")

numbers = st.integers(-5, 10**21).map(str) | st.integers(0, 4_000_000).map(str)
texts = numbers | st.sampled_from(["0", "-1", "1e99", "NaN", "", " 500 ", "500ms", "5,6", "1.5", "٣٠"]) | st.text()


@pytest.mark.parametrize(("text", "timeout_s"), [("1500", 1.5), (" 500 ", 0.5), ("3600000", 3600.0), ("50", 0.05)])
def test_it_is_read_in_milliseconds(text: str, timeout_s: float) -> None:
    """A whole number of milliseconds is the timeout."""
    said = client_timeout({NAME: text}, deadline_header=NAME)
    assert (said.timeout_s, said.ignored) == (timeout_s, 0)


@pytest.mark.parametrize("others", [{"x-stainless-read-timeout": "600"}, {"grpc-timeout": "1S"}, {"grpc-timeout": "?"}])
def test_it_wins(others: dict[str, str]) -> None:
    """Where it can be read the standard headers say nothing, be they shorter, longer or garbage."""
    said = client_timeout(others | {NAME: "30000"}, deadline_header=NAME)
    assert (said.timeout_s, said.ignored) == (30.0, 0)


def test_without_a_policy_it_is_a_header_like_any_other() -> None:
    """Only the header that the policy names is looked at."""
    assert client_timeout({NAME: "1500"}).timeout_s is None
    assert client_timeout({NAME: "1500"}, deadline_header="x-other").timeout_s is None


@pytest.mark.parametrize(
    "text", ["0", "-1", "1e99", "NaN", "inf", "", " ", "1.5", "500ms", "5,6", "9" * 10_240, "٣٠", "+5", "1_0", "5\n"]
)
def test_garbage_leaves_the_standard_headers(text: str) -> None:
    """What is no positive whole number is counted, and then as good as absent."""
    said = client_timeout({NAME: text, "grpc-timeout": "3S"}, deadline_header=NAME)
    assert (said.timeout_s, said.ignored) == (3.0, 1)


@pytest.mark.parametrize(("text", "timeout_s"), [("9223372036854775808", 3600.0), ("3600001", 3600.0), ("1", 0.05)])
def test_extremes_are_clamped_and_counted(text: str, timeout_s: float) -> None:
    """Out of all proportion, it is brought within 50 ms and an hour."""
    said = client_timeout({NAME: text}, deadline_header=NAME)
    assert (said.timeout_s, said.ignored) == (timeout_s, 1)


def test_a_standard_header_that_is_chosen_is_read_once_and_in_milliseconds() -> None:
    """A policy may choose a header that is otherwise read in seconds: then its seconds are not believed either."""
    chosen = "x-request-timeout"
    assert client_timeout({chosen: "1500"}, deadline_header=chosen).timeout_s == 1.5
    said = client_timeout({chosen: "1.5"}, deadline_header=chosen)
    assert (said.timeout_s, said.ignored) == (None, 1)


@given(text=texts, others=st.dictionaries(st.sampled_from(STANDARD), texts))
def test_garbage_never_improves_a_place(text: str, others: dict[str, str]) -> None:
    """Whatever the text, it is a timeout in bounds, or the standard headers count as if it were not there."""
    said = client_timeout(others | {NAME: text}, deadline_header=NAME)
    without = client_timeout(others, deadline_header=NAME)
    stripped = text.strip(" \t")
    if len(text) <= 32 and stripped.isascii() and stripped.isdigit() and len(stripped) <= 20 and int(stripped):
        assert said.timeout_s == min(max(int(stripped) / 1000.0, 0.05), 3600.0)
        assert said.ignored == (not 50 <= int(stripped) <= 3_600_000)
    else:
        assert (said.timeout_s, said.ignored) == (without.timeout_s, without.ignored + 1)
