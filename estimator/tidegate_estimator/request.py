"""The facts of a request that an estimator may look at, in one shape for every API."""

from msgspec import Struct


class Message(Struct, frozen=True, kw_only=True, gc=False):
    """One turn of the conversation; `text` is the caller's own string, never a copy."""

    role: str
    text: str


class CompletionRequest(Struct, frozen=True, kw_only=True, gc=False):
    """A request for completion tokens.

    Attributes:
        tenant: who pays; empty where the mesh names nobody.
        model: the model's name as the caller wrote it.
        messages: the conversation, oldest first; a plain completion is one user message a prompt.
        prompt_chars: characters of all text in the prompt, tool schemas included.
        prompt_tokens: exact, where the caller sent token ids; None where it has to be estimated.
        media_tokens: tokens of image and audio parts, by the dialect's stated rules.
        max_tokens: the caller's own bound on completion tokens a sequence, or None.
        min_tokens: completion tokens a sequence that the engine must produce before it may stop.
        sequences: completions generated at once (n, best_of), at least 1.
        ignore_eos: generate until the bound, whatever the model says.
        tools: number of tool schemas offered.
        structured: the answer must be JSON or follow a schema.
        reasoning_effort: the caller's word for it, or an empty string.
        temperature: sampling temperature, or None.
        stop: number of stop strings.
    """

    tenant: str = ""
    model: str = ""
    messages: tuple[Message, ...] = ()
    prompt_chars: int = 0
    prompt_tokens: int | None = None
    media_tokens: int = 0
    max_tokens: int | None = None
    min_tokens: int = 0
    sequences: int = 1
    ignore_eos: bool = False
    tools: int = 0
    structured: bool = False
    reasoning_effort: str = ""
    temperature: float | None = None
    stop: int = 0
