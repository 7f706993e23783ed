"""POST /v1/rerank, /v2/rerank, /rerank (Jina, Cohere, vLLM) and /v1/score, /score (vLLM): one text beside many.

Each pair is a sequence of its own, and the engine reads the query anew with each document: a cross-encoder shares
nothing between pairs. A document may be text, an object with a `text`, or vLLM's parts, where an image counts by rule.
A side of more items than anybody ranks counts by its size alone.
"""

from typing import NamedTuple, TypeAlias

import msgspec

from tidegate.dialects import openai_body
from tidegate.dialects.base import InferenceRequest
from tidegate.dialects.crowd import decode_list, size_of
from tidegate.dialects.lax import OptionalRaw, is_given, read_text
from tidegate.dialects.media import image_tokens
from tidegate.dialects.prompt_only import prompt_only
from tidegate.dialects.prompts import PROMPTS_MAX
from tidegate.dialects.turns import Part, read_parts
from tidegate.errors import MalformedBody


class _Document(msgspec.Struct):
    text: str | None = None
    content: list[Part | str] | None = None
    image: OptionalRaw = msgspec.UNSET


class _RerankBody(msgspec.Struct, kw_only=True):
    model: OptionalRaw = msgspec.UNSET
    query: msgspec.Raw
    documents: msgspec.Raw


class _ScoreBody(msgspec.Struct, kw_only=True):
    model: OptionalRaw = msgspec.UNSET
    text_1: OptionalRaw = msgspec.UNSET
    text_2: OptionalRaw = msgspec.UNSET
    data_1: OptionalRaw = msgspec.UNSET
    data_2: OptionalRaw = msgspec.UNSET
    queries: OptionalRaw = msgspec.UNSET
    documents: OptionalRaw = msgspec.UNSET


_Side: TypeAlias = str | _Document | list[str | _Document]

_rerank_body = msgspec.json.Decoder(_RerankBody)
_score_body = msgspec.json.Decoder(_ScoreBody)
_side = msgspec.json.Decoder(_Side)


class _Item(NamedTuple):
    """Of one text or of a side that is too long: what is looked at, characters in all, tokens of its media."""

    text: str
    chars: int
    media_tokens: int = 0
    times: int = 1


class Rerank:
    """A query and documents to put in order."""

    name = "rerank"

    def parse_request(self, body: bytes, *, tenant: str) -> InferenceRequest:
        """The facts of a rerank body; MalformedBody where it has no query or no documents."""
        fields = openai_body.decode(_rerank_body, body)
        return _pairs(tenant, fields.model, fields.query, fields.documents)

    def error_body(self, *, status: int, code: str, message: str) -> bytes:
        """OpenAI's error object, as vLLM answers here."""
        return openai_body.error_body(status=status, code=code, message=message)


class Score:
    """Texts to compare: one with one, one with many, or each with its own."""

    name = "score"

    def parse_request(self, body: bytes, *, tenant: str) -> InferenceRequest:
        """The facts of a score body, under any of the names that vLLM has for its two sides.

        Raises:
            MalformedBody: a side is missing.
        """
        fields = openai_body.decode(_score_body, body)
        for one, other in (
            (fields.text_1, fields.text_2),
            (fields.data_1, fields.data_2),
            (fields.queries, fields.documents),
        ):
            if isinstance(one, msgspec.Raw) and isinstance(other, msgspec.Raw):
                return _pairs(tenant, fields.model, one, other)
        raise MalformedBody("text_1, text_2: missing")

    def error_body(self, *, status: int, code: str, message: str) -> bytes:
        """OpenAI's error object."""
        return openai_body.error_body(status=status, code=code, message=message)


def _pairs(tenant: str, model: OptionalRaw, one: msgspec.Raw, other: msgspec.Raw) -> InferenceRequest:
    """The facts of so many pairs as the longer side has items; a side of one item is read again for each."""
    sides = [_items(one), _items(other)]
    counts = [sum(item.times for item in side) for side in sides]
    pairs = max(counts)
    chars = media_tokens = 0
    for side, count in zip(sides, counts, strict=True):
        again = pairs if count == 1 else 1
        chars += again * sum(item.chars for item in side)
        media_tokens += again * sum(item.media_tokens for item in side)
    return prompt_only(
        tenant=tenant,
        model=read_text(model, chars_max=openai_body.MODEL_CHARS_MAX),
        role_texts=[("user", item.text) for side in sides for item in side],
        chars=chars,
        sequences=pairs,
        media_tokens=media_tokens,
    )


def _items(raw: msgspec.Raw) -> list[_Item]:
    side = decode_list(_side, raw)
    if side is None:
        return [_Item("", size_of(raw), times=PROMPTS_MAX)]
    return [_item(item) for item in (side if isinstance(side, list) else [side])]


def _item(item: str | _Document) -> _Item:
    if isinstance(item, str):
        return _Item(item, len(item))
    if item.content is not None:
        return _Item(*read_parts(item.content))
    text = item.text or ""
    return _Item(text, len(text), image_tokens(item.image) if is_given(item.image) else 0)
