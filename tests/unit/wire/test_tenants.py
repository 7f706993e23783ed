"""Contracts, classes and tries as they come with a stream."""

import asyncio

import pytest

from tests.unit.wire.harness import BODY, MemoryStream, Service, decision
from tidegate.tally import Count
from tidegate.wire.events import Continue, Refuse, RequestHeaders

PATH = {":method": "POST", ":path": "/v1/chat/completions"}
ONE_SLOT = {"slots_max": "1", "mode": "backpressure-first", "hold_ms_max": "60000", "message_timeout_ms": "60000"}
ONE_AT_A_TIME = {"class": "gold", "class_gold": "concurrency-max=1", "tenant_from": "header:x-tenant"}


def asks(service: Service, **headers: str) -> tuple[MemoryStream, "asyncio.Task[None]"]:
    """Send a chat request with these headers, `_` standing for `-`."""
    stream, task = service.stream(RequestHeaders(PATH | {k.replace("_", "-"): v for k, v in headers.items()}), BODY)
    return stream, task


async def test_a_tenant_over_its_contract_is_told_so_in_its_api_s_words() -> None:
    """The refusal is a 429 that names the rule; another tenant is admitted at once."""
    service = Service(slots_max="8", **ONE_AT_A_TIME)
    first, _ = asks(service, x_tenant="acme")
    await first.heard()
    assert decision(await first.heard()) == "admit"
    second, _ = asks(service, x_tenant="acme")
    await second.heard()
    refusal = await second.heard()
    assert isinstance(refusal, Refuse)
    assert (refusal.status, decision(refusal)) == (429, "reject")
    assert refusal.headers["x-tidegate-reason"].startswith("tenant_concurrency; measured=1; threshold=1")
    assert b'"code":"tenant_concurrency"' in refusal.body
    third, _ = asks(service, x_tenant="globex")
    await third.heard()
    assert decision(await third.heard()) == "admit"
    first.end()
    await asyncio.sleep(0)


@pytest.mark.parametrize("sign", [{"idempotency_key": "k"}, {"x_stainless_retry_count": "1"}])
async def test_a_retry_takes_the_held_one_s_place(sign: dict[str, str]) -> None:
    """The held stream ends with a 409 that asks for no retry, and the later one is served in its place."""
    service = Service(**ONE_SLOT)
    running, _ = await service.admitted()
    key = {"x_stainless_retry_count": "0"} | sign if "idempotency_key" in sign else {"x_stainless_retry_count": "0"}
    first, _ = asks(service, x_forwarded_for="10.0.0.7", **key)
    await first.heard()
    await asyncio.sleep(0)
    assert service.queued() == 1
    later, _ = asks(service, x_forwarded_for="10.0.0.7", **sign)
    await later.heard()
    refusal = await first.heard()
    assert isinstance(refusal, Refuse)
    assert (refusal.status, refusal.headers["x-should-retry"]) == (409, "false")
    assert "retry-after" not in refusal.headers
    assert service.queued() == 1
    running.end()
    assert decision(await later.heard()) == "delay"


async def test_a_retry_into_a_full_queue_is_not_turned_away_at_its_headers() -> None:
    """The first look, which knows no body, leaves one that may have a place already to the second."""
    service = Service(**ONE_SLOT, queue_len_max="1", queue_order="fifo")
    running, _ = await service.admitted()
    first, _ = asks(service, x_stainless_retry_count="0")
    assert isinstance(await first.heard(), Continue)
    await asyncio.sleep(0)
    stranger, _ = asks(service)
    assert isinstance(await stranger.heard(), Refuse)
    later, _ = asks(service, x_stainless_retry_count="1")
    assert isinstance(await later.heard(), Continue)
    running.end()
    assert decision(await later.heard()) == "delay"


@pytest.mark.parametrize(
    ("asked", "ignored"), [("batch", 0), ("gold", 0), ("platinum", 1), ("batch,gold", 1), ("", 1), ("b" * 10_240, 1)]
)
async def test_a_class_asked_for_is_taken_or_counted(asked: str, ignored: int) -> None:
    """A name that is no class of the policy's changes nothing and is counted."""
    service = Service(
        class_from="header:x-priority", class_gold="ttft-budget-ms=100", class_batch="ttft-budget-ms=9000"
    )
    stream, _ = asks(service, x_priority=asked)
    await stream.heard()
    assert decision(await stream.heard()) == "admit"
    assert service.tally.get(Count.IGNORED_HEADERS) == ignored


async def test_a_client_cannot_get_ahead_by_asking_for_a_better_class() -> None:
    """Among requests that wait, one that asks for a shorter budget than it was granted stands where it stood."""
    service = Service(
        **ONE_SLOT, queue_order="deadline", class_from="header:x-priority", class_gold="ttft-budget-ms=1",
        class_batch="ttft-budget-ms=60000",
    )  # fmt: skip
    running, _ = await service.admitted()
    waiting = {}
    for asked in ("batch", "none", "gold"):
        stream, _ = asks(service, x_priority=asked)
        await stream.heard()
        await asyncio.sleep(0)
        waiting[asked] = stream
    assert service.queued() == 3
    running.end()
    assert decision(await waiting["none"].heard()) == "delay"
    waiting["none"].end()
    assert decision(await waiting["gold"].heard()) == "delay"
    waiting["gold"].end()
    assert decision(await waiting["batch"].heard()) == "delay"


async def test_strangers_share_one_turn() -> None:
    """Names in a header cost nothing to invent: until an engine has answered one, all of them stand in one line."""
    service = Service(**ONE_SLOT, queue_order="deadline", ttft_budget_ms="60000", tenant_from="header:x-tenant")
    known, _ = asks(service, x_tenant="acme")
    await known.heard()
    assert decision(await known.heard()) == "admit"
    service.intake.prove("acme", "tiny")
    invented = [asks(service, x_tenant=f"name-{number}")[0] for number in range(3)]
    for stream in invented:
        await stream.heard()
    await asyncio.sleep(0)
    acme, _ = asks(service, x_tenant="acme")
    await acme.heard()
    await asyncio.sleep(0)
    assert service.queued() == 4
    known.end()
    assert decision(await invented[0].heard()) == "delay"
    invented[0].end()
    assert decision(await acme.heard()) == "delay"


async def test_long_names_are_told_apart_to_their_ends() -> None:
    """Two names that differ only at their ends are two tenants, in a header as in the metadata."""
    service = Service(slots_max="8", **ONE_AT_A_TIME)
    for end in "ab":
        stream, _ = asks(service, x_tenant="x" * 128 + end)
        await stream.heard()
        assert decision(await stream.heard()) == "admit"
