"""From a decided request to a taught estimator."""

from tests.unit.wire.harness import BODY, CHAT, Service
from tidegate.admission.outcome import Ending, Outcome
from tidegate.settlement import LEARNED_PER_S_MAX
from tidegate.tally import Count
from tidegate.wire.events import Continue


async def decided(service: Service) -> dict[str, object]:
    """One admitted request; the metadata of its verdict."""
    stream, task = service.stream(CHAT, BODY)
    opened, admitted = await stream.heard(), await stream.heard()
    stream.end()
    await task
    assert isinstance(opened, Continue)
    assert isinstance(admitted, Continue)
    return {**(opened.metadata or {}), **(admitted.metadata or {})}


def outcome(metadata: dict[str, object], **facts: object) -> Outcome:
    """How that request ended, as its access-log entry tells it."""
    defaults = {"completion_tokens": 10, "prompt_tokens": 8, "stream": True, "status": 200}
    known = {name: metadata[name] for name in ("id", "pool", "tenant", "model", "decision", "ticket", "api")}
    return Outcome(**(known | defaults | facts))  # type: ignore[arg-type]


def unlearned(service: Service, why: str) -> float:
    return service.tally.get(Count.UNLEARNED, "default", why)


async def test_a_finished_request_teaches_the_estimator() -> None:
    """The ticket that went out in the verdict comes back in the entry, opens, and is learned from."""
    service = Service()
    first = await decided(service)
    for number in range(30):
        service.settlement.take([outcome(await decided(service), id=f"other-{number}")])
    assert unlearned(service, "not_sealed_by_us") == 30  # a ticket opens for its own request only
    for _ in range(30):
        service.settlement.take([outcome(await decided(service))])
    again = await decided(service)
    assert isinstance(first["predicted_tokens"], int)
    assert first["predicted_tokens"] > 100
    assert isinstance(again["predicted_tokens"], int)
    assert again["predicted_tokens"] < 30


async def test_a_forged_ticket_teaches_nothing() -> None:
    """Whoever can write to the log port still has no say in what is learned."""
    service = Service()
    metadata = await decided(service)
    service.settlement.take([outcome(metadata, ticket="Zm9yZ2Vk")])
    assert unlearned(service, "not_sealed_by_us") == 1


async def test_an_entry_that_comes_twice_counts_once() -> None:
    """Envoy repeats entries when a stream breaks; tokens are counted and learned once."""
    service = Service()
    entry = outcome(await decided(service))
    service.settlement.take([entry, entry])
    assert service.tally.get(Count.COMPLETION_TOKENS, "default") == 10
    assert service.tally.get(Count.REPEATED_OUTCOMES) == 1


async def test_what_taught_nothing_is_counted_with_its_reason() -> None:
    """An answer without usage, one that failed and one of the engine's refusals each say why."""
    service = Service()
    service.settlement.take([outcome(await decided(service), completion_tokens=None)])
    service.settlement.take([outcome(await decided(service), ending=Ending.ENGINE_FAILED)])
    service.settlement.take([outcome(await decided(service), ending=Ending.ENGINE_REFUSED)])
    assert [unlearned(service, why) for why in ("no_usage", "engine_failed", "engine_refused")] == [1, 1, 1]


async def test_tokens_for_a_client_that_had_left_are_waste() -> None:
    """They were generated and nobody read them."""
    service = Service()
    service.settlement.take([outcome(await decided(service), ending=Ending.CLIENT_CANCELLED)])
    assert service.tally.get(Count.WASTED_TOKENS, "default") == 10


async def test_predictions_are_scored_in_public() -> None:
    """Coverage, bias and pinball loss of each tenant and model follow from five sums."""
    service = Service()
    for tokens in (50, 80, 120):
        facts = {"completion_tokens": tokens, "predicted_tokens": 60, "predicted_p90_tokens": 100}
        service.settlement.take([outcome(await decided(service), model="m", tenant="t", **facts)])
    cut = {"ending": Ending.CLIENT_CANCELLED, "predicted_tokens": 60, "predicted_p90_tokens": 100}
    service.settlement.take([outcome(await decided(service), model="m", tenant="t", **cut)])

    def score(count: Count) -> float:
        return service.tally.get(count, "t", "m")

    assert score(Count.SCORED_ANSWERS) == 3
    assert score(Count.SCORED_WITHIN_P90) == 2
    assert score(Count.SCORED_PREDICTED_TOKENS) == 180
    assert score(Count.SCORED_COMPLETION_TOKENS) == 250
    assert score(Count.SCORED_P90_PINBALL_TOKENS) == 0.1 * 50 + 0.1 * 20 + 0.9 * 20


async def test_learning_leaves_time_for_verdicts() -> None:
    """Of a burst only so many answers teach, and the next second as many again; all of them are scored."""
    service = Service()
    facts = {"predicted_tokens": 60, "predicted_p90_tokens": 100}
    burst = int(LEARNED_PER_S_MAX) + 50
    for seconds in (1, 2):
        for _ in range(burst):
            service.settlement.take([outcome(await decided(service), model="m", tenant="t", **facts)])
        assert unlearned(service, "enough_learned") == 50 * seconds
        assert service.tally.get(Count.SCORED_ANSWERS, "t", "m") == burst * seconds
        service.clock.advance(1.0)
