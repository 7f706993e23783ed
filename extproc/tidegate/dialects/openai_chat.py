"""POST /v1/chat/completions."""

import msgspec

from tidegate.dialects import openai_body
from tidegate.dialects.base import InferenceRequest
from tidegate.dialects.lax import OptionalRaw, count_items, read_text, size_chars
from tidegate.dialects.media import audio_tokens, image_tokens
from tidegate_estimator import CompletionRequest

ROLE_CHARS_MAX = 32
EXCERPT_CHARS = 8192  # a turn of several text parts is joined only up to twice this; beyond, its head and its tail


class _Part(msgspec.Struct):
    type: str = ""
    text: str | None = None
    image_url: OptionalRaw = msgspec.UNSET
    input_audio: OptionalRaw = msgspec.UNSET


class _Turn(msgspec.Struct):
    role: str = ""
    content: str | list[_Part | str] | None = None
    tool_calls: OptionalRaw = msgspec.UNSET
    function_call: OptionalRaw = msgspec.UNSET


class _Body(openai_body.SharedFields, kw_only=True):
    messages: list[_Turn]
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
        role_texts, chars, media_tokens = _read_turns(fields.messages)
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


def _read_turns(turns: list[_Turn]) -> tuple[list[tuple[str, str]], int, int]:
    """Role and text of each turn, characters of all with the calls made in them, and tokens of images and audio."""
    role_texts, chars, media_tokens = [], 0, 0
    for turn in turns:
        content = turn.content
        if isinstance(content, list):
            text, text_chars, part_tokens = _read_parts(content)
            media_tokens += part_tokens
        else:
            text = content or ""
            text_chars = len(text)
        chars += text_chars + size_chars(turn.tool_calls) + size_chars(turn.function_call)
        role_texts.append((turn.role[:ROLE_CHARS_MAX], text))
    return role_texts, chars, media_tokens


def _read_parts(parts: list[_Part | str]) -> tuple[str, int, int]:
    """Text of a turn made of parts (the caller's own string where there is one), its true size, tokens of its media."""
    texts: list[str] = []
    media_tokens = 0
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
            continue
        if part.text:
            texts.append(part.text)
        if part.image_url is not msgspec.UNSET:
            media_tokens += image_tokens(part.image_url)
        if part.input_audio is not msgspec.UNSET:
            media_tokens += audio_tokens(part.input_audio)
    chars = sum(map(len, texts))
    if len(texts) <= 1:
        return (texts[0] if texts else ""), chars, media_tokens
    if chars <= 2 * EXCERPT_CHARS:
        return "\n".join(texts), chars, media_tokens
    return texts[0][:EXCERPT_CHARS] + "\n" + texts[-1][-EXCERPT_CHARS:], chars, media_tokens
