"""What a body of the OpenAI API asks the simulated engine for, and how it refuses one: vLLM's checks, in vLLM's words.

Tokens are counted, not made: four characters of text are a token, token ids are one each, a part that is no text
(an image, say) is `MEDIA_TOKENS`; roles and separators are none, so that a load driver can hit a number exactly.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from tidegate.errors import ClientError
from tidegate.sim.lengths import Length, bounded, drawn_tokens
from tidegate.sim.profiles import EngineProfile

CHARS_PER_TOKEN = 4
MEDIA_TOKENS = 256
SEQUENCES_MAX = 128
COMPLETION_TOKENS_DEFAULT = 16  # the older API's own default; chat goes on to the end of the context
LENGTH_KEY = "sim_completion_tokens"
"""Key of the request's `metadata` that states the true length of its answers, as a string of digits."""


class Api(StrEnum):
    """The two APIs served."""

    CHAT = "chat"
    COMPLETIONS = "completions"


class ApiError(ClientError):
    """A request the engine refuses, with the parts of the error body."""

    def __init__(
        self, message: str, *, status: int = 400, error_type: str = "BadRequestError", param: str | None = None
    ) -> None:
        self.message = message
        self.status = status
        self.error_type = error_type
        self.param = param
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt: its tokens, and the bytes that stand for its content where a length is drawn."""

    tokens: int
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """A checked request; its choices are `n` for each prompt, in the prompts' order.

    Attributes:
        max_tokens: bound on a choice's length, or None: the API's default.
        stated_tokens: the true length where the caller states it, or None: drawn.
        include_usage: a last chunk of a stream carries the usage; `continuous_usage`: every chunk does.
    """

    api: Api
    model: str
    prompts: tuple[Prompt, ...]
    n: int = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    stated_tokens: int | None = None
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens as the usage shows them: each prompt once."""
        return sum(prompt.tokens for prompt in self.prompts)

    def choices(self, profile: EngineProfile, *, seed: int) -> list[tuple[Prompt, Length]]:
        """Prompt and true length of every choice; ApiError where one does not fit the engine's context."""
        return [self._choice(prompt, index, profile, seed) for prompt in self.prompts for index in range(self.n)]

    def _choice(self, prompt: Prompt, index: int, profile: EngineProfile, seed: int) -> tuple[Prompt, Length]:
        left_tokens = _room(prompt, self.max_tokens, profile.context_tokens)
        default = left_tokens if self.api is Api.CHAT else min(COMPLETION_TOKENS_DEFAULT, left_tokens)
        natural = self.stated_tokens
        if natural is None:
            natural = drawn_tokens(
                prompt.content, seed=seed, index=index, log_mean=profile.log_mean, log_sigma=profile.log_sigma
            )
        return prompt, bounded(
            natural,
            min_tokens=self.min_tokens,
            max_tokens=default if self.max_tokens is None else self.max_tokens,
            ignore_eos=self.ignore_eos,
        )


def _room(prompt: Prompt, max_tokens: int | None, context_tokens: int) -> int:
    """Tokens left for the answer; ApiError where none, or fewer than the caller allows."""
    if max_tokens is not None and max_tokens > context_tokens:
        raise ApiError(
            f"max_tokens={max_tokens} cannot be greater than max_model_len={context_tokens}. Please request fewer "
            f"output tokens. (parameter=max_tokens, value={max_tokens})",
            param="max_tokens",
        )
    if prompt.tokens + (max_tokens or 1) > context_tokens:
        raise ApiError(
            f"This model's maximum context length is {context_tokens} tokens. However, your prompt contains "
            f"{prompt.tokens} input tokens and asks for {max_tokens or 1} output tokens. Please reduce the length of "
            f"either. (parameter=input_tokens, value={prompt.tokens})",
            param="input_tokens",
        )
    return context_tokens - prompt.tokens


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class _Part(msgspec.Struct):
    type: str = "text"
    text: str | None = None


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None


class _Body(msgspec.Struct, kw_only=True):
    model: str | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    n: int | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    metadata: dict[str, str] | None = None


class _ChatBody(_Body):
    messages: list[_Message]
    max_completion_tokens: int | None = None
    tools: msgspec.Raw = msgspec.Raw(b"null")


class _CompletionBody(_Body):
    prompt: str | list[Any]


_CHAT_DECODER = msgspec.json.Decoder(_ChatBody)
_COMPLETION_DECODER = msgspec.json.Decoder(_CompletionBody)


def parse(api: Api, body: bytes) -> GenerationRequest:
    """Read and check a body; ApiError (400) where it is not what the API asks for."""
    try:
        if api is Api.CHAT:
            chat = _CHAT_DECODER.decode(body)
            cap_tokens = chat.max_tokens if chat.max_completion_tokens is None else chat.max_completion_tokens
            return _checked(api, chat, (_chat_prompt(chat),), cap_tokens)
        completion = _COMPLETION_DECODER.decode(body)
        return _checked(api, completion, _prompts(completion.prompt), completion.max_tokens)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        raise _bad("body" + where.rstrip("`"), what) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad("body", f"JSON decode error: {error}") from error


def _bad(where: str, what: str) -> ApiError:
    return ApiError(
        f"1 validation error:\n  {{'loc': '{where}', 'msg': '{what}'}}", error_type="Bad Request", param=where
    )


def _checked(api: Api, body: _Body, prompts: tuple[Prompt, ...], max_tokens: int | None) -> GenerationRequest:
    n, min_tokens = 1 if body.n is None else body.n, body.min_tokens or 0
    if max_tokens is not None and max_tokens < 1:
        raise _bad("body.max_tokens", f"max_tokens must be at least 1, got {max_tokens}.")
    if min_tokens < 0 or (max_tokens is not None and min_tokens > max_tokens):
        raise _bad("body.min_tokens", f"min_tokens must be between 0 and max_tokens, got {min_tokens}.")
    if not 1 <= n * len(prompts) <= SEQUENCES_MAX:
        raise _bad("body.n", f"choices of a request must be between 1 and {SEQUENCES_MAX}.")
    if body.stream_options is not None and not body.stream:
        raise _bad("body.stream_options", "Stream options can only be defined when `stream=True`.")
    options = body.stream_options or _StreamOptions()
    return GenerationRequest(
        api=api,
        model=body.model or "",
        prompts=prompts,
        n=n,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        ignore_eos=bool(body.ignore_eos),
        stated_tokens=_stated(body.metadata or {}),
        stream=bool(body.stream),
        include_usage=bool(options.include_usage),
        continuous_usage=bool(options.continuous_usage_stats),
    )


def _stated(metadata: dict[str, str]) -> int | None:
    text = metadata.get(LENGTH_KEY)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 1 <= len(text) <= 9 and int(text) > 0):
        raise _bad(f"body.metadata.{LENGTH_KEY}", "must be a string of 1 to 9 digits above 0.")
    return int(text)


def _chat_prompt(body: _ChatBody) -> Prompt:
    roles: list[str] = []
    texts: list[str] = []
    media_tokens = 0
    for message in body.messages:
        roles.append(message.role)
        parts = [_Part(text=message.content)] if isinstance(message.content, str) else message.content or []
        texts.extend(part.text for part in parts if part.text is not None)
        media_tokens += MEDIA_TOKENS * sum(part.text is None for part in parts)
    tools = b"" if bytes(body.tools) == b"null" else bytes(body.tools)
    text_tokens = -(-(sum(len(text) for text in texts) + len(tools)) // CHARS_PER_TOKEN)
    content = _bytes("\x00".join([*roles, *texts])) + tools
    return Prompt(tokens=max(1, text_tokens + media_tokens), content=content)


def _prompts(prompt: str | list[Any]) -> tuple[Prompt, ...]:
    """A prompt is a text or a list of token ids; a list of either is several."""
    if isinstance(prompt, str):
        return (Prompt(tokens=max(1, -(-len(prompt) // CHARS_PER_TOKEN)), content=_bytes(prompt)),)
    if prompt and all(type(token) is int for token in prompt):
        return (Prompt(tokens=len(prompt), content=msgspec.json.encode(prompt)),)
    few = prompt[: SEQUENCES_MAX + 1]  # one more is refused as too many choices
    prompts = tuple(each for part in few if isinstance(part, str | list) for each in _prompts(part))
    if not prompts or len(prompts) != len(few):
        raise _bad("body.prompt", "Input should be a text, a list of token ids, or a list of either.")
    return prompts


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
