"""Corpus records: one prompt with the answers of many models, or one conversation in which every answer counts.

    {"kind": "prompt", "tenant", "messages": [{"role", "content", "chars"?}], "completions": [{"model",
     "completion_tokens", "finish_reason"?, "max_tokens"?, "temperature"?}], "max_tokens"?, "temperature"?, "tools"?,
     "prompt_tokens"?}
    {"kind": "conv", "tenant", "model", "messages": [{"role", "content", "tokens"}], "temperature"?, "tools"?}

In a conversation each assistant message (not the first, and not one that follows another) is the answer to what stands
before it, `tokens` long. `tools` true means that tools were offered. The middle of a long message may be left out: a
line of its own, `…[N chars]…`, stands for N characters, and is filled up here so that the message has its true size.
"""

import re
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec

from tidegate_estimator import CompletionRequest, Message
from tidegate_estimator.training import Answered

_ELIDED = re.compile(r"\n…\[(\d{1,9}) chars\]…\n")
_GAP_CHARS_MAX = 16 << 20
_SEED = 0


class _Message(msgspec.Struct):
    role: str
    content: str | None = None
    tokens: int = 0


class _Completion(msgspec.Struct):
    model: str
    completion_tokens: int
    finish_reason: str = ""
    max_tokens: int | None = None
    temperature: float | None = None


class _Shared(msgspec.Struct, kw_only=True, tag_field="kind"):
    messages: list[_Message]
    tenant: str = ""
    max_tokens: int | None = None
    temperature: float | None = None
    tools: bool | list[Any] | None = None


class _Prompt(_Shared, kw_only=True, tag="prompt"):
    completions: list[_Completion]
    prompt_tokens: int | None = None


class _Conversation(_Shared, kw_only=True, tag="conv"):
    model: str


_decoder = msgspec.json.Decoder(_Prompt | _Conversation)


def read_record(line: bytes, *, answers_max: int) -> list[Answered]:
    """The answers of one record, at most so many of one prompt (drawn with a fixed seed); msgspec's errors pass."""
    record = _decoder.decode(line)
    if isinstance(record, _Conversation):
        return list(_turns_of(record))
    completions = record.completions
    if len(completions) > answers_max:
        completions = Random(_SEED).sample(completions, answers_max)  # noqa: S311  no secret
    messages = tuple(map(_inflated, record.messages))
    return [
        Answered(
            _request(record, each.model, messages, each),
            each.completion_tokens,
            each.finish_reason,
            record.prompt_tokens,
        )
        for each in completions
    ]


def _turns_of(record: _Conversation) -> Iterator[Answered]:
    messages = tuple(map(_inflated, record.messages))
    for at, message in enumerate(record.messages):
        answers = at > 0 and message.role == "assistant" and messages[at - 1].role != "assistant"
        if answers:
            yield Answered(_request(record, record.model, messages[:at], None), message.tokens, "stop")


def _request(record: _Shared, model: str, messages: tuple[Message, ...], own: _Completion | None) -> CompletionRequest:
    max_tokens, temperature = record.max_tokens, record.temperature
    if own is not None:
        max_tokens = max_tokens if own.max_tokens is None else own.max_tokens
        temperature = temperature if own.temperature is None else own.temperature
    tools = record.tools
    return CompletionRequest(
        tenant=record.tenant,
        model=model,
        messages=messages,
        prompt_chars=sum(len(message.text) for message in messages),
        max_tokens=max_tokens,
        temperature=temperature,
        tools=len(tools) if isinstance(tools, list) else int(bool(tools)),
    )


def _inflated(message: _Message) -> Message:
    """The message in its true size."""
    text = message.content or ""
    gap = _ELIDED.search(text)
    if gap is not None:
        chars = min(int(gap[1]), _GAP_CHARS_MAX)
        head, tail = text[: gap.start()], text[gap.end() :]
        kept = (head + tail) or " "
        text = head + (kept * (chars // len(kept) + 1))[:chars] + tail
    return Message(role=message.role, text=text)
