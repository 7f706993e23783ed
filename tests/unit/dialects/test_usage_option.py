"""A body that asks for usage is the caller's own body and one member more."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.dialects import dialect_for, with_usage_asked

ASKED = {"include_usage": True}
MEMBER = b'"stream_options":{"include_usage":true}'
CHAT = dialect_for("POST", "/v1/chat/completions")
TEXT = dialect_for("POST", "/v1/completions")

space = st.text(" \t\r\n", max_size=4).map(str.encode)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
objects = st.dictionaries(st.text(max_size=5).filter(lambda name: name != "stream_options"), values, max_size=4)


def loaded(body: bytes) -> Any:
    """As Python engines read it: a byte order mark is no trouble, NaN equals itself."""
    return json.loads(body.removeprefix(b"\xef\xbb\xbf"), parse_constant=str)


@given(facts=objects, before=space, inside=space, mark=st.booleans(), ascii_only=st.booleans())
def test_any_object_keeps_all_it_has(
    facts: dict[str, Any], before: bytes, inside: bytes, mark: bool, ascii_only: bool
) -> None:
    """Whatever the object, it gains the member in front and every other byte is as it was."""
    text = json.dumps(facts, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    body = (b"\xef\xbb\xbf" if mark else b"") + before + b"{" + inside + text[1:]
    asked = with_usage_asked(body)
    assert asked is not None
    assert loaded(asked) == loaded(body) | {"stream_options": ASKED}
    assert asked.replace(MEMBER + (b"," if facts else b""), b"", 1) == body


@given(st.binary(max_size=200) | st.text('{}[]", \n\ufeff:1a', max_size=20).map(str.encode))
def test_any_bytes_are_left_alone_or_grow_by_the_member(body: bytes) -> None:
    """It never raises, and bytes that begin no object are not touched."""
    asked = with_usage_asked(body)
    if asked is not None:
        assert len(asked) - len(body) - len(MEMBER) in (0, 1)
    assert (asked is not None) == body.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n").startswith(b"{")


def test_a_long_run_of_blanks_is_no_trouble() -> None:
    """Blanks before and after the brace, or without one, take linear time."""
    blanks = b" " * 2_000_000
    assert with_usage_asked(blanks) is None
    assert with_usage_asked(blanks + b"{" + blanks + b"}") is not None


@pytest.mark.parametrize("dialect", [CHAT, TEXT])
@pytest.mark.parametrize(
    ("fields", "unasked"),
    [
        ({"stream": True}, True),
        ({"stream": False}, False),
        ({}, False),
        ({"stream": True, "stream_options": None}, False),
        ({"stream": True, "stream_options": {}}, False),
        ({"stream": True, "stream_options": {"include_usage": False}}, False),
        ({"stream": True, "stream_options": {"include_usage": True}}, False),
        ({"stream": "true"}, True),
    ],
)
def test_only_a_stream_that_says_nothing_is_unasked(dialect: Any, fields: dict[str, Any], unasked: bool) -> None:
    """Whatever the caller says in stream_options is its own choice, and a whole answer needs no asking."""
    body = json.dumps({"model": "m", "messages": [], "prompt": "x"} | fields).encode()
    assert dialect.parse_request(body, tenant="").usage_unasked is unasked


def test_a_name_in_escapes_is_still_the_name() -> None:
    """`stream_\\u006fptions` is stream_options to every engine."""
    body = b'{"messages":[],"stream":true,"stream_\\u006fptions":{}}'
    assert CHAT is not None
    assert not CHAT.parse_request(body, tenant="").usage_unasked
