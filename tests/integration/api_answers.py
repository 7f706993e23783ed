"""What engines answer on each API: captures of real ones, and their documented shapes where none could be captured."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from tests.integration.puppet_engine import Call

CAPTURES = Path(__file__).parents[1] / "data" / "engines"
EMBEDDINGS = {
    "object": "list",
    "model": "tiny",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}],
    "usage": {"prompt_tokens": 6, "total_tokens": 6},
}
RERANK = {"id": "r", "model": "tiny", "usage": {"total_tokens": 21}, "results": [{"index": 0, "relevance_score": 0.9}]}
SCORE = {"object": "list", "data": [{"index": 0, "score": 0.9}], "usage": {"prompt_tokens": 9, "total_tokens": 9}}
TRANSCRIPTION = {"text": "Hello", "usage": {"type": "tokens", "input_tokens": 14, "output_tokens": 2}}
COHERE = {"results": [], "meta": {"tokens": {"input_tokens": 17}}}
TURNS: Any = [{"role": "user", "content": "Hello"}]


def events(*fields: dict[str, Any]) -> bytes:
    """Server-sent events as bytes."""
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in fields)


def play(content: bytes | str | dict[str, Any]) -> Callable[[Call], None]:
    """A script that answers with a capture, an object or these very bytes; streamed where they are events."""
    if isinstance(content, str):
        content = (CAPTURES / content).read_bytes()
    body = json.dumps(content).encode() if isinstance(content, dict) else content

    def script(call: Call) -> None:
        if not body.startswith((b"data:", b"event:")):
            call.answer(body)
            return
        call.send(body)
        call.close()

    return script


def form(**fields: str) -> aiohttp.FormData:
    """A form with a second of audio in it."""
    data = aiohttp.FormData(fields)
    data.add_field("file", b"\x00" * 32_000, filename="a.wav", content_type="audio/wav")
    return data
