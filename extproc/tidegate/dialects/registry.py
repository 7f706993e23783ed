"""Which API a request speaks, by its method and path.

A path matches with or without its query string, one trailing slash, and a prefix before `/v1` that a route may strip
(`/openai/v1/chat/completions`). Letter case and percent-encoding are not folded: engines do not fold them either.
"""

from tidegate.dialects.base import Dialect
from tidegate.dialects.openai_chat import OpenAIChat
from tidegate.dialects.openai_completions import OpenAICompletions

_DIALECT_BY_SUFFIX: tuple[tuple[str, Dialect], ...] = (
    ("/v1/chat/completions", OpenAIChat()),
    ("/v1/completions", OpenAICompletions()),
)


def dialect_for(method: str, path: str) -> Dialect | None:
    """The API's dialect, or None: another method or path, whose cost is not known."""
    if method != "POST":
        return None
    plain = path.partition("?")[0].removesuffix("/")
    for suffix, dialect in _DIALECT_BY_SUFFIX:
        if plain.endswith(suffix):
            return dialect
    return None
