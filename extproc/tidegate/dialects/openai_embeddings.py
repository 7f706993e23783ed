"""POST /v1/embeddings: text, token ids, or a list of either; vLLM also takes a conversation in place of the input."""

import msgspec

from tidegate.dialects import openai_body
from tidegate.dialects.base import InferenceRequest
from tidegate.dialects.lax import OptionalRaw, read_text
from tidegate.dialects.prompt_only import prompt_only
from tidegate.dialects.prompts import read_prompts
from tidegate.dialects.turns import read_turns
from tidegate.errors import MalformedBody


class _Body(msgspec.Struct, kw_only=True):
    model: OptionalRaw = msgspec.UNSET
    input: OptionalRaw = msgspec.UNSET
    messages: OptionalRaw = msgspec.UNSET


_body = msgspec.json.Decoder(_Body)


class OpenAIEmbeddings:
    """Embeddings: each input of a list is a sequence of its own, read and never continued."""

    name = "openai_embeddings"

    def parse_request(self, body: bytes, *, tenant: str) -> InferenceRequest:
        """The facts of an embeddings body; MalformedBody where it has neither an input nor a conversation."""
        fields = openai_body.decode(_body, body)
        model = read_text(fields.model, chars_max=openai_body.MODEL_CHARS_MAX)
        if isinstance(fields.input, msgspec.Raw):
            prompts = read_prompts(fields.input, field="input")
            return prompt_only(
                tenant=tenant,
                model=model,
                role_texts=[("user", text) for text in prompts.texts],
                chars=prompts.chars,
                sequences=prompts.sequences,
                tokens=prompts.tokens,
            )
        if not isinstance(fields.messages, msgspec.Raw):
            raise MalformedBody("input: missing")
        role_texts, chars, media_tokens = read_turns(fields.messages)
        return prompt_only(
            tenant=tenant, model=model, role_texts=role_texts, chars=chars, sequences=1, media_tokens=media_tokens
        )

    def error_body(self, *, status: int, code: str, message: str) -> bytes:
        """OpenAI's error object."""
        return openai_body.error_body(status=status, code=code, message=message)
