"""What clients are told and which of their words count, through the real Envoy and the real service."""

import asyncio
import json

import pytest

from tests.integration.conftest import PuppetStackFactory
from tests.integration.puppet_stack import IN_ORDER, ONE_SLOT, REFUSE_ALL_ELSE, Answer, PuppetStack
from tidegate.sim.envoy_config import Config, connection_manager

pytestmark = pytest.mark.envoy

DEADLINE: dict[str, str | None] = {"tidegate-deadline-header": "header:x-deadline-ms"}
GARBAGE = ["0", "-1", "1e99", "9223372036854775808", "NaN", "", "500ms", "1.5", "9" * 10_000, "\u0663\u0660"]
"""What a deadline must not be; Envoy itself passes it all on."""


def show_metadata(config: Config) -> None:
    """Let the test see what an operator's access log could."""
    host = connection_manager(config)["route_config"]["virtual_hosts"][0]
    for field in ("reason", "measured", "threshold"):
        header = {"key": f"x-operator-{field}", "value": f"%DYNAMIC_METADATA(admission:{field})%"}
        host["response_headers_to_add"].append({"header": header})


async def fill(stack: PuppetStack) -> asyncio.Task[Answer]:
    """Take the only slot, until `empty`."""
    running = stack.ask()
    await stack.engine.call()
    return running


async def empty(stack: PuppetStack, running: asyncio.Task[Answer], call: int = 0) -> None:
    """End what `fill` began."""
    stack.engine.calls[call].complete()
    assert (await running).status == 200


@pytest.mark.parametrize(
    ("reason", "shown"), [(None, "queue_full; measured=0; threshold=0; unit=requests"), ("code", "queue_full")]
)
async def test_figures_are_for_the_operator_where_clients_must_not_see_them(
    puppet: PuppetStackFactory, reason: str | None, shown: str
) -> None:
    """With `code` a refused client sees the rule alone; Envoy's metadata holds the figures in both cases."""
    stack = await puppet(policy=REFUSE_ALL_ELSE | {"tidegate-reason": reason}, edit=show_metadata)
    running = await fill(stack)
    refused = await stack.ask()
    assert (refused.status, refused.headers["x-tidegate-reason"]) == (429, shown)
    assert b"threshold" not in refused.body
    operator = [refused.headers[f"x-operator-{field}"] for field in ("reason", "measured", "threshold")]
    assert operator == ["queue_full", "0", "0"]
    await empty(stack, running)
    await stack.assert_sound()


@pytest.mark.parametrize("status", [429, 503])
async def test_an_engine_s_own_delay_passes_through_and_bounds_ours(puppet: PuppetStackFactory, status: int) -> None:
    """A refusal of the engine reaches the client as it was sent; what tidegate refuses next names as long a delay."""
    stack = await puppet(policy=REFUSE_ALL_ELSE)
    told = {"retry-after": "17", "retry-after-ms": "16500", "x-should-retry": "false"}
    asked = stack.ask()
    (await stack.engine.call()).answer(b'{"error":{"message":"busy"}}', status=status, headers=told)
    answer = await asked
    assert (answer.status, answer.body) == (status, b'{"error":{"message":"busy"}}')
    assert {name: answer.headers[name] for name in told} == told
    assert "x-tidegate-reason" not in answer.headers
    await stack.service.until("outcomes_total", 1, ending="engine_refused")
    running = await fill(stack)
    refused = await stack.ask()
    assert (refused.status, refused.error["code"]) == (429, "queue_full")
    assert 15_000 < int(refused.headers["retry-after-ms"]) <= 17_000 * 1.5
    assert 15 <= int(refused.headers["retry-after"]) <= 26
    await empty(stack, running, call=1)
    await stack.assert_sound()


async def test_our_own_delay_does_not_breed(puppet: PuppetStackFactory) -> None:
    """The Retry-After in our refusals comes back in the access log, and is not taken for the engine's."""
    stack = await puppet(policy=REFUSE_ALL_ELSE)
    running = await fill(stack)
    for count in range(1, 6):
        assert int((await stack.ask()).headers["retry-after-ms"]) <= 1500
        await stack.service.until("outcomes_total", count, ending="rejected")
    await empty(stack, running)
    await stack.assert_sound()


async def test_what_can_never_fit_gets_no_delay(puppet: PuppetStackFactory) -> None:
    """Also after an engine has named one, a 413 has none and says that a retry is of no use."""
    stack = await puppet(policy={"tidegate-kv-tokens-max": "200"})
    asked = stack.ask()
    (await stack.engine.call()).answer(status=429, headers={"retry-after": "17"})
    assert (await asked).headers["retry-after"] == "17"
    await stack.service.until("outcomes_total", 1, ending="engine_refused")
    refused = await stack.ask(messages=[{"role": "user", "content": "word " * 4000}])
    assert (refused.status, refused.headers["x-should-retry"]) == (413, "false")
    assert not {"retry-after", "retry-after-ms"} & refused.headers.keys()
    await stack.assert_sound()


async def test_the_deadline_header_ends_a_hold(puppet: PuppetStackFactory) -> None:
    """A client that says it gives up after 800 ms gets its answer at 0.7 of them, whatever its SDK says."""
    stack = await puppet(policy=ONE_SLOT | DEADLINE | {"tidegate-mode": "backpressure-first"})
    running = await fill(stack)
    hurried = stack.ask(headers={"x-deadline-ms": "800", "x-stainless-read-timeout": "600"})
    patient = stack.ask(headers={"x-stainless-read-timeout": "600"})
    answer = await hurried
    assert (answer.status, answer.error["code"]) == (503, "expired")
    assert 400 < answer.queue_ms < 800
    assert not patient.done()
    stack.engine.script = lambda call: call.complete()
    await empty(stack, running)
    assert (await patient).status == 200
    assert await stack.service.metric("ignored_headers_total") == 0
    await stack.assert_sound()


async def test_garbage_in_the_deadline_header_changes_nothing_and_is_counted(puppet: PuppetStackFactory) -> None:
    """Whatever the header says, its request keeps the place of one without it: the order of arrival stays."""
    stack = await puppet(policy=ONE_SLOT | DEADLINE | {"tidegate-mode": "backpressure-first"})
    running = await fill(stack)
    waiting = []
    for number, text in enumerate([None, *GARBAGE, "4000, 5000", None]):
        headers = {"x-number": str(number)} | ({} if text is None else {"x-deadline-ms": text})
        waiting.append(stack.ask(headers=headers))
        await stack.held(number + 1)
    stack.engine.script = lambda call: call.complete()
    await empty(stack, running)
    assert {(await each).status for each in waiting} == {200}
    assert [call.headers["x-number"] for call in stack.engine.calls[1:]] == [str(n) for n in range(len(waiting))]
    assert await stack.service.metric("ignored_headers_total") == len(GARBAGE) + 1
    await stack.assert_sound()


async def test_a_conversation_waits_where_a_first_question_is_refused(puppet: PuppetStackFactory) -> None:
    """With a budget of its own, a request whose messages hold an answer is kept; others go by the usual budget."""
    policy = ONE_SLOT | IN_ORDER | {"tidegate-ttft-budget-ms": "50", "tidegate-conversation-budget-ms": "20000"}
    stack = await puppet(policy=policy)
    running = await fill(stack)
    turns = [{"role": role, "content": "Hello"} for role in ("user", "assistant", "user")]
    talking = stack.ask(messages=turns)
    await stack.held(1)
    first_turn = await stack.ask()
    assert (first_turn.status, first_turn.error["code"]) == (429, "wait_too_long")
    assert not talking.done()
    stack.engine.script = lambda call: call.complete()
    await empty(stack, running)
    assert (await talking).status == 200
    assert len(json.loads(stack.engine.calls[1].body)["messages"]) == len(turns)
    assert await stack.service.metric("decisions_total", decision="delay", reason="slots") == 1
    await stack.assert_sound()
