"""Turns of a conversation: the texts handed on to the estimator, the size of all, and the media among them."""

import msgspec

from tidegate.dialects.crowd import decode_list, size_of
from tidegate.dialects.lax import OptionalRaw, size_chars
from tidegate.dialects.media import audio_tokens, image_tokens

ROLE_CHARS_MAX = 32
EXCERPT_CHARS = 8192  # a turn of several text parts is joined only up to twice this; beyond, its head and its tail


class Part(msgspec.Struct):
    """A part of a turn, as OpenAI's chat writes it; bare strings stand for text as well."""

    type: str = ""
    text: str | None = None
    image_url: OptionalRaw = msgspec.UNSET
    input_audio: OptionalRaw = msgspec.UNSET


class Turn(msgspec.Struct):
    """One turn of OpenAI's chat."""

    role: str = ""
    content: str | list[Part | str] | None = None
    tool_calls: OptionalRaw = msgspec.UNSET
    function_call: OptionalRaw = msgspec.UNSET


_turns = msgspec.json.Decoder(list[Turn])


def read_turns(raw: msgspec.Raw) -> tuple[list[tuple[str, str]], int, int]:
    """Role and text of every turn, characters of all text, tokens of all media; one pass, no turn is copied.

    Raises:
        MalformedBody: it is no list of turns.
    """
    turns = decode_list(_turns, raw)
    if turns is None:
        return [], size_of(raw), 0
    role_texts: list[tuple[str, str]] = []
    chars = media_tokens = 0
    for turn in turns:
        content = turn.content
        if isinstance(content, list):
            text, text_chars, tokens = read_parts(content)
            media_tokens += tokens
        else:
            text = content or ""
            text_chars = len(text)
        role_texts.append((turn.role[:ROLE_CHARS_MAX], text))
        chars += text_chars + size_chars(turn.tool_calls) + size_chars(turn.function_call)
    return role_texts, chars, media_tokens


def read_parts(parts: list[Part | str]) -> tuple[str, int, int]:
    """Text of a turn made of parts, its true size in characters, tokens of its media."""
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
    text, chars = joined(texts)
    return text, chars, media_tokens


def joined(texts: list[str]) -> tuple[str, int]:
    """The texts of one turn as one (the caller's own string where there is one), and their true size in characters."""
    chars = sum(map(len, texts))
    if len(texts) <= 1:
        return (texts[0] if texts else ""), chars
    if chars <= 2 * EXCERPT_CHARS:
        return "\n".join(texts), chars
    return texts[0][:EXCERPT_CHARS] + "\n" + texts[-1][-EXCERPT_CHARS:], chars
