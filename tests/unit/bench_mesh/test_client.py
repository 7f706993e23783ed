"""The clients against a server that answers as told: what is tried again, with which headers, and what is not."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web
from bench.mesh.client import Clients, send_all
from bench.mesh.job import Job

from tidegate.sim.arrivals import Arrival
from tidegate.sim.exchange import Patience
from tidegate.sim.load import TENANT_HEADER
from tidegate.sim.profiles import PROFILES
from tidegate.sim.record import End

ANSWER = (
    b'data: {"choices":[{"delta":{"content":"word"}}]}\n\n'
    b'data: {"choices":[],"usage":{"completion_tokens":7}}\n\ndata: [DONE]\n\n'
)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def refusal(status: int, **headers: str) -> Handler:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})

    return answer


async def served(_: web.Request) -> web.StreamResponse:
    return web.Response(body=ANSWER, content_type="text/event-stream")


async def silent_stream(request: web.Request) -> web.StreamResponse:
    """Headers at once, then nothing: an engine with a long queue."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    await asyncio.Event().wait()
    return response


async def silent(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


@dataclass(slots=True)
class Server:
    """Answers the first request with the first handler, and so on; the last one answers the rest."""

    handlers: list[Handler]
    seen: list[dict[str, str]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.seen.append({name.lower(): value for name, value in request.headers.items()})
        return await self.handlers[min(len(self.seen), len(self.handlers)) - 1](request)

    async def ask(self, *, patience_s: float = 5.0, drain_s_max: float = 5.0) -> Job:
        """One job sent to it."""
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.answer)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            clients = Clients(
                url=f"http://127.0.0.1:{runner.addresses[0][1]}/v1/chat/completions",
                patience=Patience(first_token_s=patience_s, whole_s=10.0),
                openings={},
                engine=PROFILES["demo"],
                time_scale=0.01,
                drain_s_max=drain_s_max,
                seed=1,
            )
            arrival = Arrival(at_s=0.0, tenant="acme", prompt_tokens=20, completion_tokens=7, completion_tokens_max=9)
            (job,) = await send_all((arrival,), clients)
        finally:
            await runner.cleanup()
        return job


async def test_refusals_are_tried_again_and_say_so() -> None:
    """Three tries, counted in `x-stainless-retry-count`; each states its tenant and read timeout."""
    server = Server([refusal(429), refusal(503, retry_after_ms="5"), served])
    job = await server.ask()
    assert [each.status for each in job.tries] == [429, 503, 200]
    assert [each.end for each in job.tries] == [End.REFUSED, End.REFUSED, End.COMPLETE]
    assert [each["x-stainless-retry-count"] for each in server.seen] == ["0", "1", "2"]
    assert {(each[TENANT_HEADER], each["x-stainless-read-timeout"]) for each in server.seen} == {("acme", "5")}
    assert job.last.tokens == 7


async def test_a_third_refusal_is_the_end() -> None:
    """Two retries and no more, and the job is not cut: its client gave up."""
    job = await Server([refusal(429)]).ask()
    assert [each.status for each in job.tries] == [429, 429, 429]
    assert not job.cut


async def test_a_refusal_that_forbids_a_retry_is_the_end() -> None:
    """`x-should-retry: false` on a 429: one try."""
    job = await Server([refusal(429, x_should_retry="false"), served]).ask()
    assert [each.status for each in job.tries] == [429]


async def test_a_stream_that_has_begun_is_never_tried_again() -> None:
    """Once the headers are there the SDK raises to its caller: the user left without a first token."""
    job = await Server([silent_stream, served]).ask(patience_s=0.2)
    assert [each.end for each in job.tries] == [End.GAVE_UP_FIRST]


async def test_a_timeout_before_the_headers_is_tried_again() -> None:
    """No answer at all within the read timeout is an error that the SDK retries."""
    job = await Server([silent, served]).ask(patience_s=0.2)
    assert [each.end for each in job.tries] == [End.GAVE_UP_FIRST, End.COMPLETE]


async def test_a_retry_after_the_end_of_the_run_is_not_sent() -> None:
    """A delay beyond the run leaves the job cut, with the tries it made."""
    job = await Server([refusal(429, retry_after="60"), served]).ask(drain_s_max=1.0)
    assert [each.status for each in job.tries] == [429]
    assert job.cut


async def test_what_is_open_at_the_end_of_the_run_is_cut() -> None:
    """A try under way at the run's end is neither served nor its user's decision, and is not tried again."""
    job = await Server([silent_stream]).ask(drain_s_max=0.2)
    assert [each.end for each in job.tries] == [End.CUT]
    assert job.cut
