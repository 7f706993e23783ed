"""The load driver against the simulated engine alone: what it records is what happened."""

from dataclasses import replace

import pytest

from tidegate.sim.arrivals import Arrival, Lengths, TenantLoad, arrivals_of
from tidegate.sim.engine_server import EngineServer, EngineSettings
from tidegate.sim.exchange import Patience
from tidegate.sim.load import Target, drive
from tidegate.sim.profiles import PROFILES
from tidegate.sim.record import End, Record

FAST = PROFILES["demo"].slowed(0.1)


def target_of(engine: EngineServer, **changes: object) -> Target:
    return replace(Target(url=f"http://{engine.address}/v1/chat/completions"), **changes)  # type: ignore[arg-type]


def arrival(completion_tokens: int, *, at_s: float = 0.0) -> Arrival:
    return Arrival(
        at_s=at_s,
        tenant="acme",
        prompt_tokens=20,
        completion_tokens=completion_tokens,
        completion_tokens_max=4 * completion_tokens,
    )


async def test_every_arrival_has_a_record_of_its_answer() -> None:
    """Under light load all answers are whole: the stated length, in order of time, each with its first token."""
    load = TenantLoad(
        name="acme",
        rate_per_s=40.0,
        prompt_tokens=Lengths(median=50, sigma=0.5, low=8, high=200),
        completion_tokens=Lengths(median=10, sigma=0.5, low=2, high=30),
    )
    arrivals = arrivals_of((load,), duration_s=0.5, seed=4)
    seen: list[Record] = []
    async with EngineServer(EngineSettings(profile=FAST)) as engine:
        records = await drive(arrivals, target_of(engine), on_record=seen.append)
        generated = engine.model.counters.completion_tokens
    assert tuple(seen) == records
    assert {record.end for record in records} == {End.COMPLETE}
    assert sorted((record.at_s, record.tokens) for record in records) == [
        (arrival.at_s, arrival.completion_tokens) for arrival in arrivals
    ]
    assert sum(record.tokens for record in records) == generated
    assert all(record.status == 200 and record.held_s is None for record in records)
    assert all(record.ttft_s is not None and 0.0 < record.ttft_s <= record.e2e_s for record in records)


async def test_time_per_token_is_the_engine_s_pace() -> None:
    """A lone answer of many tokens comes at the pace of the engine's steps, not slower than twice that."""
    async with EngineServer(EngineSettings(profile=FAST)) as engine:
        (record,) = await drive((arrival(60),), target_of(engine))
        step_s = FAST.cost.seconds(1, 50, 0.0)
    assert record.tpot_s == pytest.approx(step_s, rel=1.0)
    assert record.tpot_s is not None
    assert record.tpot_s > step_s * 0.8


async def test_a_client_that_gets_no_token_leaves_and_the_engine_knows() -> None:
    """Patience for the first token ends the request at that moment, and its place in the engine's queue is free."""
    patience = Patience(first_token_s=0.15, whole_s=5.0)
    one_slot = FAST.resized(slots=1)
    async with EngineServer(EngineSettings(profile=one_slot)) as engine:
        records = await drive((arrival(300), arrival(5, at_s=0.05)), target_of(engine, patience=patience))
    ends = {record.tokens: record.end for record in records}
    assert ends == {300: End.COMPLETE, 0: End.GAVE_UP_FIRST}
    impatient = next(record for record in records if record.end is End.GAVE_UP_FIRST)
    assert impatient.ttft_s is None
    assert 0.15 <= impatient.e2e_s < 0.5
    assert engine.model.counters.aborted == 1


async def test_a_client_that_waits_too_long_for_the_whole_leaves_midway() -> None:
    """Patience for the whole answer counts from sending; the tokens so far are on record and wasted in the engine."""
    patience = Patience(first_token_s=1.0, whole_s=0.2)
    async with EngineServer(EngineSettings(profile=FAST)) as engine:
        (record,) = await drive((arrival(400),), target_of(engine, patience=patience))
        counters = engine.model.counters
        assert record.end is End.GAVE_UP_WHOLE
        assert record.status == 200
        assert 1 < record.tokens < 400
        assert record.e2e_s >= 0.2
    assert counters.wasted_tokens >= record.tokens


async def test_a_run_ends_in_time_and_counts_what_it_cuts() -> None:
    """Requests that are open when the run must end are cut and say so."""
    async with EngineServer(EngineSettings(profile=FAST)) as engine:
        (record,) = await drive((arrival(500),), target_of(engine, drain_s_max=0.1))
    assert record.end is End.CUT


async def test_what_is_over_the_bound_is_recorded_not_dropped() -> None:
    """An arrival that may not be sent because too many are in flight has a record that says so."""
    async with EngineServer(EngineSettings(profile=FAST)) as engine:
        records = await drive((arrival(20), arrival(20)), target_of(engine, in_flight_max=1))
    assert sorted(record.end for record in records) == [End.COMPLETE, End.OVERFLOW]


async def test_a_refusal_is_recorded_with_its_status() -> None:
    """The engine's own 503 is a refusal, quick and without a token."""
    settings = EngineSettings(profile=FAST.resized(slots=1), queue_len_max=1)
    async with EngineServer(settings) as engine:
        records = await drive([arrival(60, at_s=0.02 * index) for index in range(4)], target_of(engine))
    refused = [record for record in records if record.end is End.REFUSED]
    assert refused
    assert {record.status for record in refused} == {503}
    assert all(record.tokens == 0 and record.ttft_s is None for record in refused)


async def test_a_dead_engine_breaks_the_request() -> None:
    """No connection is a record like any other, never an exception."""
    async with EngineServer(EngineSettings(profile=FAST)) as engine:
        target = target_of(engine)
    (record,) = await drive((arrival(5),), target)
    assert (record.end, record.status) == (End.BROKEN, 0)


async def test_no_arrivals_make_no_records() -> None:
    """An empty run ends at once."""
    assert await drive((), Target(url="http://127.0.0.1:9/")) == ()
