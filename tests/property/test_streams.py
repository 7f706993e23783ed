"""Many streams at once, ended in every way: whatever happens, slots come back and verdicts come once."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.wire.harness import BODY, CHAT, MemoryStream, Service
from tidegate.wire.events import Continue, Event, Other, Phase, Refuse, RequestBody, RequestHeaders

STREAMS_MAX = 12
SLOTS = 2

says = st.sampled_from(
    [
        BODY,
        RequestBody(b"", end_of_stream=True),
        RequestBody(b"\xff"),
        Other(Phase.RESPONSE_HEADERS),
        Other(Phase.RESPONSE_TRAILERS),
        Other(Phase.REQUEST_TRAILERS),
        CHAT,
    ]
)
opens = st.sampled_from([CHAT, RequestHeaders({":method": "POST", ":path": "/v1/odd"}), Other(Phase.RESPONSE_HEADERS)])
numbers = st.integers(0, STREAMS_MAX - 1)
steps = st.one_of(
    st.tuples(st.just("open"), opens),
    *[st.tuples(st.just("body"), st.just(0))] * 3,  # most streams are plain ones
    st.tuples(st.just("say"), numbers, says),
    st.tuples(st.just("end"), numbers),
    st.tuples(st.just("cancel"), numbers),
    st.tuples(st.just("wait"), st.floats(0.01, 3.0)),
    st.tuples(st.just("drain"), st.just(0)),
)


class World:
    """Up to a dozen streams of one pool with two slots."""

    def __init__(self) -> None:
        self.service = Service(slots_max=str(SLOTS), queue_len_max="3", ttft_budget_ms="20000", hold_ms_max="5000")
        self.streams: list[tuple[MemoryStream, asyncio.Task[None]]] = []

    def open(self, *events: Event) -> None:
        if len(self.streams) < STREAMS_MAX:
            self.streams.append(self.service.stream(*events))

    def step(self, step: tuple[object, ...]) -> None:
        match step:
            case ("open", event):
                assert isinstance(event, RequestHeaders | Other)
                self.open(event)
            case ("body", _):
                self.open(CHAT, BODY)
            case ("wait", float(seconds)):
                self.service.clock.advance(seconds)
            case ("drain", _):
                for pool in self.service.pools:
                    pool.turnstile.drain()
            case (what, int(number), *event) if self.streams:
                stream, task = self.streams[number % len(self.streams)]
                if what == "say":
                    stream.tell(*event)  # type: ignore[arg-type]
                elif what == "end":
                    stream.end()
                else:
                    task.cancel()


async def settle() -> None:
    """Let every task run until all of them wait."""
    for _ in range(30):
        await asyncio.sleep(0)


def verdicts(stream: MemoryStream) -> int:
    """Final verdicts that this stream was told."""
    count = 0
    while not stream.silent():
        reply = stream.next_answer()
        if isinstance(reply, Continue | Refuse) and reply.metadata is not None:
            count += reply.metadata["decision"] in ("admit", "delay", "reject")
    return count


@settings(max_examples=200)
@given(st.lists(steps, min_size=8, max_size=40))
def test_slots_come_back_and_verdicts_come_once(script: list[tuple[object, ...]]) -> None:
    """Any mix of requests, repeated bodies, local replies, ends, cancels and drains leaves clean books."""

    async def run() -> None:
        world = World()
        for step in script:
            world.step(step)
            await settle()
            for pool in world.service.pools:
                gauges = pool.controller.snapshot(world.service.clock.now_s())
                assert gauges.sequences - gauges.over_sequences <= SLOTS
                assert gauges.queue_len <= gauges.queue_len_max
                assert gauges.queue_len == pool.turnstile.waiting
        for stream, task in world.streams:
            stream.end()
            await asyncio.wait([task])
            assert verdicts(stream) <= 1
        for pool in world.service.pools:
            gauges = pool.controller.snapshot(world.service.clock.now_s())
            assert (gauges.in_flight, gauges.sequences, gauges.kv_tokens, gauges.queue_len) == (0, 0, 0, 0)

    asyncio.run(run())
