"""POST /v1/chat/completions."""

import msgspec

from tidegate.dialects import openai_body
from tidegate.dialects.base import InferenceRequest
from tidegate.dialects.lax import OptionalRaw, count_items, read_text, size_chars
from tidegate.dialects.turns import read_turns
from tidegate_estimator import CompletionRequest


class _Body(openai_body.SharedFields, kw_only=True):
    messages: msgspec.Raw
    max_completion_tokens: OptionalRaw = msgspec.UNSET
    tools: OptionalRaw = msgspec.UNSET
    functions: OptionalRaw = msgspec.UNSET  # what tools were called before
    reasoning_effort: OptionalRaw = msgspec.UNSET


_body = msgspec.json.Decoder(_Body)


class OpenAIChat:
    """Chat completions: turns of text, images and audio, tools, structured answers."""

    name = "openai_chat"

    def parse_request(self, body: bytes, *, tenant: str) -> InferenceRequest:
        """The facts of a chat body; MalformedBody where it is not an object with a list of turns."""
        fields = openai_body.decode(_body, body)
        role_texts, chars, media_tokens = read_turns(fields.messages)
        messages, dropped_chars = openai_body.kept_messages(role_texts)
        bound = openai_body.token_bound(fields.max_completion_tokens)
        completion = CompletionRequest(
            tenant=tenant,
            model=openai_body.model_of(fields),
            messages=messages,
            prompt_chars=chars + dropped_chars + size_chars(fields.tools) + size_chars(fields.functions),
            media_tokens=media_tokens,
            max_tokens=openai_body.token_bound(fields.max_tokens) if bound is None else bound,
            min_tokens=openai_body.min_tokens_of(fields),
            sequences=openai_body.sequences_of(fields),
            ignore_eos=openai_body.ignores_eos(fields),
            tools=count_items(fields.tools) + count_items(fields.functions),
            structured=openai_body.is_structured(fields),
            reasoning_effort=read_text(fields.reasoning_effort, chars_max=16),
            temperature=openai_body.temperature_of(fields),
            stop=openai_body.stop_strings(fields),
        )
        return openai_body.inference_request(fields, completion)

    def error_body(self, *, status: int, code: str, message: str) -> bytes:
        """OpenAI's error object."""
        return openai_body.error_body(status=status, code=code, message=message)
