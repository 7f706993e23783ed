"""The simulated engine over HTTP: OpenAI's API and vLLM's pages, on an `EngineModel` in real time.

A client that leaves aborts its sequences at once: its handler is cancelled, and closing the generation is the last
thing a handler does, however it ends.
"""

import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Self

import msgspec
from aiohttp import web

from tidegate.clock import Clock, SystemClock
from tidegate.sim.engine_driver import EngineDriver, Generation
from tidegate.sim.engine_metrics import EngineMetrics
from tidegate.sim.engine_model import EngineModel
from tidegate.sim.openai_answer import DONE, Wording, busy, error_body, text_between
from tidegate.sim.openai_request import Api, ApiError, GenerationRequest, parse
from tidegate.sim.profiles import EngineProfile

BODY_BYTES_MAX = 32 * 2**20
SHUTDOWN_S_MAX = 1.0
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How one simulated engine is set up.

    Attributes:
        port: 0 asks the kernel for a free one.
        model: the only model it knows; empty: it answers to any name, and lists itself under its profile's.
        seed: of the lengths it draws.
        queue_len_max: sequences that may wait, or None: as many as clients have requests open.
        chunk_tokens: tokens of a choice that a stream gathers before it writes them; the first never waits.
    """

    profile: EngineProfile
    host: str = "127.0.0.1"
    port: int = 0
    model: str = ""
    seed: int = 0
    queue_len_max: int | None = None
    chunk_tokens: int = 1


class EngineServer:
    """A simulated engine that listens while its context is entered."""

    def __init__(self, settings: EngineSettings, *, clock: Clock | None = None) -> None:
        self.settings = settings
        self.address = ""
        self.model = EngineModel(settings.profile, queue_len_max=settings.queue_len_max)
        self.model_name = settings.model or settings.profile.name
        self._metrics = EngineMetrics(self.model, model_name=self.model_name)
        self._driver = EngineDriver(self.model, clock=SystemClock() if clock is None else clock, witness=self._metrics)
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        """Listen; `address` is host:port from then on. OSError where the port cannot be had."""
        app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[_answer_errors])
        app.add_routes(
            [
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/completions", self._completions),
                web.get("/v1/models", self._models),
                web.get("/health", _health),
                web.get("/metrics", self._metrics_page),
                web.get("/sim/stats", self._stats),
            ]
        )
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=SHUTDOWN_S_MAX, handle_signals=False
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, self.settings.host, self.settings.port).start()
        host, port = self._runner.addresses[0][:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening; answers under way are cut after `SHUTDOWN_S_MAX`."""
        if self._runner is not None:
            await self._runner.cleanup()
        self._driver.stop()

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        return await self._generate(Api.CHAT, http)

    async def _completions(self, http: web.Request) -> web.StreamResponse:
        return await self._generate(Api.COMPLETIONS, http)

    async def _generate(self, api: Api, http: web.Request) -> web.StreamResponse:
        request = parse(api, await http.read())
        self._check_model(request)
        choices = request.choices(self.settings.profile, seed=self.settings.seed)
        generation = self._driver.start(
            [(prompt.tokens, length) for prompt, length in choices],
            chunk_tokens=self.settings.chunk_tokens if request.stream else None,
        )
        if generation is None:
            raise busy()
        wording = self._wording(request, http.headers.get("x-request-id", ""))
        try:
            if request.stream:
                return await self._stream(http, request, generation, wording)
            await generation.progress()
            body = wording.whole([choice.length for choice in generation.choices])
            return web.Response(body=body, content_type="application/json")
        finally:
            self._driver.close(generation)

    async def _stream(
        self, http: web.Request, request: GenerationRequest, generation: Generation, wording: Wording
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(http)
        finished = False
        while not finished:
            await generation.progress()
            finished = generation.unfinished == 0
            events = _new_events(generation, wording)
            if finished:
                if request.include_usage:
                    events.append(wording.last_usage(generation.taken_tokens))
                events.append(DONE)
            await response.write(b"".join(events))
        await response.write_eof()
        return response

    def _check_model(self, request: GenerationRequest) -> None:
        if self.settings.model and request.model != self.settings.model:
            raise ApiError(
                f"The model `{request.model}` does not exist. Valid aliases: {self.settings.model}.",
                status=404,
                error_type="NotFoundError",
                param="model",
            )

    def _wording(self, request: GenerationRequest, request_id: str) -> Wording:
        prefix = "chatcmpl" if request.api is Api.CHAT else "cmpl"
        return Wording(
            api=request.api,
            id=f"{prefix}-{request_id or uuid.uuid4().hex[:16]}",
            created_s=int(time.time()),
            model=request.model or self.model_name,
            prompt_tokens=request.prompt_tokens,
            continuous_usage=request.continuous_usage,
        )

    async def _models(self, _: web.Request) -> web.Response:
        card = {
            "id": self.model_name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "tidegate-sim",
            "root": self.settings.profile.name,
            "parent": None,
            "max_model_len": self.settings.profile.context_tokens,
        }
        return _json({"object": "list", "data": [card]})

    async def _metrics_page(self, _: web.Request) -> web.Response:
        self._driver.run()
        return web.Response(body=self._metrics.page(), headers={"content-type": METRICS_TYPE})

    async def _stats(self, _: web.Request) -> web.Response:
        self._driver.run()
        gauges = {
            "running": self.model.running,
            "waiting": self.model.waiting,
            "decoding": self.model.decoding,
            "blocks": self.model.blocks,
            "blocks_used": self.model.blocks_used,
        }
        return _json(gauges | asdict(self.model.counters))


def _new_events(generation: Generation, wording: Wording) -> list[bytes]:
    """Events for what came since the reader was last here, and the reader has it now."""
    events = []
    for index, choice in enumerate(generation.choices):
        if choice.generated == choice.taken:
            continue
        if choice.taken == 0:
            events.append(wording.opening(index))
        text = text_between(choice.taken, choice.generated)
        choice.taken = choice.generated
        reason = choice.length.finish_reason if choice.finished else None
        events.append(wording.piece(index, text, reason, generation.taken_tokens))
    return events


@web.middleware
async def _answer_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refusals in vLLM's shapes: its own error body, or FastAPI's for what no handler took."""
    try:
        return await handler(request)
    except ApiError as error:
        return _refusal(error)
    except web.HTTPRequestEntityTooLarge:
        return _refusal(ApiError(f"The body is larger than {BODY_BYTES_MAX} bytes.", status=413))
    except web.HTTPException as error:
        return _json({"detail": error.reason}, status=error.status)


async def _health(_: web.Request) -> web.Response:
    return web.Response()


def _refusal(error: ApiError) -> web.Response:
    return web.Response(status=error.status, body=error_body(error), content_type="application/json")


def _json(value: object, *, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")
