"""What OpenAI's chat and completions bodies share: the decode, the sampling fields, the error body."""

from typing import TypeVar

import msgspec

from tidegate.dialects.base import InferenceRequest
from tidegate.dialects.lax import (
    OptionalRaw,
    count_items,
    error_text,
    is_given,
    read,
    read_bool,
    read_float,
    read_int,
    read_leniently,
    read_text,
)
from tidegate_estimator import CompletionRequest, Message

TOKENS_MAX = 2**31 - 1
SEQUENCES_MAX = 128  # n or best_of a prompt; an engine refuses more
MODEL_CHARS_MAX = 128
MESSAGES_KEPT_MAX = 256  # handed on: the first (the system prompt) and the newest
TURN_CHARS = 16  # what a turn's own markers cost, counted for the turns that are not handed on

T = TypeVar("T")


class SharedFields(msgspec.Struct, kw_only=True):
    """Fields of both bodies, each kept as JSON text so that a wrong type stays that field's own trouble."""

    model: OptionalRaw = msgspec.UNSET
    max_tokens: OptionalRaw = msgspec.UNSET
    min_tokens: OptionalRaw = msgspec.UNSET
    n: OptionalRaw = msgspec.UNSET
    best_of: OptionalRaw = msgspec.UNSET
    ignore_eos: OptionalRaw = msgspec.UNSET
    temperature: OptionalRaw = msgspec.UNSET
    stop: OptionalRaw = msgspec.UNSET
    stream: OptionalRaw = msgspec.UNSET
    stream_options: OptionalRaw = msgspec.UNSET
    response_format: OptionalRaw = msgspec.UNSET
    structured_outputs: OptionalRaw = msgspec.UNSET  # vLLM; guided_* before it, json_schema and grammar in llama.cpp
    guided_json: OptionalRaw = msgspec.UNSET
    guided_regex: OptionalRaw = msgspec.UNSET
    guided_choice: OptionalRaw = msgspec.UNSET
    guided_grammar: OptionalRaw = msgspec.UNSET
    json_schema: OptionalRaw = msgspec.UNSET
    grammar: OptionalRaw = msgspec.UNSET


class _ResponseFormat(msgspec.Struct):
    type: str = ""


_response_format = msgspec.json.Decoder(_ResponseFormat)
_stop = msgspec.json.Decoder(str)


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """The body in the decoder's shape, read a second time where only a Python engine would accept it.

    Raises:
        MalformedBody: it is not JSON, not an object, or a part that no engine can do without has another type.
    """
    return read_leniently(decoder.decode, body)


def inference_request(fields: SharedFields, completion: CompletionRequest) -> InferenceRequest:
    """The facts of a body, complete; whatever a caller says in `stream_options`, null included, is its own choice."""
    stream = read_bool(fields.stream)
    return InferenceRequest(
        completion=completion, stream=stream, usage_unasked=stream and fields.stream_options is msgspec.UNSET
    )


def model_of(fields: SharedFields) -> str:
    """The model's name, at most 128 characters; empty where it is missing or not a string."""
    return read_text(fields.model, chars_max=MODEL_CHARS_MAX)


def sequences_of(fields: SharedFields) -> int:
    """Completions generated a prompt: best_of where it is above n, between 1 and 128."""
    n = read_int(fields.n, at_least=1, at_most=SEQUENCES_MAX) or 1
    best_of = read_int(fields.best_of, at_least=1, at_most=SEQUENCES_MAX) or 1
    return max(n, best_of)


def token_bound(raw: OptionalRaw) -> int | None:
    """A bound on completion tokens; 0 reads as 1 (engines generate one then), and negative as no bound."""
    bound = read_int(raw, at_least=0, at_most=TOKENS_MAX)
    return None if bound is None else max(bound, 1)


def min_tokens_of(fields: SharedFields) -> int:
    """Tokens a sequence must have before it may stop."""
    return read_int(fields.min_tokens, at_least=0, at_most=TOKENS_MAX) or 0


def ignores_eos(fields: SharedFields) -> bool:
    """Whether the engine generates until the bound."""
    return read_bool(fields.ignore_eos)


def temperature_of(fields: SharedFields) -> float | None:
    """Sampling temperature as sent."""
    return read_float(fields.temperature)


def stop_strings(fields: SharedFields) -> int:
    """Number of stop strings."""
    return count_items(fields.stop) or int(read(_stop, fields.stop) is not None)


def is_structured(fields: SharedFields) -> bool:
    """Whether the answer has to follow a schema, a grammar or JSON's own syntax."""
    wanted = read(_response_format, fields.response_format)
    return (wanted is not None and wanted.type not in ("", "text")) or any(
        is_given(raw)
        for raw in (
            fields.structured_outputs,
            fields.guided_json,
            fields.guided_regex,
            fields.guided_choice,
            fields.guided_grammar,
            fields.json_schema,
            fields.grammar,
        )
    )


def kept_messages(role_texts: list[tuple[str, str]]) -> tuple[tuple[Message, ...], int]:
    """The turns handed on to the estimator, and characters that stand for the markers of those that are not."""
    dropped = len(role_texts) - MESSAGES_KEPT_MAX
    kept = role_texts if dropped <= 0 else [role_texts[0], *role_texts[1 - MESSAGES_KEPT_MAX :]]
    return tuple([Message(role=role, text=text) for role, text in kept]), max(dropped, 0) * TURN_CHARS


_KIND_BY_STATUS = {408: "server_error", 429: "rate_limit_error"}


def error_body(*, status: int, code: str, message: str) -> bytes:
    """OpenAI's error object; its type goes by the status: the server's, the rate's or the request's own."""
    kind = _KIND_BY_STATUS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    text = error_text(message)
    return msgspec.json.encode({"error": {"message": text, "type": kind, "param": None, "code": code}})
