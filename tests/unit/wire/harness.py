"""An ext_proc stream in memory, with everything behind it real and the clock in hand."""

import asyncio
from collections.abc import Sequence
from random import Random

from tests.building import builder
from tidegate.clock import ManualClock
from tidegate.errors import PolicyError
from tidegate.estimators import Estimators
from tidegate.intake import Intake
from tidegate.pools import Pool, Pools
from tidegate.seal import Seal
from tidegate.settlement import Settlement
from tidegate.tally import Tally
from tidegate.wire.answers import Answers
from tidegate.wire.events import Continue, Event, Refuse, Reply, RequestBody, RequestHeaders
from tidegate.wire.ext_proc import ExtProcService

END_OF_FILE = object()
CHAT = RequestHeaders({":method": "POST", ":path": "/v1/chat/completions"})
BODY = RequestBody(b'{"model":"tiny","stream":true,"messages":[{"role":"user","content":"Hello"}]}')


class MemoryStream:
    """Envoy's end of one stream: `tell` it what Envoy says, `heard` what it was answered."""

    def __init__(self, metadata: Sequence[tuple[str, str | bytes]] = ()) -> None:
        self._metadata = metadata
        self._incoming: asyncio.Queue[object] = asyncio.Queue()
        self._answers: asyncio.Queue[Reply] = asyncio.Queue()

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]]:
        return self._metadata

    async def read(self) -> object:
        return await self._incoming.get()

    async def write(self, message: Reply) -> None:
        self._answers.put_nowait(message)

    def tell(self, *events: Event) -> None:
        for event in events:
            self._incoming.put_nowait(event)

    def end(self) -> None:
        self._incoming.put_nowait(END_OF_FILE)

    async def heard(self) -> Reply:
        """The next answer."""
        return await asyncio.wait_for(self._answers.get(), 5.0)

    def next_answer(self) -> Reply:
        """The next answer, which must be there."""
        return self._answers.get_nowait()

    def silent(self) -> bool:
        """Nothing has been answered that was not heard."""
        return self._answers.empty()


class Service:
    """The service without sockets."""

    def __init__(self, **policy: str) -> None:
        self.clock = ManualClock()
        self.tally = Tally()
        self.errors: list[PolicyError] = []
        policy = {"estimator": "window"} | policy  # the quicker one to make
        self.metadata = [(f"tidegate-{key.replace('_', '-')}", value) for key, value in policy.items()]
        estimators = Estimators(None)
        self.pools = Pools(
            builder(self.clock, estimators),
            estimator_of=estimators.of,
            clock=self.clock,
            on_policy_error=lambda error, _: self.errors.append(error),
        )
        self.intake = intake = Intake(self.pools, self.tally, replica="replica")
        self.seal = Seal(bytes(32), bytes(8))
        self.settlement = Settlement(self.pools, intake, self.tally, self.seal, self.clock, None)
        self.ext_proc = ExtProcService(intake, Answers("replica", Random(1), self.seal), self.tally, self.clock)
        self._tasks: list[asyncio.Task[None]] = []

    def stream(self, *events: Event) -> tuple[MemoryStream, "asyncio.Task[None]"]:
        """Open a stream and tell it the first events."""
        stream = MemoryStream(self.metadata)
        stream.tell(*events)
        return stream, asyncio.create_task(self.ext_proc.process(None, stream))

    async def admitted(self) -> tuple[MemoryStream, "asyncio.Task[None]"]:
        """Open a stream and see its request through to the engine."""
        stream, task = self.stream(CHAT, BODY)
        assert isinstance(await stream.heard(), Continue)
        assert decision(await stream.heard()) == "admit"
        return stream, task

    @property
    def pool(self) -> Pool:
        """The one pool of a test."""
        return next(iter(self.pools))

    def in_flight(self) -> int:
        return self.pool.controller.snapshot(self.clock.now_s()).in_flight

    def queued(self) -> int:
        return self.pool.controller.snapshot(self.clock.now_s()).queue_len


def decision(reply: Reply) -> str:
    """The decision a reply sets in Envoy's metadata."""
    assert isinstance(reply, Continue | Refuse)
    assert reply.metadata is not None
    return str(reply.metadata["decision"])


async def held(service: Service) -> tuple[MemoryStream, "asyncio.Task[None]"]:
    """A stream whose request waits; the hold has been announced where the policy has it so."""
    queued = service.queued()
    stream, task = service.stream(CHAT, BODY)
    assert decision(await stream.heard()) == "pending"
    for _ in range(20):
        await asyncio.sleep(0)  # lets the other task run; no time passes
        if service.queued() > queued:
            return stream, task
    raise AssertionError("the request was not held")
