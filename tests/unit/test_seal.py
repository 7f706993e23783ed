"""Sealed tickets."""

from base64 import b64decode, b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import FlagError
from tidegate.seal import SUBKEYS_MAX, Seal, new_seal, read_key

KEY = bytes(range(32))


def replica(number: int, key: bytes = KEY) -> Seal:
    return Seal(key, number.to_bytes(8, "big"))


@given(st.binary(max_size=512), st.text(max_size=40))
def test_any_replica_opens_what_another_closed(ticket: bytes, identity: str) -> None:
    """Replicas that share the key read each other's tickets."""
    text = replica(1).close(ticket, identity.encode("utf-8", "ignore").decode())
    assert replica(2).open(text, identity.encode("utf-8", "ignore").decode()) == ticket


def test_a_ticket_opens_for_its_own_request_only() -> None:
    """Copied into another request's entry it teaches nothing."""
    text = replica(1).close(b"ticket", "a")
    assert replica(1).open(text, "b") is None


def test_another_key_opens_nothing() -> None:
    """Who does not have the key can neither read nor forge."""
    text = replica(1, bytes(32)).close(b"ticket", "a")
    assert replica(1).open(text, "a") is None


@given(st.integers(0, 46), st.integers(1, 255))
def test_a_changed_byte_opens_nothing(at: int, flip: int) -> None:
    """Every byte is authenticated, the head included."""
    data = bytearray(b64decode(replica(1).close(b"0123456789abcdef", "a")))
    data[at] ^= flip
    assert replica(1).open(b64encode(data).decode(), "a") is None


@given(st.text(max_size=60))
def test_no_text_makes_opening_fail(text: str) -> None:
    """Whatever stands in an entry, it opens or it does not."""
    assert replica(1).open(text, "a") is None


def test_the_same_ticket_never_looks_the_same_twice() -> None:
    """Nobody can tell from a log that two prompts end alike."""
    seal = replica(1)
    assert len({seal.close(b"ticket", "a") for _ in range(100)} | {replica(2).close(b"ticket", "a")}) == 101


def test_forged_salts_cost_no_memory() -> None:
    """Subkeys of others are kept in a table of fixed size, and the own one works whatever is pushed out."""
    seal = replica(1)
    text = seal.close(b"ticket", "a")
    for number in range(2, 2 * SUBKEYS_MAX):
        seal.open(b64encode(b"\x01" + number.to_bytes(8, "big") + bytes(30)).decode(), "a")
    assert seal.open(text, "a") == b"ticket"
    assert len(seal._subkeys) <= SUBKEYS_MAX


def test_a_key_file(tmp_path: Path) -> None:
    """It holds 32 bytes as base64; anything else is refused with the command that makes one."""
    path = tmp_path / "key"
    path.write_text(b64encode(KEY).decode() + "\n")
    assert read_key(path) == KEY
    assert new_seal(path).open(replica(5).close(b"ticket", "a"), "a") == b"ticket"
    for content in ("", "short", b64encode(bytes(31)).decode(), "é"):
        path.write_text(content)
        with pytest.raises(FlagError, match="openssl rand -base64 32"):
            read_key(path)
    with pytest.raises(FlagError, match="No such file"):
        read_key(tmp_path / "none")
