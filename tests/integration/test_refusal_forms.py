"""Statuses and bodies of refusals that a site chooses for itself, through the real Envoy and the real service."""

import asyncio
import json

import pytest

from tests.integration.conftest import PuppetStackFactory
from tests.integration.puppet_stack import ONE_SLOT, REFUSE_ALL_ELSE, Answer, PuppetStack
from tidegate.sim.envoy_config import Config, routes

pytestmark = pytest.mark.envoy
CHAT, MESSAGES, INFER = "/v1/chat/completions", "/v1/messages", "/v2/models/resnet/infer"
MESSAGE = "The model is busy and its queue is full. Please retry after the time given."


async def fill(stack: PuppetStack) -> asyncio.Task[Answer]:
    """Take the only slot, until `empty`."""
    running = stack.ask()
    await stack.engine.call()
    return running


async def empty(stack: PuppetStack, running: asyncio.Task[Answer]) -> None:
    """End what `fill` began."""
    stack.engine.calls[0].complete()
    assert (await running).status == 200


@pytest.mark.parametrize("status", [400, 408, 503, 529, 599])
async def test_a_site_s_own_status_reaches_the_client(puppet: PuppetStackFactory, status: int) -> None:
    """Envoy sends any of them with our body and delay, a stream's too, and rewrites none; stats know the rule."""
    stack = await puppet(policy=REFUSE_ALL_ELSE | {"tidegate-status-map": f"queue_full={status},expired=504"})
    running = await fill(stack)
    for stream in (False, True):
        refused = await stack.ask(stream=stream)
        assert (refused.status, refused.headers["content-type"]) == (status, "application/json")
        assert (refused.error["code"], refused.error["message"]) == ("queue_full", MESSAGE)
        assert refused.headers["x-tidegate-reason"].startswith("queue_full")
        assert int(refused.headers["retry-after-ms"]) >= 1000
        assert int(refused.headers["retry-after"]) >= 1
    await stack.service.until("outcomes_total", 2, ending="rejected")
    assert await stack.until_counter("admission.rejects", 2) == 2
    assert await stack.counter("reason.queue_full") == 2
    assert len(stack.engine.calls) == 1
    await empty(stack, running)
    await stack.assert_sound()


async def test_an_expired_hold_can_be_a_408(puppet: PuppetStackFactory) -> None:
    """A request that was held and then refused gets the status of the map too, and its connection serves the next."""
    stack = await puppet(
        policy=ONE_SLOT
        | {
            "tidegate-status-map": "expired=408",
            "tidegate-mode": "backpressure-first",
            "tidegate-deadline-header": "header:x-deadline-ms",
        }
    )
    running = await fill(stack)
    refused = await stack.ask(headers={"x-deadline-ms": "500"})
    assert (refused.status, refused.error["code"], refused.error["type"]) == (408, "expired", "server_error")
    assert refused.queue_ms > 200
    await empty(stack, running)
    stack.engine.script = lambda call: call.complete()
    assert (await stack.ask()).status == 200
    await stack.assert_sound()


async def test_a_route_may_have_its_own(puppet: PuppetStackFactory) -> None:
    """The map and the format are of the request: two routes to one pool may differ in them."""

    def own_words(config: Config) -> None:
        keys = {"tidegate-status-map": "queue_full=503", "tidegate-error-format": "plain"}
        (route,) = (route for route in routes(config) if route["name"] == "inference-kserve")
        route["typed_per_filter_config"]["tidegate"] = {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute",
            "overrides": {"grpc_initial_metadata": [{"key": key, "value": value} for key, value in keys.items()]},
        }

    stack = await puppet(policy=REFUSE_ALL_ELSE, edit=own_words)
    running = await fill(stack)
    assert (await stack.ask()).status == 429
    refused = await stack.ask(INFER, inputs=[])
    assert (refused.status, refused.body) == (503, f"{MESSAGE}\n".encode())
    assert await stack.service.metric("policy_conflict") == 0
    await empty(stack, running)
    await stack.assert_sound()


@pytest.mark.parametrize("form", ["api", "openai", "anthropic", "kserve", "plain"])
async def test_one_form_for_all_paths(puppet: PuppetStackFactory, form: str) -> None:
    """Unless it is `api`, a client meets the same body on every path, of the type that it is."""
    stack = await puppet(policy=REFUSE_ALL_ELSE | {"tidegate-error-format": form})
    running = await fill(stack)
    forms = {}
    for path, fields in ((CHAT, {}), (MESSAGES, {}), (INFER, {"inputs": []})):
        refused = await stack.ask(path, **fields)
        assert refused.status == 429
        forms[path] = form_of(refused)
    own = {CHAT: "openai", MESSAGES: "anthropic", INFER: "kserve"}
    assert forms == (own if form == "api" else dict.fromkeys(own, form))
    await empty(stack, running)
    await stack.assert_sound()


def form_of(answer: Answer) -> str:
    """Whose words these are."""
    if answer.headers["content-type"] == "text/plain; charset=utf-8":
        assert answer.body.decode() == f"{MESSAGE}\n"
        return "plain"
    assert answer.headers["content-type"] == "application/json"
    error = {"type": "rate_limit_error", "message": MESSAGE}
    known = {
        "openai": {"error": error | {"param": None, "code": "queue_full"}},
        "anthropic": {"type": "error", "error": error},
        "kserve": {"error": MESSAGE},
    }
    (form,) = (name for name, body in known.items() if body == json.loads(answer.body))
    return form
