"""Answers of the OpenAI API in vLLM's shapes: whole, or as server-sent events.

The text means nothing: each token is a word of four characters, so that text can be cut at any token in one slice.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from tidegate.sim.lengths import FinishReason
from tidegate.sim.openai_request import Api, ApiError

DONE = b"data: [DONE]\n\n"
FINGERPRINT = "tidegate-sim"
WORD_CHARS = 4
_WORDS = " sea  ebb  cay  bay  fog  sun  oar  net".replace("  ", " ").encode()
_CYCLE = _WORDS * 64
_CYCLE_TOKENS = len(_CYCLE) // WORD_CHARS


def text_between(start_tokens: int, end_tokens: int) -> str:
    """Text of the tokens from `start_tokens` up to `end_tokens`."""
    offset = start_tokens % (len(_WORDS) // WORD_CHARS)
    count = end_tokens - start_tokens
    repeated = _CYCLE if offset + count <= _CYCLE_TOKENS else _WORDS * (count // (len(_WORDS) // WORD_CHARS) + 2)
    return repeated[offset * WORD_CHARS : (offset + count) * WORD_CHARS].decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """Writes the parts of one answer.

    Attributes:
        prompt_tokens: for the usage.
        continuous_usage: every event carries the usage so far.
    """

    api: Api
    id: str
    created_s: int
    model: str
    prompt_tokens: int
    continuous_usage: bool = False

    def opening(self, index: int) -> bytes:
        """The event that opens a choice: chat names the role, a completion needs none."""
        if self.api is Api.COMPLETIONS:
            return b""
        choice = {
            "index": index,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        return self._event([choice], self._usage(0) if self.continuous_usage else None)

    def piece(self, index: int, text: str, finish_reason: FinishReason | None, completion_tokens: int) -> bytes:
        """The event that carries text of a choice; `completion_tokens` of all choices so far."""
        choice: dict[str, Any] = {"index": index}
        if self.api is Api.CHAT:
            choice["delta"] = {"content": text}
        else:
            choice["text"] = text
        choice["logprobs"] = None
        choice["finish_reason"] = finish_reason
        if finish_reason is not None:
            choice["stop_reason"] = None
        return self._event([choice], self._usage(completion_tokens) if self.continuous_usage else None)

    def last_usage(self, completion_tokens: int) -> bytes:
        """The event after the last piece that carries nothing but the usage."""
        return self._event([], self._usage(completion_tokens))

    def whole(self, choices: list[tuple[int, FinishReason]]) -> bytes:
        """The whole answer; a choice is its tokens and how it ended."""
        return msgspec.json.encode(
            {
                "id": self.id,
                "object": "chat.completion" if self.api is Api.CHAT else "text_completion",
                "created": self.created_s,
                "model": self.model,
                "choices": [self._whole_choice(index, *choice) for index, choice in enumerate(choices)],
                "service_tier": None,
                "system_fingerprint": FINGERPRINT,
                "usage": self._usage(sum(tokens for tokens, _ in choices)),
            }
        )

    def _whole_choice(self, index: int, tokens: int, finish_reason: FinishReason) -> dict[str, Any]:
        text = text_between(0, tokens)
        ending = {"logprobs": None, "finish_reason": finish_reason, "stop_reason": None}
        if self.api is Api.COMPLETIONS:
            return {"index": index, "text": text, **ending}
        return {"index": index, "message": {"role": "assistant", "content": text, "refusal": None}, **ending}

    def _event(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None) -> bytes:
        event: dict[str, Any] = {
            "id": self.id,
            "object": "chat.completion.chunk" if self.api is Api.CHAT else "text_completion",
            "created": self.created_s,
            "model": self.model,
            "choices": choices,
        }
        if usage is not None:
            event["usage"] = usage
        return b"data: " + msgspec.json.encode(event) + b"\n\n"

    def _usage(self, completion_tokens: int) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + completion_tokens,
            "completion_tokens": completion_tokens,
            "prompt_tokens_details": {"cached_tokens": 0},
        }


def error_body(error: ApiError) -> bytes:
    """The body of a refusal."""
    detail = {"message": error.message, "type": error.error_type, "param": error.param, "code": error.status}
    return msgspec.json.encode({"error": detail})


def busy() -> ApiError:
    """What the engine says where its own queue is full: 503, without a Retry-After."""
    return ApiError(
        "The engine is currently busy and cannot accept new requests. "
        "Please try again later or on a different instance.",
        status=503,
        error_type="Service Unavailable",
    )
