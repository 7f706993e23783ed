"""Bodies that clients and attackers really send: each is read, or refused as malformed, and nothing else."""

import json

import pytest

from tidegate.dialects import InferenceRequest
from tidegate.dialects.openai_body import MESSAGES_KEPT_MAX, TURN_CHARS
from tidegate.dialects.openai_chat import OpenAIChat
from tidegate.dialects.openai_completions import OpenAICompletions
from tidegate.errors import MalformedBody

HELLO = b'"messages":[{"role":"user","content":"hello"}]'


def parse(body: bytes) -> InferenceRequest:
    return OpenAIChat().parse_request(body, tenant="t")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"   ", id="blank"),
        pytest.param(b'{"messages":[', id="cut"),
        pytest.param(b"{" + HELLO + b"} x", id="trailing"),
        pytest.param(b"[" + HELLO.partition(b":")[2] + b"]", id="array at the top"),
        pytest.param(b"null", id="null"),
        pytest.param(b"messages=hello", id="form"),
        pytest.param(b"\x1f\x8b\x08\x00", id="gzip"),
        pytest.param(b"{}", id="no messages"),
        pytest.param(b'{"messages":null}', id="null messages"),
        pytest.param(b'{"messages":"hello"}', id="messages a string"),
        pytest.param(b'{"messages":[1]}', id="a turn that is a number"),
        pytest.param(b'{"messages":[{"content":5}]}', id="content a number"),
        pytest.param(b'{"messages":[{"content":"\xff\xfe"}]}', id="not UTF-8"),
        pytest.param(b'{"messages":[{"content":"a\x00b"}]}', id="control character"),
        pytest.param(b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"," + HELLO + b"}", id="100,000 levels"),
        pytest.param('{"messages":[{"content":"hello"}]}'.encode("utf-16"), id="UTF-16"),
        pytest.param(b'{"messages":[{"content":"' + b'\\"' * 100_000, id="a string of quotes without an end"),
        pytest.param(b'{"NaN":"' + b'\\"' * 100_000 + b"\\", id="the same, looked at twice"),
    ],
)
def test_what_no_engine_could_use_is_malformed(body: bytes) -> None:
    """A body without a readable conversation is MalformedBody and never another exception."""
    with pytest.raises(MalformedBody):
        parse(body)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\xef\xbb\xbf{" + HELLO + b"}", id="BOM"),
        pytest.param(b'{"x":' + b"[" * 200 + b"]" * 200 + b"," + HELLO + b"}", id="200 levels"),
        pytest.param(b'{"messages":[],' + HELLO + b"}", id="duplicate keys"),
        pytest.param(b'{"model":"\\ud800",' + HELLO + b"}", id="half a pair in the model"),
        pytest.param(b'{"temperature":NaN,"top_p":-Infinity,' + HELLO + b"}", id="NaN"),
        pytest.param(b'{"max_tokens":' + b"9" * 5000 + b"," + HELLO + b"}", id="5,000 digits"),
        pytest.param(b'{"max_tokens":1e999,"n":1e30,' + HELLO + b"}", id="huge exponents"),
        pytest.param(b'{"model":123,' + HELLO + b"}", id="model a number"),
        pytest.param(b'{"messages":[{"role":"user","content":["hello"]}]}', id="a part that is a string"),
        pytest.param(b' \r\n{"messages" : [ { "content" : "hello" } ] } \n', id="white space"),
    ],
)
def test_what_an_engine_may_accept_is_read(body: bytes) -> None:
    """Oddities that Python engines let pass do not hide the prompt."""
    assert [m.text for m in parse(body).completion.messages] == ["hello"]


def test_half_a_surrogate_pair_is_replaced_and_a_whole_one_kept() -> None:
    """A prompt cut inside an emoji is read; escaped backslashes before a `u` are text."""
    body = rb'{"messages":[{"content":"a\ud83d\ude00b\ud83dc\\ud83d"}]}'
    assert parse(body).completion.messages[0].text == "a\U0001f600b\ufffdc\\ud83d"


def test_the_words_nan_and_infinity_inside_text_are_text() -> None:
    """Only bare words are made null, never a part of a prompt."""
    body = b'{"temperature":NaN,"messages":[{"content":"\\"NaN\\" and -Infinity"}]}'
    assert parse(body).completion.messages[0].text == '"NaN" and -Infinity'


def test_a_model_name_is_cut() -> None:
    """10 KB of model name become 128 characters; a missing one is empty."""
    assert parse(b'{"model":"' + b"m" * 10_000 + b'",' + HELLO + b"}").completion.model == "m" * 128
    assert parse(b"{" + HELLO + b"}").completion.model == ""


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (b'"max_tokens":16', 16),
        (b'"max_tokens":16,"max_completion_tokens":900', 900),
        (b'"max_tokens":16,"max_completion_tokens":null', 16),
        (b'"max_tokens":16,"max_completion_tokens":"lots"', 16),
        (b'"max_tokens":0', 1),
        (b'"max_tokens":-1', None),
        (b'"max_tokens":1000000000000000000000000000000', 2**31 - 1),
        (b'"max_tokens":12.5', None),
        (b'"max_tokens":true', None),
        (b'"max_tokens":[16]', None),
    ],
)
def test_the_bound_on_completion_tokens(bounds: bytes, expected: int | None) -> None:
    """max_completion_tokens stands above max_tokens where it can be read; what cannot is no bound."""
    assert parse(b"{" + bounds + b"," + HELLO + b"}").completion.max_tokens == expected


@pytest.mark.parametrize(
    ("n", "expected"), [(b"4", 4), (b"0", 1), (b"-3", 1), (b"1" + b"0" * 30, 128), (b'"8"', 8), (b"{}", 1)]
)
def test_sequences_lie_between_1_and_128(n: bytes, expected: int) -> None:
    """n is clamped, whatever was sent."""
    assert parse(b'{"n":' + n + b"," + HELLO + b"}").completion.sequences == expected


def test_a_long_conversation_keeps_its_size() -> None:
    """Only so many turns are handed on, the first and the newest; the others still count by size."""
    turns = [{"role": "user", "content": f"{i:06}"} for i in range(5000)]
    completion = parse(json.dumps({"messages": turns}).encode()).completion
    assert len(completion.messages) == MESSAGES_KEPT_MAX
    assert (completion.messages[0].text, completion.messages[-1].text) == ("000000", "004999")
    assert completion.prompt_chars == 6 * 5000 + TURN_CHARS * (5000 - MESSAGES_KEPT_MAX)


def test_many_long_parts_are_excerpted_but_counted() -> None:
    """A turn of several long parts is not joined whole; its characters still count."""
    parts = [{"type": "text", "text": letter * 50_000} for letter in "abc"]
    completion = parse(json.dumps({"messages": [{"role": "user", "content": parts}]}).encode()).completion
    text = completion.messages[0].text
    assert completion.prompt_chars == 150_000
    assert (text[0], text[-1], len(text) < 20_000) == ("a", "c", True)


@pytest.mark.parametrize("prompt", [b"null", b"5", b'{"a":1}', b"[{}]", b'["a",1]', b"[null]", b'"\xff"', b"true"])
def test_a_prompt_of_another_shape_is_malformed(prompt: bytes) -> None:
    """Completions take text, token ids, or a list of either."""
    with pytest.raises(MalformedBody):
        OpenAICompletions().parse_request(b'{"prompt":' + prompt + b"}", tenant="")


def test_missing_prompt_is_malformed_and_an_empty_list_is_one_sequence() -> None:
    """No prompt cannot be served; an empty list costs next to nothing."""
    with pytest.raises(MalformedBody):
        OpenAICompletions().parse_request(b'{"model":"m"}', tenant="")
    completion = OpenAICompletions().parse_request(b'{"prompt":[ ]}', tenant="").completion
    assert (completion.sequences, completion.messages, completion.prompt_tokens) == (1, (), None)


def test_token_ids_are_counted_with_any_spacing() -> None:
    """Ids are exact prompt tokens, spread over lines or not."""
    body = b'{"prompt":[\n  1,\n  2,\n  3\n]}'
    assert OpenAICompletions().parse_request(body, tenant="").completion.prompt_tokens == 3
    body = b'{"prompt": [ [1, 2], [3] ]}'
    completion = OpenAICompletions().parse_request(body, tenant="").completion
    assert (completion.prompt_tokens, completion.sequences) == (3, 2)


def test_an_image_as_data_is_not_counted_as_text() -> None:
    """A megabyte of base64 is one image, however it is written."""
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}}
    completion = parse(json.dumps({"messages": [{"role": "user", "content": [part]}]}).encode()).completion
    assert (completion.prompt_chars, completion.media_tokens) == (0, 765)


def test_audio_counts_by_its_length() -> None:
    """Ten times the base64 is ten times the tokens."""
    part = {"type": "input_audio", "input_audio": {"data": "A" * 3_200_000, "format": "wav"}}
    completion = parse(json.dumps({"messages": [{"role": "user", "content": [part]}]}).encode()).completion
    assert completion.media_tokens == 1000
