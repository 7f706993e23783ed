"""One ext_proc stream as a state machine that never waits (sans-io): events in, what is now due out.

```
 OPENING --headers--> JUDGING --admitted/held/refused-->
    |   (body to come)    +--no body to read---------------------------------------> PASSED
    |                  AWAITING_BODY --body--> JUDGING --hold--> HELD --verdict--> PASSED | REFUSED
    +--any other message----------------------------------------------------------> PASSED
```
Envoy wants each message answered once, in order; an answer too many is a protocol error that Envoy counts and, where
the filter fails open, answers by admitting. So the machine owns what is owed:
- a body seen again (repeated end_of_stream, an empty second one) is waved through and never judged twice;
- after a refusal nothing more is answered: Envoy closes the stream;
- a response message while a request is still being judged or held means that Envoy has answered the client itself
  (a timeout, a full buffer): the request is dead, its booking goes back, the message is waved through;
- a stream may begin with a response message: Envoy's local reply for a request that we never saw.
"""

from enum import Enum
from typing import TypeAlias, assert_never

from msgspec import Struct

from tidegate.wire.events import (
    AnnounceHold,
    BodyMode,
    Continue,
    Event,
    Other,
    Phase,
    Refuse,
    Reply,
    RequestBody,
    RequestHeaders,
    Unknown,
)


class State(Enum):
    """Where the exchange stands."""

    OPENING = "opening"
    JUDGING_HEADERS = "judging_headers"
    AWAITING_BODY = "awaiting_body"
    JUDGING_BODY = "judging_body"
    HELD = "held"
    PASSED = "passed"
    REFUSED = "refused"


class JudgeHeaders(Struct, frozen=True, gc=False):
    """Say what becomes of a request whose headers have come; answer with `Continue` or `Refuse`."""

    event: RequestHeaders


class JudgeBody(Struct, frozen=True, gc=False):
    """Say what becomes of a request whose body has come; answer with `Continue`, `Refuse`, or `AnnounceHold` first."""

    event: RequestBody


class Wave(Struct, frozen=True, gc=False):
    """Send these answers; nothing is to be judged."""

    replies: tuple[Reply, ...]


class Dead(Struct, frozen=True, gc=False):
    """The request under judgement is over: give its booking back, then send these answers."""

    replies: tuple[Reply, ...]


Due: TypeAlias = JudgeHeaders | JudgeBody | Wave | Dead

_NOTHING = Wave(())
_RESPONSE_PHASES = frozenset({Phase.RESPONSE_HEADERS, Phase.RESPONSE_BODY, Phase.RESPONSE_TRAILERS})
_UNDER_JUDGEMENT = frozenset({State.JUDGING_HEADERS, State.AWAITING_BODY, State.JUDGING_BODY, State.HELD})


class Exchange:
    """The machine of one stream. Drive it with `receive`, and tell it each judgement with `judged`."""

    __slots__ = ("_bodies_owed", "state")

    def __init__(self) -> None:
        self.state = State.OPENING
        self._bodies_owed = 0

    def receive(self, event: Event) -> Due:
        """Take in one message; says what is due now."""
        if self.state is State.REFUSED:
            return _NOTHING
        match event:
            case RequestHeaders():
                return self._request_headers(event)
            case RequestBody():
                return self._request_body(event)
            case Other(phase=phase):
                return self._other(phase)
            case Unknown():
                return _NOTHING
            case _:
                assert_never(event)

    def judged(self, reply: Reply) -> tuple[Reply, ...]:
        """Take in the judgement that was due; returns the answers to send, in order."""
        match reply:
            case AnnounceHold():
                assert self.state in {State.JUDGING_BODY, State.HELD}, self.state
                self.state = State.HELD
                return (reply,)
            case Refuse():
                assert self.state in _UNDER_JUDGEMENT, self.state
                self.state = State.REFUSED
                return (reply,)
            case Continue(phase=Phase.REQUEST_HEADERS):
                assert self.state is State.JUDGING_HEADERS, self.state
                more = reply.body_mode is BodyMode.AS_CONFIGURED
                self.state = State.AWAITING_BODY if more else State.PASSED
                return (reply,)
            case Continue():
                assert self.state in {State.JUDGING_BODY, State.HELD}, self.state
                self.state = State.PASSED
                owed, self._bodies_owed = self._bodies_owed, 0
                return (reply, *(Continue(Phase.REQUEST_BODY),) * owed)
            case _:
                assert_never(reply)

    def held(self) -> None:
        """The verdict on the body comes later, within the time Envoy waits anyway: nothing needs to be announced."""
        assert self.state is State.JUDGING_BODY, self.state
        self.state = State.HELD

    def _request_headers(self, event: RequestHeaders) -> Due:
        if self.state is State.OPENING:
            self.state = State.JUDGING_HEADERS
            return JudgeHeaders(event)
        return Wave((Continue(Phase.REQUEST_HEADERS),))

    def _request_body(self, event: RequestBody) -> Due:
        if self.state is State.AWAITING_BODY:
            self.state = State.JUDGING_BODY
            return JudgeBody(event)
        if self.state in {State.JUDGING_BODY, State.HELD}:
            self._bodies_owed += 1  # answered after the verdict, for answers keep their order
            return _NOTHING
        if self.state is State.OPENING:  # the filter skips the headers: without a path there is nothing to judge
            self.state = State.PASSED
        return Wave((Continue(Phase.REQUEST_BODY),))

    def _other(self, phase: Phase) -> Due:
        answer = (Continue(phase),)
        if phase not in _RESPONSE_PHASES:
            return Wave(answer)
        dead = self.state in _UNDER_JUDGEMENT
        self.state = State.PASSED
        return Dead(answer) if dead else Wave(answer)
