"""Whether an engine says of itself that it must not be sent anything.

Engines have a page of its own for that, on their serving address. vLLM's and SGLang's go on serving their metrics when
what computes has died; llama.cpp answers both with 503 while it loads. So a 503 there is taken at its word. Whatever
else comes (no such page, no connection, another port's protocol, too late) says nothing: where a policy names another
URL for the metrics, the serving address may not be within our reach at all.
"""

from tidegate.signals.causes import PollFailed
from tidegate.signals.fetch import Fetcher
from tidegate.signals.targets import Target

WAIT_S = 1.0
UNAVAILABLE = 503

_PATHS = {
    "vllm": "/health",
    "sglang": "/health",
    "llamacpp": "/health",
    "trtllm": "/health",
    "tgi": "/health",
    "triton": "/v2/health/ready",
}
"""By kind. A proxy in front of replicas (Ray Serve, Knative) answers for itself, so it is not asked."""


async def is_ready(target: Target, kind: str, fetcher: Fetcher) -> bool | None:
    """What the engine says of itself, None where it does not say; never raises for what an engine does."""
    path = _PATHS.get(kind)
    if path is None:
        return None
    try:
        await fetcher.fetch(f"http://{target.address}{path}", name=target.name, wait_s=WAIT_S)
    except PollFailed as failure:
        return False if failure.status == UNAVAILABLE else None
    return True
