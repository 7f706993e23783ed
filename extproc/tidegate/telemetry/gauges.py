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
_BACKLOG = Gauge("backlog_seconds", "How long those that wait will take the engines.")
_USED = Gauge("utilisation", "Share of its scarcest resource that the pool uses; 1 is where requests begin to wait.")
_USED_SLOTS = Gauge("utilisation_slots", "Share of the sequence slots in use.")
_USED_KV = Gauge("utilisation_kv", "Share of the KV tokens that will be in use at the coming peak.")
_USED_PREFILL = Gauge("utilisation_prefill", "Prompts without a first token, as a share of what is let in.")
_USED_SERVICE = Gauge("utilisation_service", "Requests without tokens, as a share of what engines work on at once.")
_STALE = Gauge("engines_stale", "Engines that are asked and have not been read for too long.")
_FOREIGN = Gauge("foreign_sequences", "Sequences that engines run beside those sent from here.")
_GONE = Gauge("gone_sequences", "Sequences booked that engines do not run any more.")
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
_FOREIGN_FOUND = Gauge("foreign_found", "Sequences found in engines that were not sent from here.")
_GONE_FOUND = Gauge("gone_found", "Sequences found booked that engines did not run any more.")
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
        _BACKLOG: snapshot.backlog_s,
        _USED: _used(snapshot),
        _USED_SLOTS: snapshot.utilisation.slots,
        _USED_KV: snapshot.utilisation.kv,
        _USED_PREFILL: snapshot.utilisation.prefill,
        _USED_SERVICE: snapshot.utilisation.service,
        _STALE: snapshot.engines_stale,
        _FOREIGN: snapshot.foreign,
        _GONE: snapshot.gone,
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


def counts_of(snapshot: Snapshot) -> dict[Gauge, float]:
    """Counters of one pool that its controller keeps."""
    return {_FOREIGN_FOUND: snapshot.foreign_total, _GONE_FOUND: snapshot.gone_total}


def _used(snapshot: Snapshot) -> float:
    """Where no engine is up there is nothing to have a share of, and all of it is missing if somebody waits."""
    return max(snapshot.utilisation.highest, float(snapshot.sequences_max == 0 and snapshot.queue_len > 0))


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
