"""Models without tokens from the first header to what is learned, and refusals that gRPC clients understand."""

import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse

from tests.building import Site
from tests.kserve_messages import frame, infer_request
from tests.unit.wire.harness import Service
from tests.unit.wire.test_access_log import entry, read
from tidegate.admission.decision import STATUS_BY_RULE
from tidegate.admission.dollars import Price
from tidegate.admission.outcome import Charge, Ending, Outcome
from tidegate.tally import Count
from tidegate.wire.answers import _GRPC_STATUS
from tidegate.wire.codec import encode
from tidegate.wire.events import Continue, Refuse, RequestBody, RequestHeaders
from tidegate_estimator.service_ticket import open_service_ticket

HTTP = RequestHeaders({":method": "POST", ":path": "/v2/models/resnet/infer", "content-type": "application/json"})
BODY = RequestBody(b'{"inputs":[{"datatype":"FP32","shape":[1,3,64,64],"data":[1]}]}')
GRPC = RequestHeaders(
    {":method": "POST", ":path": "/inference.GRPCInferenceService/ModelInfer", "content-type": "application/grpc+proto"}
)
GRPC_BODY = RequestBody(frame(infer_request(shape=(1, 3, 64, 64))))


async def decided(
    service: Service, headers: RequestHeaders = HTTP, body: RequestBody = BODY
) -> dict[str, str | float | bool]:
    """One admitted request; the metadata of its verdict."""
    stream, task = service.stream(headers, body)
    opened, admitted = await stream.heard(), await stream.heard()
    stream.end()
    await task
    assert isinstance(opened, Continue)
    assert isinstance(admitted, Continue)
    return {**(opened.metadata or {}), **(admitted.metadata or {})}


def outcome(metadata: dict[str, str | float | bool], **facts: object) -> Outcome:
    """How that request ended, as its access-log entry tells it."""
    known = {name: metadata[name] for name in ("id", "pool", "tenant", "model", "decision", "ticket", "api")}
    return Outcome(**(known | {"status": 200, "e2e_s": 0.5} | facts))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("headers", "body", "api"), [(HTTP, BODY, "kserve_v2"), (GRPC, GRPC_BODY, "kserve_grpc")], ids=["http", "grpc"]
)
async def test_a_verdict_says_what_was_predicted(headers: RequestHeaders, body: RequestBody, api: str) -> None:
    """A time and a ticket, and no tokens at all."""
    metadata = await decided(Service(), headers, body)
    assert (metadata["model"], metadata["api"], metadata["stream"]) == ("resnet", api, False)
    assert float(metadata["predicted_service_ms"]) > 100.0
    assert metadata["ticket"]
    assert "predicted_tokens" not in metadata


async def test_times_are_learned_and_scored() -> None:
    """The prediction follows the answers, over HTTP and gRPC alike, and its quality can be read by tenant and model."""
    service = Service()
    for _ in range(10):
        for headers, body in ((HTTP, BODY), (GRPC, GRPC_BODY)):
            service.settlement.take([outcome(await decided(service, headers, body))])
    learned = await decided(service)
    assert float(learned["predicted_service_ms"]) == pytest.approx(500.0, rel=0.15)
    get, labels = service.tally.get, ("", "resnet")
    assert get(Count.SCORED_TIMED_ANSWERS, *labels) == 20
    assert get(Count.SCORED_SERVICE_SECONDS, *labels) == pytest.approx(10.0)
    assert 0.0 < get(Count.SCORED_PREDICTED_SECONDS, *labels) < 20.0
    assert 15 <= get(Count.SCORED_TIMED_WITHIN_P90, *labels) <= 20
    assert get(Count.SCORED_P90_PINBALL_SECONDS, *labels) > 0.0
    assert get(Count.SCORED_ANSWERS, *labels) == 0


async def test_the_pinball_loss_of_one_answer() -> None:
    """0.9 of what an answer was above p90, 0.1 of what it was below."""
    for seconds, share in ((1000.0, 0.9), (0.001, 0.1)):
        service = Service()
        metadata = await decided(service)
        p90_s = service.pool.service_times.estimate("resnet", 3 * 64 * 64).p90_s
        service.settlement.take([outcome(metadata, e2e_s=seconds)])
        loss = service.tally.get(Count.SCORED_P90_PINBALL_SECONDS, "", "resnet")
        assert loss == pytest.approx(share * abs(seconds - p90_s), rel=1e-4)


async def test_a_price_of_engine_time_is_charged_by_the_time_it_took() -> None:
    """A part of an engine that works on eight at once; a price of tokens has nothing to charge for."""
    service = Service(price_engine_hour_usd="3.6")
    metadata = await decided(service)
    expected_s = float(metadata["predicted_service_ms"]) / 1000.0 / 8
    assert float(metadata["predicted_cost_nanousd"]) == pytest.approx(expected_s * 0.001 * 1e9, rel=0.01)
    for price, usd in ((Price(engine_hour_nanousd=3_600_000_000), 0.5 / 8 * 0.001), (Price(prompt_nanousd=1), 0.0)):
        before = service.tally.get(Count.COST_USD, "default", "", "resnet")
        service.settlement.take([outcome(await decided(service), charge=Charge(price=price, timed=True))])
        after = service.tally.get(Count.COST_USD, "default", "", "resnet")
        assert after - before == pytest.approx(usd, rel=1e-6)


async def test_another_replica_learns_from_the_entry() -> None:
    """All it needs is in the ticket, and the key that the replicas share."""
    service, other = Service(), Service()
    await decided(other)
    copied = outcome(await decided(service), id="another")
    other.settlement.take([copied])
    assert other.tally.get(Count.UNLEARNED, "default", "not_sealed_by_us") == 1
    metadata = await decided(service)
    other.settlement.take([outcome(metadata, replica="elsewhere")])
    assert other.pool.service_times.estimate("resnet", 3 * 64 * 64).mean_s > 0.3
    assert len(service.pool.service_times) == 0


async def test_a_client_that_left_says_how_long_it_took_at_least() -> None:
    """From the entry of one that had reached the engine; of one that left while held there is nothing to learn."""
    service = Service()
    gone = {"ending": Ending.CLIENT_CANCELLED, "e2e_s": None, "duration_s": 31.0, "hold_s": 1.0}
    service.settlement.take([outcome(await decided(service), attempts=0, **gone)])
    assert len(service.pool.service_times) == 0
    service.settlement.take([outcome(await decided(service), attempts=1, **gone)])
    assert service.pool.service_times.estimate("resnet", 3 * 64 * 64).mean_s > 20.0
    assert service.tally.get(Count.SCORED_TIMED_ANSWERS, "", "resnet") == 0


@pytest.mark.parametrize("ending", [ending for ending in Ending if ending is not Ending.COMPLETE])
async def test_what_did_not_complete_teaches_nothing(ending: Ending) -> None:
    """A client that never reached the engine, a refusal, a fault: none of them says how long the work takes."""
    service = Service()
    service.settlement.take([outcome(await decided(service), ending=ending)])
    assert len(service.pool.service_times) == 0
    assert service.tally.get(Count.UNLEARNED, "default", ending.value) == 1
    assert service.tally.get(Count.SCORED_TIMED_ANSWERS, "", "resnet") == 0


async def test_a_body_that_cannot_be_read_passes_at_the_default_cost() -> None:
    """The engine gives its own answer to it."""
    service = Service()
    for headers in (HTTP, GRPC):
        metadata = await decided(service, headers, RequestBody(b"nonsense"))
        assert (metadata["decision"], metadata["reason"]) == ("admit", "malformed_body")
    assert service.tally.get(Count.DEFAULT_COST, "default", "malformed_body") == 2
    assert service.in_flight() == 0


async def refused(service: Service, headers: RequestHeaders, body: RequestBody) -> Refuse:
    """The refusal of a request that finds the only slot taken and no room in the queue."""
    first, first_task = service.stream(headers, body)
    assert isinstance(await first.heard(), Continue)
    assert isinstance(await first.heard(), Continue)
    second, second_task = service.stream(headers, body)
    reply = await second.heard()
    if isinstance(reply, Continue):
        reply = await second.heard()
    assert isinstance(reply, Refuse)
    for stream, task in ((first, first_task), (second, second_task)):
        stream.end()
        await task
    return reply


async def test_a_refusal_over_grpc() -> None:
    """It carries a status for Envoy to make trailers of, the message as body, and leaves the content type to Envoy."""
    reply = await refused(Service(slots_max="1", queue_len_max="0"), GRPC, GRPC_BODY)
    immediate = ProcessingResponse.FromString(encode(reply)).immediate_response
    assert (immediate.grpc_status.status, immediate.status.code) == (8, 429)
    assert immediate.body.startswith(b"The model is busy")
    names = {option.header.key for option in immediate.headers.set_headers}
    assert "content-type" not in names
    assert {"retry-after", "retry-after-ms", "x-tidegate-reason"} <= names


async def test_a_refusal_over_http() -> None:
    """No gRPC status: the protocol's error object with the type it has."""
    reply = await refused(Service(slots_max="1", queue_len_max="0"), HTTP, BODY)
    immediate = ProcessingResponse.FromString(encode(reply)).immediate_response
    assert not immediate.HasField("grpc_status")
    assert immediate.body.startswith(b'{"error":"The model is busy')
    assert reply.headers["content-type"] == "application/json"


def test_every_refusal_has_a_grpc_status() -> None:
    """Load is RESOURCE_EXHAUSTED, a pool that cannot serve UNAVAILABLE, what can never fit INVALID_ARGUMENT."""
    assert set(_GRPC_STATUS) == set(STATUS_BY_RULE.values())
    assert (_GRPC_STATUS[429], _GRPC_STATUS[503], _GRPC_STATUS[413]) == (8, 14, 3)


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ("0", Ending.COMPLETE),
        ("-", Ending.COMPLETE),
        ("8", Ending.ENGINE_REFUSED),
        ("14", Ending.ENGINE_REFUSED),
        ("13", Ending.ENGINE_FAILED),
        ("4", Ending.ENGINE_FAILED),
        ("3", Ending.BAD_REQUEST),
        ("5", Ending.BAD_REQUEST),
        ("12", Ending.BAD_REQUEST),
        ("99", Ending.COMPLETE),
    ],
)
def test_how_a_grpc_engine_ended(code: str, ending: Ending) -> None:
    """Its HTTP status is 200 whatever happened; where the client was refused by us, that stands."""
    made = entry()
    made.common_properties.custom_tags["grpc_status"] = code
    assert read(made).ending is ending
    ours = entry(ours={"decision": "reject"})
    ours.common_properties.custom_tags["grpc_status"] = "8"
    assert read(ours).ending is Ending.REJECTED


def test_service_times_survive_a_restart() -> None:
    """They are part of what a pool's state holds."""
    site, again = Site(), Site()
    pool, _ = site.stream()
    ticket = open_service_ticket(pool.service_times.estimate("m", 10).ticket(trust=1.0))
    assert ticket is not None
    for _ in range(20):
        assert pool.service_times.learn(ticket, 3.0)
    again.pools.restore(site.pools.dump(0.0), 0.0)
    restored, _ = again.stream()
    assert restored.service_times.estimate("m", 10).mean_s == pytest.approx(3.0, rel=0.2)
