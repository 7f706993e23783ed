"""POST /v1/completions: the older API, where a prompt may be text, token ids, or a list of either."""

import re
from dataclasses import dataclass

import msgspec

from tidegate.dialects import openai_body
from tidegate.dialects.base import InferenceRequest
from tidegate.dialects.lax import UNREADABLE, OptionalRaw, size_chars
from tidegate.errors import MalformedBody
from tidegate_estimator import CompletionRequest

PROMPTS_MAX = 2048

_FIRST_IN_LIST = re.compile(rb"\[[ \t\r\n]*+(.)", re.DOTALL)
_DIGITS = b"-0123456789"


class _Body(openai_body.SharedFields, kw_only=True):
    prompt: msgspec.Raw
    suffix: OptionalRaw = msgspec.UNSET


_body = msgspec.json.Decoder(_Body)
_text = msgspec.json.Decoder(str)
_texts = msgspec.json.Decoder(list[str])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prompts:
    """Texts, or the number of token ids where the caller sent those; `count` prompts in all."""

    count: int
    texts: tuple[str, ...] | list[str] = ()
    tokens: int | None = None


class OpenAICompletions:
    """Completions: each prompt of a list is a sequence of its own, generated n or best_of times."""

    name = "openai_completions"

    def parse_request(self, body: bytes, *, tenant: str) -> InferenceRequest:
        """The facts of a completions body; MalformedBody where it is not an object with a prompt."""
        fields = openai_body.decode(_body, body)
        prompts = _read_prompts(fields.prompt)
        messages, dropped_chars = openai_body.kept_messages([("user", text) for text in prompts.texts])
        completion = CompletionRequest(
            tenant=tenant,
            model=openai_body.model_of(fields),
            messages=messages,
            prompt_chars=sum(map(len, prompts.texts)) + dropped_chars + size_chars(fields.suffix),
            prompt_tokens=prompts.tokens,
            max_tokens=openai_body.token_bound(fields.max_tokens),
            min_tokens=openai_body.min_tokens_of(fields),
            sequences=min(max(prompts.count, 1), PROMPTS_MAX) * openai_body.sequences_of(fields),
            ignore_eos=openai_body.ignores_eos(fields),
            structured=openai_body.is_structured(fields),
            temperature=openai_body.temperature_of(fields),
            stop=openai_body.stop_strings(fields),
        )
        return openai_body.inference_request(fields, completion)

    def error_body(self, *, status: int, code: str, message: str) -> bytes:
        """OpenAI's error object."""
        return openai_body.error_body(status=status, code=code, message=message)


def _read_prompts(raw: msgspec.Raw) -> _Prompts:
    """Tell the four forms apart by the first character inside, so that a list of ids is counted and never built."""
    try:
        if bytes(memoryview(raw)[:1]) == b'"':
            return _Prompts(count=1, texts=(_text.decode(raw),))
        found = _FIRST_IN_LIST.match(raw)
        first = found.group(1) if found else b""
        if first == b'"':
            texts = _texts.decode(raw)
            return _Prompts(count=len(texts), texts=texts)
    except UNREADABLE as error:
        raise MalformedBody(f"prompt: {error!s:.200}") from None
    if first == b"]":
        return _Prompts(count=0)
    if first == b"[" or (first and first in _DIGITS):
        ids = bytes(raw)
        return _Prompts(count=max(ids.count(b"[") - 1, 1), tokens=ids.count(b",") + 1)
    raise MalformedBody("prompt: expected text, token ids, or a list of either")
