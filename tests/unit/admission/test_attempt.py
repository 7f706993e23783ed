"""Which headers tell of another try, and what makes two tries the same request."""

import pytest

from tidegate.admission.attempt import KEY_CHARS_MAX, client_of, signs_of

COUNT, KEY, CLIENT = "x-stainless-retry-count", "idempotency-key", "x-forwarded-for"


def test_a_request_without_signs_is_nobody_s_other_try() -> None:
    """Where no header tells, nothing is hashed and nothing recognised."""
    signs = signs_of({":path": "/v1/completions"})
    assert not signs.may_follow
    assert signs.attempt(b"body", tenant="acme", client="10.0.0.7") is None


@pytest.mark.parametrize("text", ["", "-1", "1e3", " 1", "1, 2", "\u0663", "9" * 10_000, "NaN"])
def test_garbage_for_a_count_is_counted_and_says_nothing(text: str) -> None:
    """What is no plain count tells of no try."""
    signs = signs_of({COUNT: text})
    assert (signs.number, signs.ignored, signs.may_follow) == (None, 1, False)


@pytest.mark.parametrize("text", ["", "k" * (KEY_CHARS_MAX + 1)])
def test_a_key_that_is_empty_or_too_long_is_ignored(text: str) -> None:
    """Keys are bounded."""
    signs = signs_of({KEY: text})
    assert (signs.key, signs.ignored) == ("", 1)


def test_the_client_s_own_key_wins_over_its_count() -> None:
    """Under one key of one tenant all tries are the same, whatever their bodies and counts."""
    first = signs_of({KEY: "k", COUNT: "0"}).attempt(b"a", tenant="acme", client="10.0.0.7")
    second = signs_of({KEY: "k", COUNT: "0"}).attempt(b"b", tenant="acme", client="10.0.0.8")
    other = signs_of({KEY: "k"}).attempt(b"a", tenant="globex", client="10.0.0.7")
    assert first is not None
    assert second is not None
    assert other is not None
    assert first.same == second.same != other.same
    assert second.follows(first.number)


def test_without_a_tenant_a_key_belongs_to_its_client() -> None:
    """Strangers who choose the same key do not meet."""
    signs = signs_of({KEY: "1"})
    mine, yours = (signs.attempt(b"", tenant="", client=client) for client in ("10.0.0.7", "10.0.0.8"))
    assert mine is not None
    assert yours is not None
    assert mine.same != yours.same


def test_a_counted_try_needs_the_same_body_and_client() -> None:
    """Another body, another client or another tenant is another request."""
    signs = signs_of({COUNT: "1"})
    base = signs.attempt(b"body", tenant="acme", client="10.0.0.7")
    others = [
        signs.attempt(b"Body", tenant="acme", client="10.0.0.7"),
        signs.attempt(b"body", tenant="acme", client="10.0.0.8"),
        signs.attempt(b"body", tenant="globex", client="10.0.0.7"),
    ]
    assert base is not None
    assert all(other is not None and other.same != base.same for other in others)
    assert base == signs.attempt(b"body", tenant="acme", client="10.0.0.7")


def test_the_client_is_who_envoy_saw() -> None:
    """The whole of x-forwarded-for counts: what a client wrote itself comes before what Envoy adds."""
    assert client_of({CLIENT: "1.2.3.4,10.0.0.7"}) == "1.2.3.4,10.0.0.7"
    assert client_of({}) == ""
