"""The state machine of one ext_proc stream."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.wire.events import (
    AnnounceHold,
    BodyMode,
    Continue,
    Event,
    Other,
    Phase,
    Refuse,
    RequestBody,
    RequestHeaders,
    Unknown,
)
from tidegate.wire.exchange import Dead, Exchange, JudgeBody, JudgeHeaders, State, Wave

HEADERS = RequestHeaders({":path": "/v1/chat/completions"})
BODY = RequestBody(b"{}")
PASS_HEADERS = Continue(Phase.REQUEST_HEADERS)
PASS_BODY = Continue(Phase.REQUEST_BODY)
REFUSE = Refuse(status=429, headers={}, body=b"", details="tidegate_queue_full", metadata={})
RESPONSE = Other(Phase.RESPONSE_HEADERS)


def opened() -> Exchange:
    exchange = Exchange()
    assert isinstance(exchange.receive(HEADERS), JudgeHeaders)
    exchange.judged(PASS_HEADERS)
    return exchange


def test_headers_then_body_are_judged_once_each() -> None:
    """The plain case: one judgement for the headers, one for the body."""
    exchange = opened()
    assert exchange.receive(BODY) == JudgeBody(BODY)
    assert exchange.judged(PASS_BODY) == (PASS_BODY,)
    assert exchange.state is State.PASSED


def test_a_repeated_body_is_waved_through_and_not_judged_again() -> None:
    """A body that comes twice, also empty the second time, leads to one judgement and two answers."""
    exchange = opened()
    exchange.receive(BODY)
    exchange.judged(PASS_BODY)
    assert exchange.receive(RequestBody(b"", end_of_stream=True)) == Wave((PASS_BODY,))
    assert exchange.receive(BODY) == Wave((PASS_BODY,))


def test_a_body_that_repeats_while_held_is_answered_after_the_verdict() -> None:
    """Answers keep the order of the messages, so a second body waits for the verdict on the first."""
    exchange = opened()
    exchange.receive(BODY)
    assert exchange.judged(AnnounceHold(30.0)) == (AnnounceHold(30.0),)
    assert exchange.receive(RequestBody(b"")) == Wave(())
    assert exchange.judged(PASS_BODY) == (PASS_BODY, PASS_BODY)


@pytest.mark.parametrize("late", [BODY, RESPONSE, Other(Phase.REQUEST_TRAILERS), HEADERS, Unknown()])
def test_after_a_refusal_nothing_more_is_answered(late: Event) -> None:
    """Envoy closes the stream after an immediate response: another answer would be a protocol error."""
    exchange = opened()
    exchange.receive(BODY)
    assert exchange.judged(REFUSE) == (REFUSE,)
    assert exchange.receive(late) == Wave(())


def test_a_response_while_held_means_that_the_request_is_dead() -> None:
    """Envoy's own local reply during a hold ends the request: it is given up and the message answered at once."""
    exchange = opened()
    exchange.receive(BODY)
    exchange.held()
    assert exchange.receive(RESPONSE) == Dead((Continue(Phase.RESPONSE_HEADERS),))


def test_a_response_instead_of_the_body_means_that_the_request_is_dead() -> None:
    """A body over Envoy's buffer limit never comes: its 413 does."""
    assert isinstance(opened().receive(RESPONSE), Dead)


def test_a_stream_may_begin_with_a_response() -> None:
    """Envoy's local replies reach us for requests we never saw; nothing is judged, the message is answered."""
    exchange = Exchange()
    assert exchange.receive(RESPONSE) == Wave((Continue(Phase.RESPONSE_HEADERS),))
    assert exchange.receive(Other(Phase.RESPONSE_TRAILERS)) == Wave((Continue(Phase.RESPONSE_TRAILERS),))


@pytest.mark.parametrize("mode", [BodyMode.SKIP_BODY, BodyMode.LET_GO])
def test_a_body_that_comes_although_it_was_declined_is_waved_through(mode: BodyMode) -> None:
    """A filter without allow_mode_override sends the body all the same."""
    exchange = Exchange()
    exchange.receive(HEADERS)
    exchange.judged(Continue(Phase.REQUEST_HEADERS, {}, mode))
    assert exchange.receive(BODY) == Wave((PASS_BODY,))


events = st.sampled_from([HEADERS, BODY, RequestBody(b"", end_of_stream=False), Unknown(), *map(Other, Phase)])


@given(st.lists(st.tuples(events, st.sampled_from(["pass", "refuse", "hold"])), max_size=20))
def test_every_message_is_answered_once_in_kind_and_judged_at_most_once(script: list[tuple[Event, str]]) -> None:
    """Whatever comes in whatever order, no message gets two answers, and headers and body are judged once at most."""
    exchange = Exchange()
    answered: list[Phase] = []
    received: list[Phase] = []
    judgements: list[type] = []
    died = False  # a body that Envoy gave up waiting for is not answered any more
    for event, choice in script:
        refused = exchange.state is State.REFUSED
        if not isinstance(event, Unknown) and not refused:
            received.append(_phase(event))
        due = exchange.receive(event)
        died |= isinstance(due, Dead)
        if isinstance(due, Wave | Dead):
            replies = due.replies
        else:
            judgements.append(type(due))
            replies = _judge(exchange, due, choice)
        answered += [reply.phase for reply in replies if isinstance(reply, Continue)]
    assert len(judgements) == len(set(judgements))
    for phase in Phase:
        assert answered.count(phase) <= received.count(phase)
    if exchange.state in {State.OPENING, State.AWAITING_BODY, State.PASSED} and not died:
        assert sorted(p.value for p in answered) == sorted(p.value for p in received)


def _phase(event: Event) -> Phase:
    if isinstance(event, RequestHeaders):
        return Phase.REQUEST_HEADERS
    if isinstance(event, RequestBody):
        return Phase.REQUEST_BODY
    assert isinstance(event, Other)
    return event.phase


def _judge(exchange: Exchange, due: JudgeHeaders | JudgeBody, choice: str) -> tuple[object, ...]:
    if choice == "refuse":
        return exchange.judged(REFUSE)
    if isinstance(due, JudgeHeaders):
        return exchange.judged(PASS_HEADERS)
    if choice == "hold":
        exchange.held()
        return ()
    return exchange.judged(PASS_BODY)
