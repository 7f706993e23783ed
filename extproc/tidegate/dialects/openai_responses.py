"""POST /v1/responses: an input of text or items, instructions, tools, structured text, reasoning.

Turns that the engine has kept (`previous_response_id`, `conversation`, a stored `prompt`, items by reference) are only
named: they count 1,000 tokens once, by rule, and the prompt teaches nothing. Images, audio and files count as in
media.py. A stream opens with `response.created`, long before its first token.
"""

from typing import NamedTuple

import msgspec

from tidegate.dialects import openai_body
from tidegate.dialects.base import InferenceRequest
from tidegate.dialects.crowd import decode_list, size_of
from tidegate.dialects.lax import OptionalRaw, count_items, is_given, read, read_bool, read_float, read_text, size_chars
from tidegate.dialects.media import HISTORY_TOKENS, IMAGE_TOKENS, audio_tokens, detail_tokens, document_tokens
from tidegate.dialects.turns import ROLE_CHARS_MAX, joined
from tidegate.errors import MalformedBody
from tidegate_estimator import CompletionRequest

_ASSISTANT = "assistant"
_REFERENCE = "item_reference"


class _Part(msgspec.Struct):
    type: str = ""
    text: str | None = None
    refusal: str | None = None
    detail: OptionalRaw = msgspec.UNSET
    input_audio: OptionalRaw = msgspec.UNSET
    file_data: OptionalRaw = msgspec.UNSET


class _Item(msgspec.Struct):
    """A turn, or what a model or a tool said between turns; an item without a type is a turn."""

    type: str = "message"
    role: str = ""
    content: str | list[_Part | str] | None = None
    name: OptionalRaw = msgspec.UNSET
    arguments: OptionalRaw = msgspec.UNSET
    input: OptionalRaw = msgspec.UNSET
    output: OptionalRaw = msgspec.UNSET
    summary: OptionalRaw = msgspec.UNSET
    encrypted_content: OptionalRaw = msgspec.UNSET


class _Reasoning(msgspec.Struct):
    effort: OptionalRaw = msgspec.UNSET


class _Text(msgspec.Struct):
    format: OptionalRaw = msgspec.UNSET


class _Body(openai_body.SharedFields, kw_only=True):
    input: OptionalRaw = msgspec.UNSET
    instructions: OptionalRaw = msgspec.UNSET
    max_output_tokens: OptionalRaw = msgspec.UNSET
    tools: OptionalRaw = msgspec.UNSET
    text: OptionalRaw = msgspec.UNSET
    reasoning: OptionalRaw = msgspec.UNSET
    previous_response_id: OptionalRaw = msgspec.UNSET
    conversation: OptionalRaw = msgspec.UNSET
    prompt: OptionalRaw = msgspec.UNSET


_body = msgspec.json.Decoder(_Body)
_input = msgspec.json.Decoder(str | list[_Item])
_output = msgspec.json.Decoder(str | list[_Part | str])
_string = msgspec.json.Decoder(str)
_reasoning = msgspec.json.Decoder(_Reasoning)
_text = msgspec.json.Decoder(_Text)


class _Read(NamedTuple):
    role: str
    text: str
    chars: int
    media_tokens: int = 0


class OpenAIResponses:
    """Responses: items of text, images, audio and files, calls of tools and their results."""

    name = "openai_responses"

    def parse_request(self, body: bytes, *, tenant: str) -> InferenceRequest:
        """The facts of a body; MalformedBody where it is no object, or has neither an input nor a stored prompt."""
        fields = openai_body.decode(_body, body)
        kept = any(is_given(raw) for raw in (fields.previous_response_id, fields.conversation))
        turns, refers = _turns(fields)
        if kept:
            turns.insert(0, _Read(_ASSISTANT, "", 0))
        messages, dropped_chars = openai_body.kept_messages([(turn.role, turn.text) for turn in turns])
        stored = kept or refers or is_given(fields.prompt)
        bound = openai_body.token_bound(fields.max_output_tokens)
        reasoning = read(_reasoning, fields.reasoning)
        completion = CompletionRequest(
            tenant=tenant,
            model=openai_body.model_of(fields),
            messages=messages,
            prompt_chars=sum(turn.chars for turn in turns) + dropped_chars + size_chars(fields.tools),
            media_tokens=sum(turn.media_tokens for turn in turns) + (HISTORY_TOKENS if stored else 0),
            max_tokens=bound,
            min_tokens=openai_body.min_tokens_of(fields),
            ignore_eos=openai_body.ignores_eos(fields),
            tools=count_items(fields.tools),
            structured=_is_structured(fields),
            reasoning_effort="" if reasoning is None else read_text(reasoning.effort, chars_max=16),
            temperature=read_float(fields.temperature),
            stop=openai_body.stop_strings(fields),
        )
        return InferenceRequest(completion=completion, stream=read_bool(fields.stream))

    def error_body(self, *, status: int, code: str, message: str) -> bytes:
        """OpenAI's error object."""
        return openai_body.error_body(status=status, code=code, message=message)


def _turns(fields: _Body) -> tuple[list[_Read], bool]:
    """What is read of instructions and input, and whether an item is only named.

    Raises:
        MalformedBody: the input is neither text nor a list of items, or there is none and no stored prompt either.
    """
    turns: list[_Read] = []
    instructions = read(_string, fields.instructions)
    if instructions:
        turns.append(_Read("system", instructions, len(instructions)))
    if not isinstance(fields.input, msgspec.Raw) or not is_given(fields.input):
        if not is_given(fields.prompt):
            raise MalformedBody("input: missing")
        return turns, False
    said = decode_list(_input, fields.input)
    if said is None:
        turns.append(_Read("", "", size_of(fields.input)))
        return turns, False
    if isinstance(said, str):
        turns.append(_Read("user", said, len(said)))
        return turns, False
    turns.extend([_read_item(item) for item in said])
    return turns, any(item.type == _REFERENCE for item in said)


def _read_item(item: _Item) -> _Read:
    if item.content is not None or item.role:
        text, chars, media_tokens = _read_content(item.content)
        return _Read(item.role[:ROLE_CHARS_MAX], text, chars + size_chars(item.summary), media_tokens)
    if item.output is not msgspec.UNSET:
        return _read_output(item)
    said = (item.name, item.arguments, item.input, item.summary, item.encrypted_content)
    return _Read(_ASSISTANT, "", sum(map(size_chars, said)))


def _read_output(item: _Item) -> _Read:
    """What a tool answered: text, parts as a turn has them, or a picture of a screen."""
    if item.type == "computer_call_output":
        return _Read("tool", "", 0, IMAGE_TOKENS)
    output = read(_output, item.output)
    if output is None:
        return _Read("tool", "", size_chars(item.output))
    return _Read("tool", *_read_content(output))


def _read_content(content: str | list[_Part | str] | None) -> tuple[str, int, int]:
    """Text, true size in characters, tokens of media."""
    if not isinstance(content, list):
        text = content or ""
        return text, len(text), 0
    texts = [part if isinstance(part, str) else part.text or part.refusal or "" for part in content]
    text, chars = joined(list(filter(None, texts)))
    return text, chars, sum(_media_tokens(part) for part in content if isinstance(part, _Part))


def _media_tokens(part: _Part) -> int:
    if part.type == "input_image":  # unlike in chat, `detail` stands beside the address
        return detail_tokens(part.detail)
    if part.type == "input_audio":
        return audio_tokens(part.input_audio)
    return document_tokens(part.file_data) if part.type == "input_file" else 0


def _is_structured(fields: _Body) -> bool:
    wanted = read(_text, fields.text)
    if wanted is not None and wanted.format is not msgspec.UNSET:
        fields.response_format = wanted.format
    return openai_body.is_structured(fields)
