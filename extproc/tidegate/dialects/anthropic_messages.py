"""POST /v1/messages: Anthropic's API, which vLLM and others speak too.

Images and documents count as in media.py, a text document by its characters. A budget for thinking is taken for the
word that asks for about as much: below 4,096 tokens `low`, below 16,384 `medium`, else `high`.
"""

from typing import TypeAlias

import msgspec

from tidegate.dialects import openai_body
from tidegate.dialects.base import InferenceRequest
from tidegate.dialects.crowd import decode_list, is_crowd, size_of
from tidegate.dialects.lax import (
    OptionalRaw,
    count_items,
    error_text,
    is_given,
    read,
    read_bool,
    read_int,
    read_text,
    size_chars,
)
from tidegate.dialects.media import IMAGE_TOKENS, document_tokens
from tidegate.dialects.turns import ROLE_CHARS_MAX, joined
from tidegate_estimator import CompletionRequest

_THINKS_LOW_BELOW, _THINKS_MEDIUM_BELOW = 4096, 16384


class _Source(msgspec.Struct):
    type: str = ""
    data: OptionalRaw = msgspec.UNSET
    content: OptionalRaw = msgspec.UNSET


class _Block(msgspec.Struct):
    """A piece of a turn: text, an image, a document, a call of a tool or its result, a thought."""

    type: str = ""
    text: str | None = None
    source: OptionalRaw = msgspec.UNSET
    title: OptionalRaw = msgspec.UNSET
    context: OptionalRaw = msgspec.UNSET
    input: OptionalRaw = msgspec.UNSET
    content: OptionalRaw = msgspec.UNSET
    thinking: OptionalRaw = msgspec.UNSET
    data: OptionalRaw = msgspec.UNSET


_Content: TypeAlias = str | list[_Block | str]


class _Turn(msgspec.Struct):
    role: str = ""
    content: _Content | None = None


class _Thinking(msgspec.Struct):
    type: OptionalRaw = msgspec.UNSET
    budget_tokens: OptionalRaw = msgspec.UNSET


class _OutputConfig(msgspec.Struct):
    effort: OptionalRaw = msgspec.UNSET
    format: OptionalRaw = msgspec.UNSET


class _Body(openai_body.SharedFields, kw_only=True):
    messages: msgspec.Raw
    system: OptionalRaw = msgspec.UNSET
    tools: OptionalRaw = msgspec.UNSET
    stop_sequences: OptionalRaw = msgspec.UNSET
    thinking: OptionalRaw = msgspec.UNSET
    output_config: OptionalRaw = msgspec.UNSET
    output_format: OptionalRaw = msgspec.UNSET


_body = msgspec.json.Decoder(_Body)
_content = msgspec.json.Decoder(_Content)
_turns = msgspec.json.Decoder(list[_Turn])
_source = msgspec.json.Decoder(_Source)
_thinking = msgspec.json.Decoder(_Thinking)
_output_config = msgspec.json.Decoder(_OutputConfig)

_KIND_BY_STATUS = {
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class AnthropicMessages:
    """Messages: a system prompt apart, turns of blocks, a bound that every caller states."""

    name = "anthropic_messages"

    def parse_request(self, body: bytes, *, tenant: str) -> InferenceRequest:
        """The facts of a body; MalformedBody where it is not an object with a list of turns."""
        fields = openai_body.decode(_body, body)
        role_texts, chars, media_tokens = _read_turns(fields)
        messages, dropped_chars = openai_body.kept_messages(role_texts)
        output = read(_output_config, fields.output_config) or _OutputConfig()
        completion = CompletionRequest(
            tenant=tenant,
            model=openai_body.model_of(fields),
            messages=messages,
            prompt_chars=chars + dropped_chars + size_chars(fields.tools),
            media_tokens=media_tokens,
            max_tokens=openai_body.token_bound(fields.max_tokens),
            min_tokens=openai_body.min_tokens_of(fields),
            ignore_eos=openai_body.ignores_eos(fields),
            tools=count_items(fields.tools),
            structured=is_given(fields.output_format) or is_given(output.format) or openai_body.is_structured(fields),
            reasoning_effort=read_text(output.effort, chars_max=16) or _effort(fields.thinking),
            temperature=openai_body.temperature_of(fields),
            stop=count_items(fields.stop_sequences),
        )
        return InferenceRequest(completion=completion, stream=read_bool(fields.stream))

    def error_body(self, *, status: int, code: str, message: str) -> bytes:
        """Anthropic's error object; its type is all its clients look at, the rule stands in `x-tidegate-reason`."""
        kind = _KIND_BY_STATUS.get(status, "api_error" if status >= 500 else "invalid_request_error")
        text = error_text(message)
        return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": text}})


def _read_turns(fields: _Body) -> tuple[list[tuple[str, str]], int, int]:
    """Role and text of the system prompt and each turn, characters of all, tokens of images and documents."""
    role_texts: list[tuple[str, str]] = []
    turns = decode_list(_turns, fields.messages)
    if turns is None or (fields.system is not msgspec.UNSET and is_crowd(bytes(fields.system))):
        return role_texts, size_of(fields.messages) + size_of(fields.system), 0
    chars = media_tokens = 0
    system = read(_content, fields.system)
    for turn in turns if system is None else [_Turn("system", system), *turns]:
        text, text_chars, tokens = _read_content(turn.content)
        role_texts.append((turn.role[:ROLE_CHARS_MAX], text))
        chars += text_chars
        media_tokens += tokens
    return role_texts, chars, media_tokens


def _read_content(content: _Content | None) -> tuple[str, int, int]:
    if not isinstance(content, list):
        text = content or ""
        return text, len(text), 0
    texts: list[str] = []
    chars = media_tokens = 0
    for block in content:
        if isinstance(block, str):
            texts.append(block)
            continue
        if block.text:
            texts.append(block.text)
        block_chars, tokens = _read_block(block)
        chars += block_chars
        media_tokens += tokens
    text, text_chars = joined(texts)
    return text, text_chars + chars, media_tokens


def _read_block(block: _Block) -> tuple[int, int]:
    """Characters besides its text, and tokens of media."""
    if block.type == "image":
        return 0, IMAGE_TOKENS
    if block.type == "document":
        around = size_chars(block.title) + size_chars(block.context)
        chars, tokens = _read_document(block.source)
        return around + chars, tokens
    if block.content is not msgspec.UNSET:  # of a tool's result, or of a search: text, or blocks
        inner = read(_content, block.content)
        if inner is None:
            return size_chars(block.content), 0
        return _read_inner(inner)
    return sum(map(size_chars, (block.input, block.thinking, block.data))), 0


def _read_inner(content: _Content) -> tuple[int, int]:
    """The same of what stands inside a block: it goes no deeper, for no engine does."""
    if isinstance(content, str):
        return len(content), 0
    blocks = [block for block in content if isinstance(block, _Block)]
    chars = sum(len(block if isinstance(block, str) else block.text or "") for block in content)
    tokens = sum(IMAGE_TOKENS for block in blocks if block.type == "image")
    documents = [_read_document(block.source) for block in blocks if block.type == "document"]
    return chars + sum(size for size, _ in documents), tokens + sum(each for _, each in documents)


def _read_document(raw: OptionalRaw) -> tuple[int, int]:
    """Characters of a document that is text or blocks, else its tokens by rule."""
    source = read(_source, raw)
    if source is None:
        return 0, document_tokens(msgspec.UNSET)
    if source.type in ("text", "content"):
        return size_chars(source.data) + size_chars(source.content), 0
    return 0, document_tokens(source.data)


def _effort(raw: OptionalRaw) -> str:
    """The word for what a caller allows for thinking; empty where it is off or left to the model."""
    thinking = read(_thinking, raw)
    if thinking is None or read_text(thinking.type, chars_max=16) != "enabled":
        return ""
    budget = read_int(thinking.budget_tokens, at_least=1, at_most=openai_body.TOKENS_MAX)
    if budget is None:
        return ""
    return "low" if budget < _THINKS_LOW_BELOW else "medium" if budget < _THINKS_MEDIUM_BELOW else "high"
