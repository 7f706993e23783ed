"""Whatever the bytes, a dialect yields facts in range or MalformedBody."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.dialects.openai_chat import OpenAIChat
from tidegate.dialects.openai_completions import OpenAICompletions
from tidegate.errors import MalformedBody
from tidegate_estimator import CompletionRequest

DIALECTS = (OpenAIChat(), OpenAICompletions())
KEYS = [
    "model",
    "messages",
    "prompt",
    "max_tokens",
    "max_completion_tokens",
    "n",
    "best_of",
    "stop",
    "stream",
    "tools",
    "temperature",
    "min_tokens",
    "ignore_eos",
    "response_format",
    "reasoning_effort",
    "suffix",
    "guided_json",
    "content",
    "role",
    "type",
    "text",
    "image_url",
    "input_audio",
    "tool_calls",
]

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=20,
)
objects = st.dictionaries(st.sampled_from(KEYS), values, max_size=10).map(lambda value: json.dumps(value).encode())
damaged = st.tuples(objects, st.integers(0, 400), st.binary(max_size=4)).map(
    lambda t: t[0][: t[1]] + t[2] + t[0][t[1] :]
)


def check_facts(completion: CompletionRequest) -> None:
    assert 1 <= completion.sequences <= 128 * 2048
    assert completion.max_tokens is None or 1 <= completion.max_tokens < 2**31
    assert 0 <= completion.min_tokens < 2**31
    assert completion.prompt_chars >= 0
    assert completion.media_tokens >= 0
    assert completion.prompt_tokens is None or completion.prompt_tokens >= 1
    assert len(completion.model) <= 128
    assert len(completion.messages) <= 256
    for message in completion.messages:
        message.text.encode()


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=300), objects, damaged))
def test_any_bytes_are_facts_in_range_or_malformed(body: bytes) -> None:
    """No other exception leaves parse_request, and every fact is in its range."""
    for dialect in DIALECTS:
        try:
            parsed = dialect.parse_request(body, tenant="t")
        except MalformedBody:
            continue
        check_facts(parsed.completion)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from([k for k in KEYS if k not in ("messages", "prompt")]), values))
def test_optional_fields_never_spoil_a_body(fields: dict[str, object]) -> None:
    """With a readable conversation, nothing in the other fields makes a body malformed."""
    chat = json.dumps(fields | {"messages": [{"role": "user", "content": "hello"}]}).encode()
    assert DIALECTS[0].parse_request(chat, tenant="").completion.messages[0].text == "hello"
    text = json.dumps(fields | {"prompt": "hello"}).encode()
    assert DIALECTS[1].parse_request(text, tenant="").completion.messages[0].text == "hello"
