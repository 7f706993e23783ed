"""The refusals of every API by every rule (tests/data/refusals), and what a site may change about them."""

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from random import Random

import pytest

import tidegate.dialects
from tests.unit.wire.harness import Service
from tidegate.admission.decision import STATUS_BY_RULE, Reason, Reject, Rule
from tidegate.wire.answers import Answers
from tidegate.wire.events import Refuse

FOLDER = Path(__file__).parents[2] / "data" / "refusals"
APIS = {
    "openai_chat": ("/v1/chat/completions", "openai"),
    "openai_completions": ("/v1/completions", "openai"),
    "openai_responses": ("/v1/responses", "openai"),
    "openai_embeddings": ("/v1/embeddings", "openai"),
    "openai_audio": ("/v1/audio/transcriptions", "openai"),
    "openai_speech": ("/v1/audio/speech", "openai"),
    "rerank": ("/v1/rerank", "openai"),
    "score": ("/v1/score", "openai"),
    "anthropic_messages": ("/v1/messages", "anthropic"),
    "kserve_v2": ("/v2/models/resnet/infer", "kserve"),
    "triton_generate": ("/v2/models/llama/generate_stream", "kserve"),
    "kserve_grpc": ("/inference.GRPCInferenceService/ModelInfer", "grpc"),
    "unknown": ("/v1/images/generations", "openai"),
}
"""Path of each API, and the golden file whose words it has."""
CHAT, MESSAGES, INFER = (APIS[name][0] for name in ("openai_chat", "anthropic_messages", "kserve_v2"))
MODEL_INFER, UNKNOWN = APIS["kserve_grpc"][0], APIS["unknown"][0]
GRPC = "application/grpc"
USUAL: Mapping[str, str] = {}


def refuse(
    path: str,
    rule: Rule = Rule.QUEUE_FULL,
    policy: Mapping[str, str] = USUAL,
    *,
    content_type: str = "application/json",
) -> Refuse:
    """What a request to this path is told when this rule refuses it."""
    service = Service(**policy)
    opening = service.intake.open(
        {":method": "POST", ":path": path, "content-type": content_type},
        end_of_stream=False,
        attributes={},
        metadata=service.metadata,
        now_s=0.0,
    )
    assert service.errors == []
    retry_after_s = None if rule in (Rule.REQUEST_TOO_LARGE, Rule.SUPERSEDED) else 1.0
    verdict = Reject(id=opening.id, reason=Reason(rule), retry_after_s=retry_after_s)
    return Answers("replica", Random(1), service.seal).refused(opening, None, verdict)


def shown(reply: Refuse, rule: Rule) -> str:
    """One line of a golden file; gRPC has a status of its own and no content type of ours."""
    status = f"{reply.status}" if reply.grpc_status is None else f"grpc-status={reply.grpc_status}"
    return f"{rule} {status} {reply.headers.get('content-type', '-')} {reply.body.decode()}"


@pytest.mark.parametrize("name", APIS)
def test_each_api_is_refused_in_its_own_words(name: str) -> None:
    """Status, content type and body of a refusal by each rule are those of the golden file, streams and all."""
    path, golden = APIS[name]
    content_type = GRPC if golden == "grpc" else "application/json"
    lines = [shown(refuse(path, rule, content_type=content_type), rule) for rule in STATUS_BY_RULE]
    assert lines == (FOLDER / f"{golden}.txt").read_text().splitlines()


def test_there_are_golden_refusals_of_every_api() -> None:
    """No dialect is without a file, and no file without a dialect."""
    modules = [import_module(f"tidegate.dialects.{each.name}") for each in iter_modules(tidegate.dialects.__path__)]
    classes = [each for module in modules for each in vars(module).values() if hasattr(each, "error_body")]
    names = {name for each in classes if isinstance(name := getattr(each, "name", None), str)}
    assert names | {"unknown"} == set(APIS)
    assert {golden for _, golden in APIS.values()} == {path.stem for path in FOLDER.glob("*.txt")}


@pytest.mark.parametrize("content_type", ["application/grpc", "application/grpc+proto"])
@pytest.mark.parametrize("path", [MODEL_INFER, "/some.Service/Method"])
def test_grpc_gets_a_status_and_its_message_whatever_the_policy_says(path: str, content_type: str) -> None:
    """Neither the map nor the format is for gRPC clients: their status goes by the rule, their message is plain."""
    policy = {"status_map": "queue_full=503", "error_format": "openai"}
    for reply in (
        refuse(path, content_type=content_type),
        refuse(path, policy=policy, content_type=content_type),
    ):
        assert reply.grpc_status == 8
        assert reply.body.startswith(b"The model is busy")
        assert "content-type" not in reply.headers


def test_a_site_s_own_status_takes_the_place_of_the_usual_one() -> None:
    """Only of the rules it names; the metadata, the details, the reason and the delay stay those of the rule."""
    policy = {"status_map": "queue_full=503,expired=408"}
    for rule, status in ((Rule.QUEUE_FULL, 503), (Rule.EXPIRED, 408), (Rule.WAIT_TOO_LONG, 429)):
        mapped, usual = refuse(CHAT, rule, policy), refuse(CHAT, rule)
        assert mapped.status == status
        assert mapped.headers == usual.headers
        assert mapped.details == usual.details == f"tidegate_{rule}"
        assert mapped.metadata == usual.metadata


@pytest.mark.parametrize(
    ("rule", "retries"), [(Rule.QUEUE_FULL, True), (Rule.REQUEST_TOO_LARGE, False), (Rule.SUPERSEDED, False)]
)
def test_the_delay_goes_by_the_rule(rule: Rule, retries: bool) -> None:
    """A status of the site's own neither takes a delay away nor adds one where no retry can help."""
    headers = refuse(CHAT, rule, {"status_map": f"{rule}=503"}).headers
    assert ("retry-after" in headers, "retry-after-ms" in headers) == (retries, retries)
    assert headers.get("x-should-retry") == (None if retries else "false")


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        (CHAT, 408, "server_error"),
        (CHAT, 529, "server_error"),
        (CHAT, 429, "rate_limit_error"),
        (CHAT, 400, "invalid_request_error"),
        (MESSAGES, 408, "timeout_error"),
        (MESSAGES, 529, "overloaded_error"),
        (MESSAGES, 500, "api_error"),
    ],
)
def test_the_type_in_the_body_goes_with_the_status_that_is_sent(path: str, status: int, kind: str) -> None:
    """A client that reads both is not told two things."""
    reply = refuse(path, policy={"status_map": f"queue_full={status}"})
    assert (reply.status, json.loads(reply.body)["error"]["type"]) == (status, kind)


@pytest.mark.parametrize("path", [CHAT, MESSAGES, INFER, UNKNOWN, MODEL_INFER])
@pytest.mark.parametrize(
    ("form", "like"), [("openai", CHAT), ("anthropic", MESSAGES), ("kserve", INFER), ("openai", UNKNOWN)]
)
def test_one_format_for_all(path: str, form: str, like: str) -> None:
    """Whatever was asked, the body is the one that the named API has; so is that of a mapped status."""
    for policy in (USUAL, {"status_map": "queue_full=529"}):
        reply, own = refuse(path, policy={"error_format": form, **policy}), refuse(like, policy=policy)
        assert (reply.status, reply.body) == (own.status, own.body)
        assert reply.headers["content-type"] == "application/json"


@pytest.mark.parametrize("path", [CHAT, MESSAGES, INFER, UNKNOWN])
def test_plain_is_text(path: str) -> None:
    """The message alone, on a line of its own, and said to be text."""
    reply = refuse(path, policy={"error_format": "plain"})
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert reply.body == b"The model is busy and its queue is full. Please retry after the time given.\n"


def test_api_is_the_default() -> None:
    """Saying so changes nothing."""
    assert refuse(MESSAGES, policy={"error_format": "api"}).body == refuse(MESSAGES).body
