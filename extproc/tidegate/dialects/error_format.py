"""In whose words a refusal reaches its client: those of the API that was asked, or of one API whatever was asked.

A refusal is a whole JSON answer, also of a request for a stream: no stream has begun, and clients look at the status
before they read events. gRPC clients get a status and its message instead, in no format at all (see wire/answers.py).
"""

from enum import StrEnum
from typing import assert_never

from msgspec import Struct

from tidegate.dialects.anthropic_messages import AnthropicMessages
from tidegate.dialects.base import Dialect
from tidegate.dialects.kserve_v2 import KServeV2
from tidegate.dialects.lax import error_text
from tidegate.dialects.openai_chat import OpenAIChat

_JSON, _TEXT = "application/json", "text/plain; charset=utf-8"
_OPENAI, _ANTHROPIC, _KSERVE = OpenAIChat(), AnthropicMessages(), KServeV2("")


class ErrorFormat(StrEnum):
    """A value of `tidegate-error-format`."""

    API = "api"  # of the API that was asked; OpenAI's where it is not known
    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    KSERVE = "kserve"  # Triton's as well: a message and nothing more
    PLAIN = "plain"  # the message as text


class ErrorBody(Struct, frozen=True, gc=False):
    """The body of a refusal and what it is."""

    content_type: str
    body: bytes


def error_body(form: ErrorFormat, dialect: Dialect | None, *, status: int, code: str, message: str) -> ErrorBody:
    """The refusal in this format; `dialect` is the API that was asked, None where it is not known."""
    if form is ErrorFormat.PLAIN:
        return ErrorBody(_TEXT, f"{error_text(message)}\n".encode())
    speaker = _speaker(form, dialect)
    return ErrorBody(_JSON, speaker.error_body(status=status, code=code, message=message))


def _speaker(form: ErrorFormat, dialect: Dialect | None) -> Dialect:
    match form:
        case ErrorFormat.API:
            return dialect or _OPENAI
        case ErrorFormat.OPENAI:
            return _OPENAI
        case ErrorFormat.ANTHROPIC:
            return _ANTHROPIC
        case ErrorFormat.KSERVE:
            return _KSERVE
        case ErrorFormat.PLAIN:
            raise AssertionError("text is of no API")
        case _:
            assert_never(form)
