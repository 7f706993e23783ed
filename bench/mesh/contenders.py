"""Who races: nothing, Envoy's own filters, the p99 window people start from, and Tidegate as shipped."""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from bench.mesh import peers, scenes
from tidegate.sim.envoy_config import Config
from tidegate.sim.load import TENANT_HEADER


class Name(StrEnum):
    """The contenders, in the order of the table."""

    NOTHING = "nothing"
    ADMISSION_CONTROL = "admission_control"
    ADAPTIVE_CONCURRENCY = "adaptive_concurrency"
    LOCAL_RATELIMIT = "local_ratelimit"
    P99_WINDOW = "p99-window"
    TIDEGATE = "tidegate"
    TIDEGATE_STATED = "tidegate-stated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """What stands between clients and engine.

    Attributes:
        about: how it is set, for people.
        http_filter: a filter of Envoy's own before the router, or None.
        policy: `tidegate-*` keys on top of the shipped ones, or None: every request goes past the service.
    """

    name: Name
    about: str
    http_filter: Config | None = None
    policy: dict[str, str | None] | None = None


def contender(  # noqa: PLR0911 -- one a name
    name: Name, *, load_1_per_s: float, engine_address: str
) -> Contender:
    """One of them, for an engine that serves so many everyday requests a second."""
    match name:
        case Name.NOTHING:
            return Contender(name=name, about="Envoy alone")
        case Name.ADMISSION_CONTROL:
            return Contender(
                name=name,
                about="success rate below 95 % over 10 s, aggression 1.5, 429 counted as failure",
                http_filter=peers.admission_control(),
            )
        case Name.ADAPTIVE_CONCURRENCY:
            return Contender(name=name, about=ADAPTIVE_ABOUT, http_filter=peers.adaptive_concurrency(ADAPTIVE))
        case Name.LOCAL_RATELIMIT:
            return Contender(
                name=name,
                about=f"{load_1_per_s:.1f} requests/s, load 1 of the everyday mix; a bucket of one second",
                http_filter=peers.local_ratelimit(per_s=load_1_per_s),
            )
        case Name.P99_WINDOW:
            return Contender(
                name=name,
                about="the guard alone, target the TTFT objective; 50 wait in one line, 300 ms at most",
                policy=_policy(engine_address) | _P99_POLICY,
            )
        case Name.TIDEGATE:
            return Contender(
                name=name,
                about="the shipped envoy.yaml and what its README names: slots, KV tokens, engine, objectives, tenant",
                policy=_policy(engine_address),
            )
        case Name.TIDEGATE_STATED:
            return Contender(
                name=name,
                about="the same, and tidegate-batched-tokens-max as the engine has it",
                policy=_policy(engine_address) | {"tidegate-batched-tokens-max": str(scenes.PROFILE.batched_tokens)},
            )
        case _:
            assert_never(name)


ADAPTIVE = peers.AdaptiveTuning(percentile=10.0, buffer_percent=100.0, min_concurrency=64, concurrency_max=96)
"""The best of 23 settings on this bench's own overload, in share of jobs in time: percentiles 10 to 90, buffers 25 to
100 %, least 16 to 128 and most 80 to 256 at once. How long an answer takes is mostly how long it is, so that its minRTT
is a matter of luck and what helps is little room: with 16 to 256 at once it reached half of this.
"""
ADAPTIVE_ABOUT = (
    f"tuned on this load: p{ADAPTIVE.percentile:g} of whole answers, buffer {ADAPTIVE.buffer_percent:g} %, "
    f"{ADAPTIVE.min_concurrency} to {ADAPTIVE.concurrency_max} at once"
)
_P99_POLICY: dict[str, str | None] = {
    "tidegate-gates": "p99-window",
    "tidegate-p99-target-ms": str(round(scenes.OBJECTIVE.ttft_s * 1000)),
    "tidegate-mode": "admission-first",
    "tidegate-queue-len-max": "50",
    "tidegate-queue-order": "fifo",
    "tidegate-queue-fair": "off",
}


def _policy(engine_address: str) -> dict[str, str | None]:
    """What a reader of the README sets: the two keys it names, who asks, what users want, and where the engine is."""
    return {
        "tidegate-slots-max": str(scenes.PROFILE.slots),
        "tidegate-kv-tokens-max": str(scenes.PROFILE.kv_tokens),
        "tidegate-engines": engine_address,
        "tidegate-engine": "vllm",
        "tidegate-tenant-from": f"header:{TENANT_HEADER}",
        "tidegate-ttft-budget-ms": str(round(scenes.OBJECTIVE.ttft_s * 1000)),
        "tidegate-tpot-target-ms": str(round(scenes.OBJECTIVE.tpot_s * 1000)),
    }
