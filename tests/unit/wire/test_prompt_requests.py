"""Requests that end with their prompt, and those that cost nothing: how they are booked, answered and learned from."""

import json

import pytest

from tests.unit.wire.harness import BODY, CHAT, Service, decision
from tidegate.admission.outcome import Outcome
from tidegate.tally import Count
from tidegate.wire.events import BodyMode, Continue, Event, Refuse, RequestBody, RequestHeaders

EMBEDDINGS = RequestHeaders({":method": "POST", ":path": "/v1/embeddings"})
WORDS = "the quick brown fox jumps over the lazy dog " * 20


def inputs(count: int, text: str = WORDS, model: str = "tiny") -> RequestBody:
    return RequestBody(json.dumps({"model": model, "input": [text] * count}).encode())


async def verdict(service: Service, headers: RequestHeaders, body: RequestBody) -> dict[str, object]:
    """The metadata of the verdict on a request that is over at once."""
    stream, task = service.stream(headers, body)
    await stream.heard()
    reply = await stream.heard()
    stream.end()
    await task
    assert isinstance(reply, Continue)
    return dict(reply.metadata or {})


def settled(metadata: dict[str, object], **facts: object) -> Outcome:
    """A complete answer that tells its prompt alone, as embeddings do."""
    known = {name: metadata[name] for name in ("model", "decision", "ticket", "api")}
    return Outcome(**(known | {"pool": "default", "status": 200, "e2e_s": 0.02} | facts))  # type: ignore[arg-type]


async def embed(service: Service, count: int, *, prompt_tokens: int, completion_tokens: int | None = None) -> None:
    """So many requests of one input, whose engine tells these tokens."""
    for _ in range(count):
        stream, task = service.stream(EMBEDDINGS, inputs(1))
        opened, reply = await stream.heard(), await stream.heard()
        assert isinstance(opened, Continue)
        assert isinstance(reply, Continue)
        metadata: dict[str, object] = {**(opened.metadata or {}), **(reply.metadata or {})}
        facts = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        service.settlement.take([settled(metadata, id=metadata["id"], replica="replica", **facts)])
        stream.end()
        await task


@pytest.mark.parametrize("estimator", ["window", "ngram"])
async def test_no_completion_is_predicted(estimator: str) -> None:
    """Embeddings are admitted on their prompt: no tokens to come, nothing to score, one token booked beside it."""
    metadata = await verdict(Service(estimator=estimator), EMBEDDINGS, inputs(1))
    assert (metadata["decision"], metadata["api"], metadata["stream"]) == ("admit", "openai_embeddings", False)
    assert (metadata["predicted_tokens"], metadata["predicted_p90_tokens"]) == (0, 0)
    assert 150 < float(str(metadata["reserved_tokens"])) < 250


@pytest.mark.parametrize("estimator", ["window", "ngram"])
@pytest.mark.parametrize("completion_tokens", [None, 0, 1])
async def test_prompts_are_learned_and_completions_are_not(estimator: str, completion_tokens: int | None) -> None:
    """After some answers the prompt is known as the engine counts it; a chat's prediction is what it was before."""
    service = Service(estimator=estimator)
    chat = await verdict(service, CHAT, BODY)
    await embed(service, 60, prompt_tokens=400, completion_tokens=completion_tokens)
    assert 380 < float(str((await verdict(service, EMBEDDINGS, inputs(1)))["reserved_tokens"])) < 420
    after = await verdict(service, CHAT, BODY)
    for name in ("predicted_tokens", "predicted_p90_tokens", "log_mean", "log_sigma"):
        assert after[name] == chat[name], name
    calibration = service.pool.controller.dump_pace()["calibration"]
    assert isinstance(calibration, dict)
    assert calibration["answers"] == 0.0
    assert service.tally.series(Count.SCORED_ANSWERS) == {}
    assert service.tally.series(Count.UNLEARNED) == {}
    assert service.tally.get(Count.USAGE, "default", "reported") == 60


async def test_a_batch_is_never_too_large() -> None:
    """2,048 inputs on an engine of four slots and a small cache are admitted, at no more than the whole engine."""
    service = Service(slots_max="4", kv_tokens_max="5000")
    metadata = await verdict(service, EMBEDDINGS, inputs(2048))
    assert metadata["decision"] == "admit"
    assert 4000 < float(str(metadata["reserved_tokens"])) <= 5000


async def test_a_refusal_of_embeddings_is_openais() -> None:
    """With the engine full and no queue, the answer is the API's own error."""
    service = Service(slots_max="1", queue_len_max="0")
    await service.admitted()
    stream, _ = service.stream(EMBEDDINGS, inputs(1))
    reply = await stream.heard()
    assert isinstance(reply, Refuse)
    assert json.loads(reply.body)["error"]["code"] == "queue_full"


@pytest.mark.parametrize(
    "path", ["/tokenize", "/detokenize", "/v1/messages/count_tokens?beta=true", "/v1/responses/input_tokens", "/health"]
)
async def test_what_costs_no_gpu_passes_unbooked(path: str) -> None:
    """Even into a pool that is full: it takes no slot, its body is not read, and the reason says why."""
    service = Service(slots_max="1", queue_len_max="0")
    await service.admitted()
    event: Event = RequestHeaders({":method": "POST", ":path": path})
    stream, _ = service.stream(event)
    reply = await stream.heard()
    assert isinstance(reply, Continue)
    assert (decision(reply), reply.body_mode) == ("pass", BodyMode.LET_GO)
    assert (reply.metadata or {})["reason"] == "free"
    assert service.tally.get(Count.DECISIONS, "default", "pass", "free") == 1
    assert service.in_flight() == 1
