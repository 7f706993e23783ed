"""Which API a path speaks, and how a refusal reads in it."""

import json

import pytest

from tidegate.dialects import dialect_for
from tidegate.dialects.openai_chat import OpenAIChat


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/chat/completions", "openai_chat"),
        ("/v1/chat/completions/", "openai_chat"),
        ("/v1/chat/completions?api-version=2024-10-21", "openai_chat"),
        ("/openai/v1/chat/completions", "openai_chat"),
        ("/v1/completions", "openai_completions"),
        ("/pool-a/v1/completions/?x=/v1/chat/completions", "openai_completions"),
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
        ("POST", "/v1/embeddings"),
        ("POST", "/v1/chat/completions//"),
        ("POST", "/v1/chat/completions/x"),
        ("POST", "/myv1/completions-old"),
        ("POST", "/v1/models?next=/v1/completions"),
        ("POST", "/v2/models/m/infer"),
        ("POST", "*"),
        ("", ""),
    ],
)
def test_an_unknown_api_has_no_dialect(method: str, path: str) -> None:
    """What we cannot read is not guessed."""
    assert dialect_for(method, path) is None


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, "rate_limit_error"), (503, "server_error"), (413, "invalid_request_error"), (400, "invalid_request_error")],
)
def test_an_error_body_is_openais(status: int, kind: str) -> None:
    """The keys are those that OpenAI's clients read, and the JSON is compact."""
    body = OpenAIChat().error_body(status=status, code="queue_full", message="full: é \ud800")
    assert json.loads(body) == {
        "error": {"message": "full: é ?", "type": kind, "param": None, "code": "queue_full"},
    }
    assert b": " not in body.replace(b"full: ", b"")
