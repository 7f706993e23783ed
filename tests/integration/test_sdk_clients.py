"""What real client libraries make of each refusal, through the real Envoy and the real service.

They add no jitter to a delay that a server names, fall back to half a second where they do not like it, and give up
where they think that it is too long: only they can tell whether our answers are good for them.
"""

import asyncio
import json
from collections.abc import Mapping
from itertools import product

import pytest

from tests.integration.scripted_engine import CAPTURES
from tests.integration.sdk_jobs import Client, Outcome
from tests.integration.sdk_node import install_node_client
from tests.integration.sdk_refusals import GONE, LASTING, SHUTTING_DOWN, SLOT_FREED, Refused, name_of, refuse_all

pytestmark = pytest.mark.envoy

OPENAI_PYTHON, OPENAI_NODE, ANTHROPIC_PYTHON = Client.OPENAI_PYTHON, Client.OPENAI_NODE, Client.ANTHROPIC_PYTHON
STATUS = {
    "queue_full": 429,
    "wait_too_long": 429,
    "expired": 503,
    "no_engine": 503,
    "shutting_down": 503,
    "request_too_large": 413,
}
RAISED: Mapping[int, Mapping[Client, tuple[str, str]]] = {
    429: {
        OPENAI_PYTHON: ("RateLimitError", "rate_limit_error"),
        OPENAI_NODE: ("RateLimitError", "rate_limit_error"),
        ANTHROPIC_PYTHON: ("RateLimitError", "rate_limit_error"),
    },
    503: {
        OPENAI_PYTHON: ("InternalServerError", "server_error"),
        OPENAI_NODE: ("InternalServerError", "server_error"),
        ANTHROPIC_PYTHON: ("ServiceUnavailableError", "overloaded_error"),
    },
    413: {
        OPENAI_PYTHON: ("APIStatusError", "invalid_request_error"),
        OPENAI_NODE: ("APIError", "invalid_request_error"),
        ANTHROPIC_PYTHON: ("ContentTooLargeError", "request_too_large"),
    },
}
"""By status and client, the class of the error and what it gives as its type."""
WORDS = {
    "queue_full": "the model is busy and its queue is full",
    "wait_too_long": "the answer could not begin in time",
    "expired": "waited in the queue for as long as it may",
    "no_engine": "no engine is available",
    "shutting_down": "is shutting down",
    "request_too_large": "retrying cannot help",
}
RETRYABLE = [rule for rule in STATUS if rule != "request_too_large"]
RETRIED = [*RETRYABLE, SLOT_FREED]
SERVED_LATER = [SLOT_FREED, *GONE, *SHUTTING_DOWN]
TEXT: Mapping[tuple[bool, bool], str] = {
    (False, False): json.loads((CAPTURES / "vllm-chat.json").read_bytes())["choices"][0]["message"]["content"],
    (False, True): "ile itsingle mat",
    (True, False): " refer mat \u2018 pattern",
    (True, True): " keyword traceback instance",
}
"""What the engine's captured answers say: a chat's or Anthropic's, whole or streamed."""
TRIES_BY_DEFAULT = 3
EARLY_S_MAX, LATE_S_MAX = 0.005, 2.0
"""How far from the time told a try may come: a timer's grain before it, a busy machine's doing after it."""


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Refused]:
    """What every client did under every rule, by the name of its job."""
    install_node_client()
    return asyncio.run(refuse_all(tmp_path_factory.mktemp("sdk")))


def told_s_bounds(rule: str) -> tuple[float, float]:
    """The delays that a refusal by this rule may name where little is queued, jitter included."""
    return (5.0, 15.0) if rule == "no_engine" else (1.0, 1.5)


every_client = pytest.mark.parametrize(
    ("client", "stream"),
    [pytest.param(client, stream, id=f"{client}-{'stream' if stream else 'whole'}")
     for client, stream in product(Client, (False, True))],
)  # fmt: skip


@every_client
@pytest.mark.parametrize("rule", STATUS)
def test_a_refusal_is_raised_as_the_library_s_own_error(
    refusals: Mapping[str, Refused], rule: str, client: Client, stream: bool
) -> None:
    """Its class is the one for the status, and the body gives it type, code and message: no text that nothing reads."""
    outcome = refusals[name_of(rule, client, stream, once=rule not in LASTING)].outcome
    raised, kind = RAISED[STATUS[rule]][client]
    assert (outcome.raised, outcome.status, outcome.kind) == (raised, STATUS[rule], kind)
    assert outcome.code == ("" if client is ANTHROPIC_PYTHON else rule)  # Anthropic's bodies have no code
    assert WORDS[rule] in outcome.message.lower()


@every_client
@pytest.mark.parametrize("rule", RETRIED)
def test_a_client_comes_back_when_it_is_told_to(
    refusals: Mapping[str, Refused], rule: str, client: Client, stream: bool
) -> None:
    """Every try after a refusal comes no sooner than told and not much later; none is left out, and none repeats."""
    refused = refusals[name_of(rule, client, stream)]
    tries = refused.tries
    assert [each.number for each in tries] == list(range(len(tries)))
    assert len(tries) == TRIES_BY_DEFAULT if rule in LASTING else len(tries) > 1, refused
    low_s, high_s = told_s_bounds(rule)
    for answered, pause_s in zip(tries[:-1], refused.pauses_s, strict=True):
        assert answered.told_ms is not None
        assert answered.told_s is not None
        told_s = answered.told_ms / 1000.0
        assert low_s <= told_s <= high_s, refused
        assert told_s - EARLY_S_MAX <= pause_s <= told_s + LATE_S_MAX, refused
        assert abs(answered.told_s - told_s) < 1.0, refused
        assert answered.told_s >= 1, refused


@every_client
@pytest.mark.parametrize("rule", LASTING)
def test_every_try_meets_the_same_rule(
    refusals: Mapping[str, Refused], rule: str, client: Client, stream: bool
) -> None:
    """Under a load that lasts, all tries are refused by one rule, with its own status."""
    tries = refusals[name_of(rule, client, stream)].tries
    assert {(each.status, each.reason) for each in tries} == {(STATUS[rule], rule)}


@every_client
def test_what_can_never_fit_is_sent_once(refusals: Mapping[str, Refused], client: Client, stream: bool) -> None:
    """No client repeats a request that is larger than the pool: the answer says so, and names no delay."""
    (only,) = refusals[name_of("request_too_large", client, stream)].tries
    assert (only.number, only.should_retry, only.told_ms, only.told_s) == (0, "false", None, None)


@every_client
@pytest.mark.parametrize("rule", SERVED_LATER)
def test_a_later_try_is_served(refusals: Mapping[str, Refused], rule: str, client: Client, stream: bool) -> None:
    """Once a slot is free, an engine is up or the service has gone, the next try brings the whole answer."""
    name = name_of(rule, client, stream)
    refused = refusals[name]
    assert [each.status for each in refused.tries] == [STATUS.get(rule, 429), 200]
    assert refused.tries[0].reason == (rule if rule in STATUS else "queue_full")
    assert refused.outcome == Outcome(job=name, text=TEXT[client is ANTHROPIC_PYTHON, stream])


@every_client
@pytest.mark.parametrize("rule", [rule for rule in RETRYABLE if rule not in LASTING])
def test_a_client_told_never_to_retry_asks_once(
    refusals: Mapping[str, Refused], rule: str, client: Client, stream: bool
) -> None:
    """Our answers ask for no more tries than a caller allows: with none allowed, the first refusal is the last."""
    tries = refusals[name_of(rule, client, stream, once=True)].tries
    assert [(each.number, each.status, each.reason) for each in tries] == [(0, STATUS[rule], rule)]
