"""The odd bodies of the newer APIs: each is read, or refused as malformed, and its size is never hidden."""

import json
from typing import Any

import pytest

from tidegate.dialects import CostClass, InferenceRequest
from tidegate.dialects.anthropic_messages import AnthropicMessages
from tidegate.dialects.openai_audio import OpenAISpeech
from tidegate.dialects.openai_body import MESSAGES_KEPT_MAX, TURN_CHARS
from tidegate.dialects.openai_chat import OpenAIChat
from tidegate.dialects.openai_completions import OpenAICompletions
from tidegate.dialects.openai_embeddings import OpenAIEmbeddings
from tidegate.dialects.openai_responses import OpenAIResponses
from tidegate.dialects.prompts import PROMPTS_MAX
from tidegate.dialects.rerank import Rerank, Score
from tidegate.errors import MalformedBody

RESPONSES, MESSAGES, EMBEDDINGS = OpenAIResponses(), AnthropicMessages(), OpenAIEmbeddings()
ALL = (RESPONSES, MESSAGES, EMBEDDINGS, Rerank(), Score(), OpenAISpeech())
GOOD = {
    "openai_responses": b'"input":"hello"',
    "anthropic_messages": b'"messages":[{"role":"user","content":"hello"}]',
    "openai_embeddings": b'"input":"hello"',
    "rerank": b'"query":"hello","documents":["a"]',
    "score": b'"text_1":"hello","text_2":"a"',
    "openai_speech": b'"input":"hello"',
}


def responses(fields: dict[str, Any]) -> InferenceRequest:
    return RESPONSES.parse_request(json.dumps(fields).encode(), tenant="t")


def messages(fields: dict[str, Any]) -> InferenceRequest:
    turns = {"messages": [{"role": "user", "content": "x"}]}
    return MESSAGES.parse_request(json.dumps(turns | fields).encode(), tenant="t")


@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize(
    "body", [b"", b"  ", b"null", b"[]", b"{}", b"{", b"\x1f\x8b\x08\x00", b"a=b", b"[" * 100_000, b'{"model":"m"}']
)
def test_what_no_engine_could_use_is_malformed(dialect: Any, body: bytes) -> None:
    """A body without what the API is about is MalformedBody and never another exception."""
    with pytest.raises(MalformedBody):
        dialect.parse_request(body, tenant="t")


@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize(
    "odd",
    [
        b'"model":"m"',
        b'"model":7',
        b'"model":null',
        b'"model":"\\ud800"',
        b'"temperature":NaN',
        b'"stream":"yes please"',
        b'"max_tokens":' + b"9" * 5000,
        b'"tools":{"a":1}',
        b'"x":' + b"[" * 200 + b"]" * 200,
    ],
)
def test_oddities_beside_the_prompt_hide_nothing(dialect: Any, odd: bytes) -> None:
    """What an engine may let pass leaves the prompt readable; a byte order mark as well."""
    body = b"\xef\xbb\xbf{" + odd + b"," + GOOD[dialect.name] + b"}"
    assert dialect.parse_request(body, tenant="t").completion.messages[0].text == "hello"


@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
def test_half_a_surrogate_pair_in_the_prompt_hides_nothing(dialect: Any) -> None:
    """A text that was cut inside an emoji is read like any other."""
    body = b"{" + GOOD[dialect.name].replace(b"hello", b"\\ud83dhello") + b"}"
    assert dialect.parse_request(body, tenant="t").completion.messages[0].text == "\ufffdhello"


@pytest.mark.parametrize("said", [None, 5, True, {"role": "user"}, [1], [{"role": "user", "content": 5}], [[]]])
def test_an_input_of_another_shape_is_malformed(said: Any) -> None:
    """Responses take text or items; null is no input."""
    with pytest.raises(MalformedBody):
        responses({"input": said})


def test_an_empty_input_is_one() -> None:
    """No items at all cost next to nothing, and the engine says what it thinks of it."""
    assert responses({"input": []}).completion.messages == ()
    assert messages({"messages": []}).completion.messages == ()


def test_a_long_conversation_keeps_its_size() -> None:
    """Only so many turns are handed on; the others still count by size, in either API."""
    turns = [{"role": "user", "content": f"{i:06}"} for i in range(3000)]
    for parsed in (responses({"input": turns}), messages({"messages": turns})):
        completion = parsed.completion
        assert len(completion.messages) == MESSAGES_KEPT_MAX
        assert (completion.messages[0].text, completion.messages[-1].text) == ("000000", "002999")
        assert completion.prompt_chars == 6 * 3000 + TURN_CHARS * (3000 - MESSAGES_KEPT_MAX)


@pytest.mark.parametrize("kind", ["image", "document"])
def test_megabytes_of_base64_are_no_text(kind: str) -> None:
    """A picture is one picture; a document counts by its bytes and not by its characters."""
    source = {"type": "base64", "data": "A" * 4_000_000}
    found = messages({"messages": [{"role": "user", "content": [{"type": kind, "source": source}]}]}).completion
    assert (found.prompt_chars, found.media_tokens) == (0, {"image": 765, "document": 100_000}[kind])
    part = {"type": f"input_{kind}", "image_url": "A" * 4_000_000}
    found = responses({"input": [{"role": "user", "content": [part]}]}).completion
    assert found.prompt_chars == 0


@pytest.mark.parametrize(
    ("budget", "word"),
    [(1024, "low"), (4095, "low"), (4096, "medium"), (16384, "high"), (10**30, "high"), (0, ""), ("x", ""), (None, "")],
)
def test_a_budget_for_thinking_is_a_word(budget: Any, word: str) -> None:
    """The estimator knows words; a budget that cannot be read is none."""
    found = messages({"thinking": {"type": "enabled", "budget_tokens": budget}})
    assert found.completion.reasoning_effort == word


@pytest.mark.parametrize(
    ("fields", "bound"),
    [({"max_output_tokens": 7}, 7), ({"max_output_tokens": 0}, 1), ({"max_tokens": 7}, None), ({}, None)],
)
def test_the_bound_of_responses_is_max_output_tokens(fields: dict[str, Any], bound: int | None) -> None:
    """No other name bounds an answer there."""
    assert responses({"input": "x"} | fields).completion.max_tokens == bound


@pytest.mark.parametrize("said", [None, 5, {"a": 1}, [{}], ["a", 1], [None]])
def test_embeddings_of_another_shape_are_malformed(said: Any) -> None:
    """Text, token ids, or a list of either."""
    with pytest.raises(MalformedBody):
        EMBEDDINGS.parse_request(json.dumps({"input": said}).encode(), tenant="t")


@pytest.mark.parametrize("count", [2048, 2049, 10_000])
def test_a_batch_of_embeddings_is_bounded(count: int) -> None:
    """As many sequences as inputs, up to 2,048; the size is that of all."""
    body = json.dumps({"input": ["four"] * count}).encode()
    parsed = EMBEDDINGS.parse_request(body, tenant="t")
    assert parsed.cost_class is CostClass.PROMPT
    assert parsed.completion.sequences == min(count, PROMPTS_MAX)
    assert len(parsed.completion.messages) == MESSAGES_KEPT_MAX
    assert parsed.completion.prompt_chars == 4 * count + TURN_CHARS * (count - MESSAGES_KEPT_MAX)


def test_a_flood_of_texts_is_counted_and_never_built() -> None:
    """Millions of empty strings are as many sequences as there can be, of the size that was sent."""
    flood = b'[""' + b',""' * 500_000 + b"]"
    for body in (b'{"input":' + flood + b"}", b'{"input": ' + flood.replace(b",", b" ,\n ") + b"}"):
        completion = EMBEDDINGS.parse_request(body, tenant="t").completion
        assert (completion.sequences, completion.messages) == (PROMPTS_MAX, ())
        assert completion.prompt_chars >= len(flood)
    completion = OpenAICompletions().parse_request(b'{"prompt":' + flood + b"}", tenant="t").completion
    assert (completion.sequences, completion.messages) == (PROMPTS_MAX, ())
    completion = Rerank().parse_request(b'{"query":"q","documents":' + flood + b"}", tenant="t").completion
    assert (completion.sequences, len(completion.messages)) == (PROMPTS_MAX, 2)


def test_one_text_with_many_quotes_is_one_sequence() -> None:
    """Code is full of quotes: it is counted by its size, and not as thousands of prompts."""
    text = json.dumps({"input": ['say {"x": {}} ' * 100_000]}).encode()
    completion = EMBEDDINGS.parse_request(text, tenant="t").completion
    assert completion.sequences == 1
    assert completion.prompt_chars == 14 * 100_000


@pytest.mark.parametrize("element", [b"{}", b"{ \n}", b'{"role":""}', b'{"content":""}', b'{"content":["",""]}'])
@pytest.mark.parametrize("dialect", [OpenAIChat(), RESPONSES, MESSAGES, EMBEDDINGS], ids=lambda dialect: dialect.name)
def test_a_flood_of_turns_is_counted_and_never_built(dialect: Any, element: bytes) -> None:
    """It counts by its size; what the caller says beside it is read as ever."""
    listed = b"[" + element + (b" ,\t" + element) * 200_000 + b"]"
    name = b"input" if dialect is RESPONSES else b"messages"
    body = b'{"model":"m","stream":true,"' + name + b'":' + listed + b"}"
    completion = dialect.parse_request(body, tenant="t").completion
    assert (completion.model, completion.messages) == ("m", () if dialect is not RESPONSES else completion.messages[:1])
    assert completion.prompt_chars >= len(listed)


@pytest.mark.parametrize("text", ['{"key": {"a": [1, 2]}, "b": "c"}\n', "if (x) {} else {};", '"a","b",', "{"])
@pytest.mark.parametrize("dialect", [OpenAIChat(), RESPONSES, MESSAGES, EMBEDDINGS], ids=lambda dialect: dialect.name)
def test_code_is_no_crowd(dialect: Any, text: str) -> None:
    """A prompt of megabytes of code or JSON is one text, read as it is."""
    code = text * 200_000
    name = "input" if dialect is RESPONSES else "messages"
    body = json.dumps({name: [{"role": "user", "content": code}]}).encode()
    completion = dialect.parse_request(body, tenant="t").completion
    assert (completion.messages[0].text == code, completion.prompt_chars) == (True, len(code))


def test_a_flood_of_tools_is_not_counted_one_by_one() -> None:
    """A list that is too long is taken for one of 64, and its size still counts."""
    for fields in (b'"tools":[1' + b",1" * 500_000 + b"]", b'"stop":[1' + b",1" * 500_000 + b"]"):
        completion = OpenAIChat().parse_request(b'{"messages":[],' + fields + b"}", tenant="t").completion
        assert max(completion.tools, completion.stop) == 64


@pytest.mark.parametrize("documents", [None, 5, [5], [None], [["a"]]])
def test_documents_of_another_shape_are_malformed(documents: Any) -> None:
    """Text, objects, or a list of either."""
    with pytest.raises(MalformedBody):
        Rerank().parse_request(json.dumps({"query": "q", "documents": documents}).encode(), tenant="t")


def test_a_score_with_one_side_is_malformed() -> None:
    """There is nothing to compare with."""
    with pytest.raises(MalformedBody):
        Score().parse_request(b'{"text_1":"a","documents":["b"]}', tenant="t")
