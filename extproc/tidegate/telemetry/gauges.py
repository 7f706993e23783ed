"""The gauges: what the pools and the process hold at this moment."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tidegate.admission.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Gauge:
    """One gauge: its name without prefix, and what it means."""

    name: str
    meaning: str


PoolGauges: TypeAlias = Mapping[str, Mapping[Gauge, float]]
"""Gauge values by pool name."""

_IN_FLIGHT = Gauge("in_flight", "Requests that hold a booking.")
_QUEUE = Gauge("queue_len", "Requests that wait for a verdict.")
_QUEUE_MAX = Gauge("queue_len_max", "Requests that may wait.")
_SEQUENCES = Gauge("sequences", "Sequence slots booked.")
_SLOTS = Gauge("slots", "Sequence slots there are, at the share in force.")
_KV = Gauge("kv_tokens", "KV tokens booked.")
_KV_MAX = Gauge("kv_tokens_capacity", "KV tokens there are, at the share in force.")
_TIMED = Gauge("timed", "Requests without tokens that run.")
_TIMED_MAX = Gauge("timed_capacity", "Requests without tokens that engines work on at once, as learned.")
_ENGINES = Gauge("engines", "Engines taken to be alive.")
_SHARE = Gauge("ramp_share", "Share of the limits in force: less after a start and while engines are sick.")
_DOWN = Gauge("engines_down", "Engines that get nothing for a while, for what their answers say.")
_PREFILL = Gauge("prefill_left_seconds", "Prompts the least loaded engine has still to do, as reckoned.")
_STEP = Gauge("step_seconds", "Time of an engine's step with a full prefill chunk, as learned.")
_GAIN = Gauge("step_gain", "How much slower engines are now than all that was learned of them says; 1: not at all.")
_TPOT = Gauge("tpot_seconds", "Time per output token, as learned from outcomes.")
_DRAIN = Gauge("drain_rate", "Cost admitted from the queue, in bottleneck seconds an engine and second.")
_ORPHANS = Gauge("orphan_bookings", "Bookings taken over from before a restart, not yet settled.")
_CONFLICT = Gauge("policy_conflict", "1 while two texts of pool-scoped keys compete for the pool.")
_STREAMS = Gauge("open_streams", "ext_proc streams that are open.")
_POOLS = Gauge("pools", "Pools alive.")
_DRAINING = Gauge("draining", "1 after SIGTERM.")
_OVERFLOWED = Gauge("pools_overflowed", "Requests booked in the shared pool because there were too many pools.")
_CONFLICTS = Gauge("policy_conflicts", "Times that a second text of pool-scoped keys began to compete for a pool.")
_BAD_POLICY = Gauge("bad_policy_streams", "Streams that ran under the last good policy because a key was wrong.")


def of_snapshot(snapshot: Snapshot, *, conflict: bool) -> dict[Gauge, float]:
    """Gauges of one pool."""
    return {
        _IN_FLIGHT: snapshot.in_flight,
        _QUEUE: snapshot.queue_len,
        _QUEUE_MAX: snapshot.queue_len_max,
        _SEQUENCES: snapshot.sequences,
        _SLOTS: snapshot.sequences_max,
        _KV: snapshot.kv_tokens,
        _KV_MAX: snapshot.kv_tokens_max,
        _TIMED: snapshot.timed,
        _TIMED_MAX: snapshot.timed_max,
        _ENGINES: snapshot.engines,
        _SHARE: snapshot.share,
        _DOWN: snapshot.engines_down,
        _PREFILL: snapshot.prefill_left_s,
        _STEP: snapshot.step_s,
        _GAIN: snapshot.step_gain,
        _TPOT: snapshot.tau_s,
        _DRAIN: snapshot.drain_rate,
        _ORPHANS: snapshot.orphans,
        _CONFLICT: float(conflict),
    }


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """What concerns no single pool."""

    gauges: Mapping[Gauge, float]
    counters: Mapping[Gauge, float]


def of_process(
    *, streams: int, pools: int, draining: bool, overflowed_total: int, conflicts_total: int, bad_policy_total: int
) -> ProcessFigures:
    """Figures of the process."""
    return ProcessFigures(
        gauges={_STREAMS: streams, _POOLS: pools, _DRAINING: float(draining)},
        counters={_OVERFLOWED: overflowed_total, _CONFLICTS: conflicts_total, _BAD_POLICY: bad_policy_total},
    )
