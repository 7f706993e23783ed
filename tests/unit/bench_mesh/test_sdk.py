"""The SDK's retry rule against the table of what openai-python 3.57 really did."""

from datetime import UTC, datetime
from email.utils import format_datetime
from random import Random

import pytest
from bench.mesh.sdk import RETRIES_MAX, retry_delay_s

NOW_S = 1_700_000_000.0


def delays(status: int, **headers: str) -> list[float]:
    """The pauses of a call that is always answered alike."""
    random, found = Random(1), []
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    for tries_failed in range(1, 10):
        delay_s = retry_delay_s(status, named, tries_failed=tries_failed, now_s=NOW_S, random=random)
        if delay_s is None:
            break
        found.append(delay_s)
    return found


def date(offset_s: float) -> str:
    return format_datetime(datetime.fromtimestamp(NOW_S + offset_s, UTC), usegmt=True)


@pytest.mark.parametrize("status", [0, 408, 409, 429, 500, 503, 529])
def test_it_tries_twice_more_after_its_own_pauses(status: int) -> None:
    """Without a named delay: 0.375 to 0.5 s, then 0.75 to 1 s, then the error."""
    first_s, second_s = delays(status)
    assert 0.375 <= first_s <= 0.5
    assert 0.75 <= second_s <= 1.0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_other_errors_are_final(status: int) -> None:
    """What no retry can cure is not tried again, whatever delay is named."""
    assert delays(status) == []
    assert delays(status, retry_after="2") == []


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (429, {"retry_after": "2"}, [2.0, 2.0]),
        (503, {"retry_after": "2"}, [2.0, 2.0]),
        (429, {"retry_after": "1.5"}, [1.5, 1.5]),
        (429, {"retry_after": "60"}, [60.0, 60.0]),
        (429, {"retry_after": "61"}, [61.0, 61.0]),
        (429, {"retry_after": "120"}, [120.0, 120.0]),
        (429, {"retry_after": "121"}, []),
        (429, {"retry_after": "86400"}, []),
        (429, {"retry_after_ms": "300", "retry_after": "5"}, [0.3, 0.3]),
        (429, {"retry_after_ms": "300"}, [0.3, 0.3]),
        (429, {"retry_after_ms": "130000", "retry_after": "1"}, []),
        (429, {"retry_after_ms": "soon", "retry_after": "5"}, [5.0, 5.0]),
        (503, {"retry_after": date(5.0)}, [5.0, 5.0]),
        (429, {"x_should_retry": "false"}, []),
        (503, {"x_should_retry": "false", "retry_after": "2"}, []),
    ],
)
def test_a_named_delay_is_taken_exactly(status: int, headers: dict[str, str], expected: list[float]) -> None:
    """Milliseconds before seconds before a date; beyond 120 s the call fails at once; `x-should-retry` overrules."""
    assert delays(status, **headers) == pytest.approx(expected)


@pytest.mark.parametrize(
    "headers",
    [
        {"retry_after": "0"},
        {"retry_after": "-3"},
        {"retry_after": date(-5.0)},
        {"retry_after": "soon"},
        {"retry_after": "nan"},
        {"retry_after_ms": "0", "retry_after": "5"},
    ],
)
def test_a_useless_delay_is_as_good_as_none(headers: dict[str, str]) -> None:
    """No delay, one in the past and what is no number leave the SDK to its own pauses."""
    first_s, second_s = delays(503, **headers)
    assert 0.375 <= first_s <= 0.5
    assert 0.75 <= second_s <= 1.0


def test_the_server_may_ask_for_a_retry_of_anything() -> None:
    """`x-should-retry: true` makes a 400 one that is tried again."""
    assert len(delays(400, x_should_retry="true")) == RETRIES_MAX


def test_only_its_own_pauses_are_scaled() -> None:
    """Where a second of life takes half a second, a named delay stays as the server's clock has it."""
    own_s = retry_delay_s(429, {}, tries_failed=2, now_s=NOW_S, random=Random(1), time_scale=0.5)
    named_s = retry_delay_s(429, {"retry-after": "2"}, tries_failed=2, now_s=NOW_S, random=Random(1), time_scale=0.5)
    assert own_s is not None
    assert 0.375 <= own_s <= 0.5
    assert named_s == 2.0
