"""Request bodies in gzip, decoded by Envoy before anybody looks at them."""

import gzip
import json

import pytest

from tests.integration.api_answers import TURNS
from tests.integration.conftest import PuppetStackFactory
from tests.integration.puppet_engine import Call
from tests.integration.puppet_stack import REFUSE_ALL_ELSE

pytestmark = pytest.mark.envoy

GZIPPED = {"content-type": "application/json", "content-encoding": "gzip"}


async def test_a_body_in_gzip_is_read(puppet: PuppetStackFactory) -> None:
    """Tidegate prices it and the engine gets it in the clear, also where its usage is asked for on the way."""
    stack = await puppet(policy={"tidegate-ask-usage": "on"})
    stack.engine.script = Call.complete
    for stream in (False, True):
        body = json.dumps({"model": "tiny", "stream": stream, "messages": TURNS * 2000}).encode()
        async with stack.http.post("/v1/chat/completions", data=gzip.compress(body), headers=GZIPPED) as response:
            assert response.status == 200
            await response.read()
        call = stack.engine.calls[-1]
        asked = json.loads(call.body)
        assert ("stream_options" in asked) is stream
        assert {name: asked[name] for name in ("model", "stream", "messages")} == json.loads(body)
        assert "content-encoding" not in call.headers
    for line in await stack.service.requests(2):
        assert (line["api"], line["model"], line["reserved_tokens"] > 2000) == ("openai_chat", "tiny", True)
    assert await stack.service.metric("default_cost_total") == 0
    await stack.assert_sound()


async def test_what_is_not_gzip_is_harmless(puppet: PuppetStackFactory) -> None:
    """A bomb is a 413, a body that only says it is gzip reaches the engine at the default cost; no slot is lost."""
    stack = await puppet(policy=REFUSE_ALL_ELSE)
    stack.engine.script = Call.complete
    path = "/v1/chat/completions"
    bomb = gzip.compress(b'{"messages":[{"content":"' + b"x" * (64 << 20))
    async with stack.http.post(path, data=bomb, headers=GZIPPED) as response:
        assert response.status == 413
    for broken in (b'{"messages": []}', bomb[:100], b""):
        async with stack.http.post(path, data=broken, headers=GZIPPED) as response:
            assert response.status == 200
    assert all(len(call.body) < 1 << 20 for call in stack.engine.calls)
    assert (await stack.ask()).status == 200
    await stack.assert_sound()
