"""POST /v1/completions: the older API, where a prompt may be text, token ids, or a list of either."""

import msgspec

from tidegate.dialects import openai_body
from tidegate.dialects.base import InferenceRequest
from tidegate.dialects.lax import OptionalRaw, size_chars
from tidegate.dialects.prompts import read_prompts
from tidegate_estimator import CompletionRequest


class _Body(openai_body.SharedFields, kw_only=True):
    prompt: msgspec.Raw
    suffix: OptionalRaw = msgspec.UNSET


_body = msgspec.json.Decoder(_Body)


class OpenAICompletions:
    """Completions: each prompt of a list is a sequence of its own, generated n or best_of times."""

    name = "openai_completions"

    def parse_request(self, body: bytes, *, tenant: str) -> InferenceRequest:
        """The facts of a completions body; MalformedBody where it is not an object with a prompt."""
        fields = openai_body.decode(_body, body)
        prompts = read_prompts(fields.prompt, field="prompt")
        messages, dropped_chars = openai_body.kept_messages([("user", text) for text in prompts.texts])
        completion = CompletionRequest(
            tenant=tenant,
            model=openai_body.model_of(fields),
            messages=messages,
            prompt_chars=prompts.chars + dropped_chars + size_chars(fields.suffix),
            prompt_tokens=prompts.tokens,
            max_tokens=openai_body.token_bound(fields.max_tokens),
            min_tokens=openai_body.min_tokens_of(fields),
            sequences=prompts.sequences * openai_body.sequences_of(fields),
            ignore_eos=openai_body.ignores_eos(fields),
            structured=openai_body.is_structured(fields),
            temperature=openai_body.temperature_of(fields),
            stop=openai_body.stop_strings(fields),
        )
        return openai_body.inference_request(fields, completion)

    def error_body(self, *, status: int, code: str, message: str) -> bytes:
        """OpenAI's error object."""
        return openai_body.error_body(status=status, code=code, message=message)
