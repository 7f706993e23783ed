"""Usage that is asked for, usage that is inferred, and dollars: from the verdict to the books."""

import json

import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse

from tests.unit.wire.harness import BODY, CHAT, Service
from tests.unit.wire.test_settlement import decided, outcome, unlearned
from tidegate.admission.dollars import Price
from tidegate.admission.outcome import Charge, Ending
from tidegate.receipt import receipt
from tidegate.tally import Count
from tidegate.wire.codec import encode
from tidegate.wire.events import BodyMode, Continue, Phase, RequestBody, RequestHeaders

TOKEN_PRICES = {"price_prompt_usd": "0.001", "price_completion_usd": "0.002"}


async def answer(service: Service, body: bytes = BODY.body) -> Continue:
    """The verdict on an admitted body."""
    stream, task = service.stream(CHAT, RequestBody(body))
    await stream.heard()
    reply = await stream.heard()
    stream.end()
    await task
    assert isinstance(reply, Continue)
    return reply


async def settle_streams(service: Service, count: int, **facts: object) -> None:
    for _ in range(count):
        service.settlement.take([outcome(await decided(service), **facts)])


def usage(service: Service, source: str) -> float:
    return service.tally.get(Count.USAGE, "default", source)


def spent(service: Service) -> float:
    return service.tally.get(Count.COST_USD, "default", "", "tiny")


async def test_a_stream_is_asked_for_its_usage() -> None:
    """The body goes on with the member in front; the caller's own word, and a policy that is off, leave it alone."""
    reply = await answer(Service(ask_usage="on"))
    assert reply.body is not None
    assert json.loads(reply.body) == json.loads(BODY.body) | {"stream_options": {"include_usage": True}}
    own = BODY.body.replace(b"{", b'{"stream_options":null,', 1)
    whole = BODY.body.replace(b"true", b"false")
    for service, body in (
        (Service(), BODY.body), (Service(ask_usage="on"), own), (Service(ask_usage="on"), whole),
        (Service(ask_usage="on"), b"[1]"),
    ):  # fmt: skip
        assert (await answer(service, body)).body is None


def test_a_new_body_comes_with_its_length() -> None:
    """Envoy fails a request whose content-length is not that of the new body; an untouched body carries no mutation."""
    sent = ProcessingResponse.FromString(encode(Continue(Phase.REQUEST_BODY, None, BodyMode.AS_CONFIGURED, b"{12345}")))
    common = sent.request_body.response
    assert common.body_mutation.body == b"{12345}"
    (option,) = common.header_mutation.set_headers
    assert (option.header.key, option.header.raw_value) == ("content-length", b"7")
    plain = ProcessingResponse.FromString(encode(Continue(Phase.REQUEST_BODY, {"a": 1})))
    assert not plain.request_body.HasField("response")


async def test_missing_usage_is_inferred_once_enough_is_known() -> None:
    """After eight reports bytes tell the tokens; every second such length teaches, and both sources are counted."""
    service = Service()
    nothing_yet = outcome(await decided(service), completion_tokens=None, response_bytes=4240)
    service.settlement.take([nothing_yet])
    assert unlearned(service, "no_usage") == 1
    await settle_streams(service, 8, completion_tokens=50, response_bytes=10_530)
    await settle_streams(service, 4, completion_tokens=None, prompt_tokens=None, response_bytes=4240)
    assert (usage(service, "reported"), usage(service, "inferred")) == (8, 4)
    assert (unlearned(service, "no_usage"), unlearned(service, "inferred")) == (1, 2)
    assert service.tally.get(Count.COMPLETION_TOKENS, "default") == 400


@pytest.mark.parametrize(
    "facts",
    [
        {"ending": Ending.CLIENT_CANCELLED},
        {"status": 206},
        {"response_bytes": 0},
        {"api": "openai_completions"},
        {"model": "other"},
        {"stream": False},
        {"ticket": "Zm9yZ2Vk"},
    ],
)
async def test_what_is_not_a_whole_known_answer_is_not_inferred(facts: dict[str, object]) -> None:
    """A client that left, another status, no bytes, another kind of answer and a forged ticket infer nothing."""
    service = Service()
    await settle_streams(service, 8, completion_tokens=50, response_bytes=10_530)
    await settle_streams(service, 1, **({"completion_tokens": None, "response_bytes": 4240} | facts))
    assert usage(service, "inferred") == 0


async def test_tokens_cost_what_they_are_priced_at() -> None:
    """Predicted at the verdict, charged when the truth is known: 8 and 10 tokens at 1 and 2 dollars a million."""
    service = Service(**TOKEN_PRICES)
    metadata = await decided(service)
    predicted = metadata["predicted_cost_nanousd"]
    assert predicted == pytest.approx(
        1000 * int(str(metadata["predicted_prompt_tokens"])) + 2000 * int(str(metadata["predicted_tokens"])), abs=1001
    )
    assert isinstance(predicted, int)
    prices = Price(prompt_nanousd=1_000_000, completion_nanousd=2_000_000)
    charge = Charge(price=prices, predicted_nanousd=predicted, predicted_prompt_tokens=5)
    entry = outcome(metadata, charge=charge)
    service.settlement.take([entry, entry])
    assert spent(service) == pytest.approx(28_000e-9)
    line = receipt(entry, first=True, cost_nanousd=28_000)
    assert (line["cost_usd"], line["predicted_cost_usd"]) == (0.000028, predicted / 1e9)
    # neither tokens nor bytes: nobody knows, and nothing is charged; embeddings have a prompt alone
    await settle_streams(service, 1, charge=charge, completion_tokens=None, prompt_tokens=None)
    assert spent(service) == pytest.approx(28_000e-9)
    await settle_streams(service, 1, charge=charge, completion_tokens=None, ending=Ending.ENGINE_FAILED, ticket="")
    assert spent(service) == pytest.approx(36_000e-9)


async def test_inferred_tokens_cost_too() -> None:
    """With the prompt that was predicted, where the engine says nothing at all."""
    service = Service(**TOKEN_PRICES)
    await settle_streams(service, 8, completion_tokens=50, response_bytes=10_530)
    charge = Charge(price=Price(prompt_nanousd=1_000_000, completion_nanousd=2_000_000), predicted_prompt_tokens=5)
    await settle_streams(service, 1, completion_tokens=None, prompt_tokens=None, response_bytes=4240, charge=charge)
    assert spent(service) == pytest.approx((5 * 1000 + 20 * 2000) * 1e-9)


async def test_an_engine_paid_by_the_hour_is_charged_by_its_scarcest_resource() -> None:
    """The cost is bottleneck seconds, predicted with the prediction and settled with the truth."""
    service = Service(price_engine_hour_usd="3.6", slots_max="1")
    metadata = await decided(service)
    assert isinstance(metadata["predicted_cost_nanousd"], int)
    assert metadata["predicted_cost_nanousd"] > 0
    assert (metadata["price_engine_hour_nanousd"], metadata["sequences"]) == (3_600_000_000, 1)
    charge = Charge(price=Price(engine_hour_nanousd=3_600_000_000))
    service.settlement.take([outcome(metadata, charge=charge, completion_tokens=100)])
    tau_s = service.pool.controller.snapshot(service.clock.now_s()).tau_s
    assert spent(service) == pytest.approx(100 * tau_s * 0.001)  # one slot, a tenth of a cent a second


async def test_without_a_price_nothing_is_said_of_money() -> None:
    """No key of cost travels, and nothing is counted."""
    service = Service()
    metadata = await decided(service)
    assert not [name for name in metadata if "usd" in name or name in ("sequences", "predicted_prompt_tokens")]
    service.settlement.take([outcome(metadata)])
    assert service.tally.series(Count.COST_USD) == {}


async def test_a_request_of_an_unknown_api_is_priced_at_its_default() -> None:
    """It is booked at a default cost, and that is what it is expected to cost."""
    service = Service(**TOKEN_PRICES)
    stream, task = service.stream(RequestHeaders({":method": "POST", ":path": "/v1/images/generations"}))
    reply = await stream.heard()
    assert isinstance(reply, Continue)
    assert reply.metadata is not None
    assert float(reply.metadata["predicted_cost_nanousd"]) > 256 * 1000
    stream.end()
    await task
