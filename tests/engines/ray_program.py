"""An application of Ray Serve that answers chats, ten milliseconds a token: `python ray_program.py HTTP METRICS` ports.

Runs in the environment that has Ray. One replica works on two requests at once, and two more may wait in front of it.
"""

import asyncio
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

TOKEN_S = 0.01


@serve.deployment(max_ongoing_requests=2, max_queued_requests=2, ray_actor_options={"num_cpus": 0.1})
class Chat:
    """As many tokens as max_tokens says, or as the member `answer` says."""

    async def __call__(self, request: Request) -> Response:
        if request.method == "GET":
            return PlainTextResponse("ready")
        body = await request.json()
        tokens = int(body.get("answer", body["max_tokens"]))
        usage = {"prompt_tokens": 8, "completion_tokens": tokens, "total_tokens": 8 + tokens}
        if body.get("stream"):
            return StreamingResponse(self._events(tokens, usage), media_type="text/event-stream")
        await asyncio.sleep(tokens * TOKEN_S)
        message = {"role": "assistant", "content": "word " * tokens}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return JSONResponse({"object": "chat.completion", "model": body["model"], "choices": [choice], "usage": usage})

    async def _events(self, tokens: int, usage: dict[str, int]) -> AsyncIterator[str]:
        for _ in range(tokens):
            await asyncio.sleep(TOKEN_S)
            yield self._event({"choices": [{"index": 0, "delta": {"content": "word "}}]})
        yield self._event({"choices": [], "usage": usage})
        yield "data: [DONE]\n\n"

    def _event(self, content: dict[str, Any]) -> str:
        return f"data: {json.dumps({'object': 'chat.completion.chunk'} | content)}\n\n"


def main(arguments: list[str]) -> None:
    """Serve until told to end."""
    http, metrics = (int(each) for each in arguments)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    folder = tempfile.mkdtemp(prefix="ray-")  # a short path: Ray's sockets lie below it
    try:
        ray.init(
            address="local", num_cpus=1, include_dashboard=False, object_store_memory=100 << 20,
            _node_ip_address="127.0.0.1", _metrics_export_port=metrics, _temp_dir=folder,
            _system_config={"metrics_report_interval_ms": 500},  # ten seconds unless told
        )  # fmt: skip
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        serve.start(http_options={"host": "127.0.0.1", "port": http})
        serve.run(Chat.bind(), name="chat")  # type: ignore[attr-defined]
        signal.sigwait({signal.SIGTERM})
        serve.shutdown()
        ray.shutdown()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
