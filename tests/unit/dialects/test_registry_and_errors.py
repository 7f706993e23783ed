"""Which API a path speaks, and how a refusal reads in it."""

import json

import pytest

from tidegate.dialects import Dialect, dialect_for, passes
from tidegate.dialects.anthropic_messages import AnthropicMessages
from tidegate.dialects.openai_audio import OpenAISpeech, OpenAITranscription
from tidegate.dialects.openai_chat import OpenAIChat
from tidegate.dialects.openai_completions import OpenAICompletions
from tidegate.dialects.openai_embeddings import OpenAIEmbeddings
from tidegate.dialects.openai_responses import OpenAIResponses
from tidegate.dialects.rerank import Rerank, Score

OF_OPENAI: list[Dialect] = [
    OpenAIChat(),
    OpenAICompletions(),
    OpenAIResponses(),
    OpenAIEmbeddings(),
    OpenAITranscription(),
    OpenAISpeech(),
    Rerank(),
    Score(),
]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/chat/completions", "openai_chat"),
        ("/v1/chat/completions/", "openai_chat"),
        ("/v1/chat/completions?api-version=2024-10-21", "openai_chat"),
        ("/openai/v1/chat/completions", "openai_chat"),
        ("/v1/completions", "openai_completions"),
        ("/v2/models/resnet/infer", "kserve_v2"),
        ("/triton/v2/models/resnet/versions/3/infer?x=1", "kserve_v2"),
        ("/v2/models/llama/generate", "triton_generate"),
        ("/v2/models/llama/versions/1/generate_stream", "triton_generate"),
        ("/inference.GRPCInferenceService/ModelInfer", "kserve_grpc"),
        ("/pool-a/v1/completions/?x=/v1/chat/completions", "openai_completions"),
        ("/v1/responses", "openai_responses"),
        ("/v1/messages?beta=true", "anthropic_messages"),
        ("/v1/embeddings", "openai_embeddings"),
        ("/v1/rerank", "rerank"),
        ("/v2/rerank", "rerank"),
        ("/rerank", "rerank"),
        ("/score/", "score"),
        ("/v1/score", "score"),
        ("/v1/audio/transcriptions", "openai_audio"),
        ("/v1/audio/translations", "openai_audio"),
        ("/v1/audio/speech", "openai_speech"),
    ],
)
def test_a_path_names_its_dialect(path: str, name: str) -> None:
    """Query, one trailing slash and a prefix do not matter."""
    dialect = dialect_for("POST", path)
    assert dialect is not None
    assert dialect.name == name


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models"),
        ("GET", "/v1/chat/completions"),
        ("OPTIONS", "/v1/chat/completions"),
        ("post", "/v1/chat/completions"),
        ("POST", "/v1/embeddings/x"),
        ("GET", "/v1/responses/resp_1"),
        ("POST", "/v1/responses/resp_1/cancel"),
        ("POST", "/v1/messages/count_tokens"),
        ("POST", "/v1/threads/thread_1/messages"),
        ("POST", "/v1/audio/isolation"),
        ("POST", "/v1/chat/completions//"),
        ("POST", "/v1/chat/completions/x"),
        ("POST", "/myv1/completions-old"),
        ("POST", "/v1/models?next=/v1/completions"),
        ("POST", "/v2/models/m"),
        ("POST", "/v2/models//infer"),
        ("POST", "/v2/models/m/infer/x"),
        ("GET", "/v2/models/m/infer"),
        ("GET", "/v2/health/ready"),
        ("POST", "/v2/repository/index"),
        ("POST", "/inference.GRPCInferenceService/ModelStreamInfer"),
        ("POST", "/inference.GRPCInferenceService/ModelReady"),
        ("POST", "*"),
        ("", ""),
    ],
)
def test_an_unknown_api_has_no_dialect(method: str, path: str) -> None:
    """What we cannot read is not guessed."""
    assert dialect_for(method, path) is None


@pytest.mark.parametrize("dialect", OF_OPENAI, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (429, "rate_limit_error"),
        (503, "server_error"),
        (529, "server_error"),
        (408, "server_error"),
        (413, "invalid_request_error"),
        (400, "invalid_request_error"),
    ],
)
def test_an_error_body_is_openais(dialect: Dialect, status: int, kind: str) -> None:
    """The keys are those that OpenAI's clients read, and the JSON is compact."""
    body = dialect.error_body(status=status, code="queue_full", message="full: é \ud800")
    assert json.loads(body) == {
        "error": {"message": "full: é ?", "type": kind, "param": None, "code": "queue_full"},
    }
    assert b": " not in body.replace(b"full: ", b"")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (429, "rate_limit_error"),
        (503, "overloaded_error"),
        (529, "overloaded_error"),
        (408, "timeout_error"),
        (504, "timeout_error"),
        (500, "api_error"),
        (413, "request_too_large"),
        (400, "invalid_request_error"),
        (409, "invalid_request_error"),
    ],
)
def test_an_error_body_of_messages_is_anthropics(status: int, kind: str) -> None:
    """Their own types, by which their clients choose what to raise."""
    body = AnthropicMessages().error_body(status=status, code="queue_full", message="full: \ud800")
    assert json.loads(body) == {"type": "error", "error": {"type": kind, "message": "full: ?"}}


@pytest.mark.parametrize(
    ("path", "free"),
    [
        ("/tokenize", True),
        ("/detokenize/", True),
        ("/v1/messages/count_tokens?beta=true", True),
        ("/v1/responses/input_tokens", True),
        ("/pool-a/v1/models", True),
        ("/health", True),
        ("/metrics", True),
        ("/apply-template", True),
        ("/v1/chat/completions", False),
        ("/v1/completions?next=/tokenize", False),
        ("/tokenize/x", False),
        ("/v1/load_lora_adapter", False),
        ("/sleep", False),
        ("/v1/files", False),
        ("", False),
    ],
)
def test_token_counts_and_state_pages_are_free(path: str, free: bool) -> None:
    """They cost no GPU time; whatever administers an engine, or is unknown, is booked."""
    assert passes(path) is free
