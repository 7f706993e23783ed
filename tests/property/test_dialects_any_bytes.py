"""Whatever the bytes, a dialect yields facts in range or MalformedBody."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.dialects import InferenceRequest
from tidegate.dialects.anthropic_messages import AnthropicMessages
from tidegate.dialects.openai_audio import OpenAISpeech, OpenAITranscription
from tidegate.dialects.openai_chat import OpenAIChat
from tidegate.dialects.openai_completions import OpenAICompletions
from tidegate.dialects.openai_embeddings import OpenAIEmbeddings
from tidegate.dialects.openai_responses import OpenAIResponses
from tidegate.dialects.rerank import Rerank, Score
from tidegate.errors import MalformedBody

DIALECTS = (
    OpenAIChat(),
    OpenAICompletions(),
    OpenAIResponses(),
    AnthropicMessages(),
    OpenAIEmbeddings(),
    Rerank(),
    Score(),
    OpenAITranscription(),
    OpenAISpeech(),
)
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
    "input",
    "instructions",
    "max_output_tokens",
    "previous_response_id",
    "reasoning",
    "effort",
    "format",
    "output",
    "arguments",
    "summary",
    "file_data",
    "detail",
    "system",
    "stop_sequences",
    "thinking",
    "budget_tokens",
    "source",
    "data",
    "query",
    "documents",
    "text_1",
    "text_2",
]
PROMPTS = ("messages", "prompt", "input", "query", "documents", "text_1", "text_2")

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=20,
)
objects = st.dictionaries(st.sampled_from(KEYS), values, max_size=10).map(lambda value: json.dumps(value).encode())
damaged = st.tuples(objects, st.integers(0, 400), st.binary(max_size=4)).map(
    lambda t: t[0][: t[1]] + t[2] + t[0][t[1] :]
)


def check_facts(parsed: InferenceRequest) -> None:
    completion = parsed.completion
    assert isinstance(parsed.stream, bool)
    assert parsed.input_size >= 0
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
        check_facts(parsed)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from([k for k in KEYS if k not in PROMPTS]), values))
def test_optional_fields_never_spoil_a_body(fields: dict[str, object]) -> None:
    """With a readable prompt, nothing in the other fields makes a body malformed, in any of the JSON APIs."""
    turns = [{"role": "user", "content": "hello"}]
    prompts: dict[str, dict[str, object]] = {
        "openai_chat": {"messages": turns},
        "openai_completions": {"prompt": "hello"},
        "openai_responses": {"input": turns},
        "anthropic_messages": {"messages": turns},
        "openai_embeddings": {"input": "hello"},
        "rerank": {"query": "q", "documents": ["hello"]},
        "score": {"text_1": "q", "text_2": "hello"},
        "openai_speech": {"input": "hello"},
    }
    for dialect in DIALECTS:
        if dialect.name in prompts:
            body = json.dumps(fields | prompts[dialect.name]).encode()
            assert dialect.parse_request(body, tenant="").completion.messages[-1].text == "hello"
