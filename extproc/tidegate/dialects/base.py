"""The seam: what an API must tell us about a request, and how it words a refusal."""

from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from tidegate_estimator import CompletionRequest


class CostClass(StrEnum):
    """What a request asks of an engine; a metric label as well."""

    COMPLETION = "completion"  # tokens to prefill, tokens to generate
    PROMPT = "prompt"  # tokens to prefill and no more: embeddings, rerank
    TIMED = "timed"  # no tokens: it takes its time, by the model and the size of the input


class InferenceRequest(Struct, frozen=True, kw_only=True, gc=False):
    """The facts of one request body: what to estimate, and whether the answer is streamed.

    `usage_unasked`: a stream whose usage has to be asked for in `stream_options`, which the body does not have.
    `input_size`: of a timed request, the elements of its input tensors; 0 where they are not told.
    """

    completion: CompletionRequest
    stream: bool
    usage_unasked: bool = False
    cost_class: CostClass = CostClass.COMPLETION
    input_size: int = 0

    @property
    def is_conversation(self) -> bool:
        """Whether the model has answered before; an assistant's turn at the end is the start of the answer to come."""
        return any(message.role == "assistant" for message in self.completion.messages[:-1])


class Dialect(Protocol):
    """One API."""

    @property
    def name(self) -> str:
        """Metric label and log field, such as `openai_chat`."""
        ...

    def parse_request(self, body: bytes, *, tenant: str) -> InferenceRequest:
        """Read the facts; linear time, no copy of text that is not needed.

        Raises:
            MalformedBody: the body is not what this API asks for. It never raises anything else, whatever the bytes.
        """
        ...

    def error_body(self, *, status: int, code: str, message: str) -> bytes:
        """The API's own error body for a refusal, application/json; one over gRPC has none (see wire/answers.py)."""
        ...
