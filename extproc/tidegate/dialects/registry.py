"""Which API a request speaks, by its method and path.

A path matches with or without its query string, one trailing slash, and a prefix before `/v1` that a route may strip
(`/openai/v1/chat/completions`). Letter case and percent-encoding are not folded: engines do not fold them either.
"""

from tidegate.dialects.anthropic_messages import AnthropicMessages
from tidegate.dialects.base import Dialect
from tidegate.dialects.kserve_grpc import PATH, KServeGrpc
from tidegate.dialects.kserve_paths import by_model
from tidegate.dialects.openai_audio import OpenAISpeech, OpenAITranscription
from tidegate.dialects.openai_chat import OpenAIChat
from tidegate.dialects.openai_completions import OpenAICompletions
from tidegate.dialects.openai_embeddings import OpenAIEmbeddings
from tidegate.dialects.openai_responses import OpenAIResponses
from tidegate.dialects.rerank import Rerank, Score

_DIALECT_BY_SUFFIX: tuple[tuple[str, Dialect], ...] = (
    (PATH, KServeGrpc()),
    ("/v1/chat/completions", OpenAIChat()),
    ("/v1/completions", OpenAICompletions()),
    ("/v1/responses", OpenAIResponses()),
    ("/v1/messages", AnthropicMessages()),
    ("/v1/embeddings", OpenAIEmbeddings()),
    ("/rerank", Rerank()),
    ("/score", Score()),
    ("/v1/audio/transcriptions", OpenAITranscription()),
    ("/v1/audio/translations", OpenAITranscription()),
    ("/v1/audio/speech", OpenAISpeech()),
)

OPENS_EARLY = frozenset({OpenAIResponses.name})
"""APIs whose streams open with an event that says only that they have: their first byte is no first token."""

_FREE_SUFFIXES = (
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/v1/chat/completions/render",
    "/v1/messages/count_tokens",
    "/v1/responses/input_tokens",
    "/v1/models",
    "/health",
    "/v1/health",
    "/health_generate",
    "/ping",
    "/version",
    "/load",
    "/metrics",
    "/props",
    "/slots",
)
"""What engines offer beside inference: token counts, which take a tokenizer and no GPU, and their own state."""


def dialect_for(method: str, path: str) -> Dialect | None:
    """The API's dialect, or None: another method or path, whose cost is not known."""
    if method != "POST":
        return None
    plain = path.partition("?")[0].removesuffix("/")
    for suffix, dialect in _DIALECT_BY_SUFFIX:
        if plain.endswith(suffix):
            return dialect
    return by_model(plain)


def passes(path: str) -> bool:
    """Whether a request costs the engines nothing worth a booking, body or not: one of their own pages, a token count.

    Administration (adapters, caches, sleep) is not among these: it may stop an engine, and is booked like the unknown.
    """
    return path.partition("?")[0].removesuffix("/").endswith(_FREE_SUFFIXES)
