"""The ext_proc service: one gRPC stream is one exchange, and lasts as long as the HTTP exchange it stands for.

The end of the stream (end of file or cancellation, which are the same to us) is the exact moment at which a
request's slot comes back. A handler never raises: an exception would be a 500 where the filter fails closed and an
unseen admit where it fails open. What goes wrong in here is counted, and the request concerned is let through.
"""

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import Protocol, assert_never

from tidegate.admission.decision import Admit, Decision, Enqueue, Reason, Reject, Verdict
from tidegate.clock import Clock
from tidegate.intake import HOLD_MARGIN_S, Intake, Kind, Opening, Weighed
from tidegate.tally import Count, Tally
from tidegate.turnstile import Passage
from tidegate.wire.answers import Answers, Ruling
from tidegate.wire.events import AnnounceHold, Event, Reply, RequestHeaders
from tidegate.wire.exchange import Dead, Exchange, JudgeBody, JudgeHeaders, Wave

log = logging.getLogger(__name__)


class Stream(Protocol):
    """The part of grpc.aio.ServicerContext that an exchange uses; the codec sits in the method's (de)serializers."""

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]] | None: ...

    def read(self) -> Awaitable[object]:
        """The next Event, or the library's own end-of-file object."""
        ...

    def write(self, message: Reply) -> Awaitable[None]: ...


class ExtProcService:
    """Serves the streams of all Envoys."""

    def __init__(self, intake: Intake, answers: Answers, tally: Tally, clock: Clock) -> None:
        self._intake = intake
        self._answers = answers
        self._tally = tally
        self._clock = clock
        self._streams: set[asyncio.Task[None]] = set()
        self._letting_go = False
        self.draining = False

    @property
    def streams(self) -> int:
        """Exchanges that are open now."""
        return len(self._streams)

    async def process(self, _messages: object, stream: Stream) -> None:
        """Serve one stream from its first message to its end; messages are read from `stream` itself."""
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        conversation = Conversation(stream, self._intake, self._answers, self._tally, self._clock, self)
        end = "eof"
        try:
            await conversation.run()
        except asyncio.CancelledError:
            end = "let_go" if self._letting_go else "cancel"
            if not self._letting_go:
                raise
        except Exception:
            # Returning in peace makes Envoy go on without us, which is the least harm.
            end = "error"
            self._tally.add(Count.INTERNAL_ERRORS, "ext_proc")
            log.exception("an exchange failed; its request was let through")
        finally:
            conversation.close()
            self._streams.discard(task)
            self._tally.add(Count.STREAMS, end)

    def let_go(self) -> None:
        """End every open stream in peace: Envoy lets the requests run on without us."""
        self._letting_go = True
        for task in tuple(self._streams):
            task.cancel()

    async def streams_ended(self, timeout_s: float) -> bool:
        """Wait until no exchange is open; False where the time did not suffice."""
        if not self._streams:
            return True
        _, open_streams = await asyncio.wait(tuple(self._streams), timeout=timeout_s)
        return not open_streams


class Conversation:
    """One exchange with what it has booked."""

    __slots__ = (
        "_answers",
        "_clock",
        "_ended",
        "_exchange",
        "_intake",
        "_opening",
        "_passage",
        "_reading",
        "_service",
        "_stream",
        "_tally",
    )

    def __init__(
        self, stream: Stream, intake: Intake, answers: Answers, tally: Tally, clock: Clock, service: ExtProcService
    ) -> None:
        self._stream = stream
        self._intake = intake
        self._answers = answers
        self._tally = tally
        self._clock = clock
        self._service = service
        self._exchange = Exchange()
        self._opening: Opening | None = None
        self._passage: Passage | None = None
        self._reading: asyncio.Future[object] | None = None
        self._ended = False

    async def run(self) -> None:
        """Read and answer until the stream ends."""
        while (event := await self._next_event()) is not None:
            due = self._exchange.receive(event)
            match due:
                case JudgeHeaders():
                    await self._send(self._exchange.judged(self._judge_headers(due.event)))
                case JudgeBody():
                    weighed = self._weigh(due.event.body)
                    del event, due  # a request that is held must not hold its body: a thousand of them are gigabytes
                    await self._judge_body(weighed)
                case Wave():
                    await self._send(due.replies)
                case Dead():
                    self.leave()
                    await self._send(due.replies)
                case _:
                    assert_never(due)

    def leave(self) -> None:
        """Give back what this exchange has booked, or its place in the queue. Safe to repeat."""
        passage, self._passage = self._passage, None
        if passage is not None and self._opening is not None:
            self._opening.pool.turnstile.leave(passage)

    def close(self) -> None:
        """The stream is over."""
        self.leave()
        if self._reading is not None:
            self._reading.cancel()

    async def _next_event(self) -> Event | None:
        if self._ended:
            return None
        reading, self._reading = self._reading, None
        event = await (self._stream.read() if reading is None else reading)
        if isinstance(event, Event):
            return event
        self._ended = True
        return None

    async def _send(self, replies: Sequence[Reply]) -> None:
        for reply in replies:
            await self._stream.write(reply)

    def _judge_headers(self, event: RequestHeaders) -> Reply:
        opening = self._opening = self._intake.open(
            event.headers,
            end_of_stream=event.end_of_stream,
            attributes=event.attributes,
            metadata=self._stream.invocation_metadata() or (),
            now_s=self._clock.now_s(),
        )
        if opening.kind is Kind.INFERENCE:
            refusal = self._foreseen(opening)
            if refusal is None:
                return self._answers.pending(opening)
            opening.pool.turnstile.refused_unread(opening.signs.unread(tenant=opening.tenant, client=opening.client))
            return self._refuse(opening, None, refusal)
        if opening.kind is not Kind.UNKNOWN_API or self._service.draining:
            self._tally.add(Count.DECISIONS, opening.pool.name, "pass", opening.kind.value)
            return self._answers.passed(opening)
        weighed = self._intake.default(opening, opening.kind.value)
        passage = self._passage = opening.pool.turnstile.enter(weighed.work)
        assert isinstance(passage.decision, Admit), passage.decision  # nothing can refuse or hold it
        ruling = Ruling.of(passage.decision, waited_for=None, why_default=weighed.why_default)
        self._tally.add(Count.DECISIONS, opening.pool.name, ruling.decision, ruling.code)
        return self._answers.booked(opening, weighed, ruling)

    def _foreseen(self, opening: Opening) -> Reject | None:
        """The refusal that this request would meet however small it is: then its body need not be uploaded."""
        pool = opening.pool
        if opening.policy.shadow or opening.signs.may_follow or pool.controller.at_ease:
            return None  # also of one that may take the place of an earlier try, which its body tells
        refusal: Reject | None = None
        for work in self._intake.least(opening):
            refusal = pool.turnstile.preview(work)
            if refusal is None:
                return None
        return refusal

    def _weigh(self, body: bytes) -> Weighed:
        assert self._opening is not None
        return self._intake.weigh(self._opening, body)

    async def _judge_body(self, weighed: Weighed) -> None:
        opening = self._opening
        assert opening is not None
        passage = self._passage = opening.pool.turnstile.enter(weighed.work)
        reply = self._shadow(opening, weighed, passage.decision) or await self._judge(opening, weighed, passage)
        if reply is not None:
            await self._send(self._exchange.judged(reply))

    def _shadow(self, opening: Opening, weighed: Weighed, decision: Decision) -> Reply | None:
        """Under a shadow policy, the answer to what would be held or refused; None where there is no difference.

        What would be held keeps its place in the queue until its stream ends: the books stay those of the policy.
        """
        if not opening.policy.shadow or isinstance(decision, Admit):
            return None
        return self._admit(opening, weighed, Ruling.shadow(decision.reason))

    async def _judge(self, opening: Opening, weighed: Weighed, passage: Passage) -> Reply | None:
        """The answer to the body, after a hold if need be; None where the request died meanwhile."""
        decision = passage.decision
        waited_for: Reason | None = None
        if isinstance(decision, Enqueue):
            waited_for = decision.reason
            verdict = await self._hold(opening, passage, decision)
            if verdict is None:
                return None
        else:
            verdict = decision
        match verdict:
            case Admit():
                ruling = Ruling.of(verdict, waited_for=waited_for, why_default=weighed.why_default)
                return self._admit(opening, weighed, ruling)
            case Reject():
                self.leave()
                return self._refuse(opening, weighed, verdict)
            case _:
                assert_never(verdict)

    def _admit(self, opening: Opening, weighed: Weighed, ruling: Ruling) -> Reply:
        self._tally.add(Count.DECISIONS, opening.pool.name, ruling.decision, ruling.code)
        return self._answers.admitted(opening, weighed, ruling)

    def _refuse(self, opening: Opening, weighed: Weighed | None, verdict: Reject) -> Reply:
        self._tally.add(Count.DECISIONS, opening.pool.name, "reject", verdict.reason.rule.value)
        return self._answers.refused(opening, weighed, verdict)

    async def _hold(self, opening: Opening, passage: Passage, decision: Enqueue) -> Verdict | None:
        """Wait for the verdict, reading on meanwhile; None where the request died first."""
        late = passage.late
        assert late is not None
        policy = opening.policy
        needed_s = decision.expires_at_s - self._clock.now_s() + HOLD_MARGIN_S
        if needed_s > policy.message_timeout_s and policy.hold_s_max > policy.message_timeout_s:
            await self._send(self._exchange.judged(AnnounceHold(policy.hold_s_max)))
        else:
            self._exchange.held()
        while not late.done():
            if self._reading is None:
                self._reading = asyncio.ensure_future(self._stream.read())
            await asyncio.wait((late, self._reading), return_when=asyncio.FIRST_COMPLETED)
            if late.done():
                break
            event = await self._next_event()
            if event is None:
                self.leave()
                return None
            due = self._exchange.receive(event)
            if isinstance(due, Dead):
                self.leave()
                await self._send(due.replies)
                return None
            assert isinstance(due, Wave), due
            await self._send(due.replies)
        return late.result()
