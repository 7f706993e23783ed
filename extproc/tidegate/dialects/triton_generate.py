"""POST /v2/models/MODEL/generate[_stream]: Triton's plain JSON for language models.

The names are those of the model's own tensors. Language models have settled on `text_input`, and on the bounds and
switches of sampling either beside it (TensorRT-LLM) or in `parameters` (vLLM's backend); the latter count where both
are there. An answer does not tell how many tokens it took.
"""

import msgspec
from msgspec import Struct

from tidegate.dialects import openai_body
from tidegate.dialects.base import InferenceRequest
from tidegate.dialects.lax import OptionalRaw, read, read_bool, read_float, read_int
from tidegate.dialects.prompts import PROMPTS_MAX
from tidegate.dialects.tensors import error_object
from tidegate_estimator import CompletionRequest


class _Sampling(Struct, kw_only=True):
    max_tokens: OptionalRaw = msgspec.UNSET
    min_tokens: OptionalRaw = msgspec.UNSET
    min_length: OptionalRaw = msgspec.UNSET  # TensorRT-LLM's word for it
    n: OptionalRaw = msgspec.UNSET
    best_of: OptionalRaw = msgspec.UNSET
    beam_width: OptionalRaw = msgspec.UNSET
    ignore_eos: OptionalRaw = msgspec.UNSET
    temperature: OptionalRaw = msgspec.UNSET
    stop: OptionalRaw = msgspec.UNSET
    stop_words: OptionalRaw = msgspec.UNSET


class _Body(_Sampling, kw_only=True):
    text_input: OptionalRaw = msgspec.UNSET
    parameters: OptionalRaw = msgspec.UNSET


_body = msgspec.json.Decoder(_Body)
_sampling = msgspec.json.Decoder(_Sampling)
_text = msgspec.json.Decoder(str | list[str])
_words = msgspec.json.Decoder(str | list[msgspec.Raw])


class TritonGenerate:
    """Text in, text out; model and kind of answer stand in the path, so there is one of these a request."""

    name = "triton_generate"
    __slots__ = ("_model", "_stream")

    def __init__(self, model: str, *, stream: bool) -> None:
        self._model = model
        self._stream = stream

    def parse_request(self, body: bytes, *, tenant: str) -> InferenceRequest:
        """The facts of a body; MalformedBody where it is no object. Without `text_input` all of it is the prompt."""
        fields = openai_body.decode(_body, body)
        inner = read(_sampling, fields.parameters) or _Sampling()
        texts = _texts(fields.text_input)
        messages, dropped_chars = openai_body.kept_messages([("user", text) for text in texts])
        completion = CompletionRequest(
            tenant=tenant,
            model=self._model,
            messages=messages,
            prompt_chars=sum(map(len, texts)) + dropped_chars if texts else len(body),
            max_tokens=openai_body.token_bound(_either(inner.max_tokens, fields.max_tokens)),
            min_tokens=max(_least(inner), _least(fields)),
            sequences=min(max(len(texts), 1), PROMPTS_MAX) * max(_sequences(inner), _sequences(fields)),
            ignore_eos=read_bool(_either(inner.ignore_eos, fields.ignore_eos)),
            temperature=read_float(_either(inner.temperature, fields.temperature)),
            stop=max(_stops(each) for each in (inner.stop, inner.stop_words, fields.stop, fields.stop_words)),
        )
        return InferenceRequest(completion=completion, stream=self._stream)

    def error_body(self, *, status: int, code: str, message: str) -> bytes:
        """Triton's error object: nothing but a message."""
        return error_object(message)


def _texts(raw: OptionalRaw) -> list[str]:
    """The prompts; none where the field is missing or of another type."""
    texts = read(_text, raw)
    return [] if texts is None else [texts] if isinstance(texts, str) else texts


def _either(first: OptionalRaw, second: OptionalRaw) -> OptionalRaw:
    return second if first is msgspec.UNSET else first


def _least(fields: _Sampling) -> int:
    named = (fields.min_tokens, fields.min_length)
    return max(read_int(raw, at_least=0, at_most=openai_body.TOKENS_MAX) or 0 for raw in named)


def _sequences(fields: _Sampling) -> int:
    named = (fields.n, fields.best_of, fields.beam_width)
    return max(read_int(raw, at_least=1, at_most=openai_body.SEQUENCES_MAX) or 1 for raw in named)


def _stops(raw: OptionalRaw) -> int:
    stop = read(_words, raw)
    return 0 if stop is None else int(stop != "") if isinstance(stop, str) else len(stop)
