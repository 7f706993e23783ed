"""POST /v1/audio/transcriptions, /v1/audio/translations and /v1/audio/speech.

A file to be written down costs 1 token per 2,400 bytes of the whole body (see media.py): its length is not told, and
what it holds is not looked at. What is said in it is generated as tokens. Speech is the other way round: no engine
tells the tokens of a sound, so it is a matter of time, by the model and the characters to be read out.
"""

import re

import msgspec

from tidegate.dialects import openai_body
from tidegate.dialects.base import CostClass, InferenceRequest
from tidegate.dialects.lax import OptionalRaw, read_text
from tidegate.dialects.media import audio_file_tokens
from tidegate.dialects.multipart import small_fields
from tidegate_estimator import CompletionRequest, Message

_TRUE = (b"true", b"1", b"yes", b"on")  # what form fields are read as by the engines' own parser
_WHOLE_NUMBER = re.compile(rb"[0-9]{1,10}")
_NUMBER = re.compile(rb"[0-9]{1,3}(?:\.[0-9]{1,9})?")


class OpenAITranscription:
    """Audio to text, in a form: a file, and a few fields beside it."""

    name = "openai_audio"

    def parse_request(self, body: bytes, *, tenant: str) -> InferenceRequest:
        """The facts of a form; MalformedBody where it is none."""
        fields = small_fields(body)
        prompt = fields.get("prompt", b"").decode("utf-8", "replace")
        bound = fields.get("max_completion_tokens", b"").strip()
        temperature = fields.get("temperature", b"").strip()
        completion = CompletionRequest(
            tenant=tenant,
            model=fields.get("model", b"").decode("utf-8", "replace")[: openai_body.MODEL_CHARS_MAX],
            messages=(Message(role="user", text=prompt),),
            prompt_chars=len(prompt),
            media_tokens=audio_file_tokens(len(body)),
            max_tokens=max(min(int(bound), openai_body.TOKENS_MAX), 1) if _WHOLE_NUMBER.fullmatch(bound) else None,
            temperature=float(temperature) if _NUMBER.fullmatch(temperature) else None,
        )
        stream = fields.get("stream", b"").strip().lower() in _TRUE
        return InferenceRequest(completion=completion, stream=stream)

    def error_body(self, *, status: int, code: str, message: str) -> bytes:
        """OpenAI's error object."""
        return openai_body.error_body(status=status, code=code, message=message)


class _SpeechBody(msgspec.Struct, kw_only=True):
    model: OptionalRaw = msgspec.UNSET
    input: str
    instructions: OptionalRaw = msgspec.UNSET


_speech_body = msgspec.json.Decoder(_SpeechBody)


class OpenAISpeech:
    """Text to sound."""

    name = "openai_speech"

    def parse_request(self, body: bytes, *, tenant: str) -> InferenceRequest:
        """The facts of a body; MalformedBody where it has no text to read out."""
        fields = openai_body.decode(_speech_body, body)
        text = fields.input
        completion = CompletionRequest(
            tenant=tenant,
            model=read_text(fields.model, chars_max=openai_body.MODEL_CHARS_MAX),
            messages=(Message(role="user", text=text),),
            prompt_chars=len(text),
        )
        return InferenceRequest(
            completion=completion, stream=False, cost_class=CostClass.TIMED, input_size=max(len(text), 1)
        )

    def error_body(self, *, status: int, code: str, message: str) -> bytes:
        """OpenAI's error object."""
        return openai_body.error_body(status=status, code=code, message=message)
