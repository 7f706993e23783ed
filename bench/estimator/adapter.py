"""Gives the n-gram estimator the shape that a scorer of completion-length predictors calls: dicts in, figures out.

A request is an OpenAI chat body as a dict, with "tenant" beside it. Bodies of plain text are read as they are; any
other goes through the dialect's own reader, as it does in the service.
"""

import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(_ROOT / "estimator"),
    str(_ROOT / "extproc"),
]  # it is loaded by path, also where nothing is installed

from tidegate_estimator import CompletionRequest, CostEstimate, Message, NgramEstimator  # noqa: E402

_PLAIN = frozenset(("tenant", "model", "messages", "max_tokens", "temperature", "tools"))


class Adapter:
    """One estimator that starts without anything learned."""

    def __init__(self) -> None:
        self.estimator = NgramEstimator()

    def predict(self, request: dict[str, Any]) -> CostEstimate:
        """p50, p90, mean and ticket of one request."""
        return self.estimator.estimate(facts_of(request))

    def observe(self, ticket: bytes, completion_tokens: int, finish_reason: str) -> None:
        """Take in one answer."""
        self.estimator.learn(ticket, completion_tokens, finish_reason)

    def save(self, path: str) -> None:
        """Write what was learned."""
        Path(path).write_bytes(self.estimator.dump())

    @staticmethod
    def load(path: str) -> "Adapter":
        """Read what `save` wrote; ValueError where it is damaged."""
        adapter = Adapter()
        adapter.estimator.load(Path(path).read_bytes())
        return adapter


def facts_of(request: dict[str, Any]) -> CompletionRequest:
    """The facts of a body given as a dict."""
    messages = request.get("messages", [])
    if not _PLAIN.issuperset(request) or not all(_is_plain(m) for m in messages):
        return _through_the_dialect(request)
    turns = tuple([Message(role=m["role"], text=m["content"]) for m in messages])
    tools = request.get("tools") or ()
    return CompletionRequest(
        tenant=request.get("tenant", ""),
        model=request.get("model", ""),
        messages=turns,
        prompt_chars=sum([len(turn.text) for turn in turns]) + (len(str(tools)) if tools else 0),
        max_tokens=request.get("max_tokens"),
        temperature=request.get("temperature"),
        tools=len(tools),
    )


def _is_plain(message: dict[str, Any]) -> bool:
    return len(message) == 2 and isinstance(message.get("content"), str) and isinstance(message.get("role"), str)


def _through_the_dialect(request: dict[str, Any]) -> CompletionRequest:
    import msgspec  # noqa: PLC0415

    from tidegate.dialects.openai_chat import OpenAIChat  # noqa: PLC0415

    body = {name: value for name, value in request.items() if name != "tenant"}
    return OpenAIChat().parse_request(msgspec.json.encode(body), tenant=request.get("tenant", "")).completion
