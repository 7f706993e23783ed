"""The state of a pool's controller at one moment, for gauges and for people."""

from dataclasses import dataclass

from tidegate.admission.utilisation import Utilisation


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Gauges of one pool.

    Attributes:
        in_flight: requests admitted whose stream has not ended.
        orphans: bookings restored after a restart that nothing has settled yet.
        sequences, kv_tokens: booked, orphans included.
        over_sequences, over_kv_tokens: the part of it booked over the limits, because it could not be refused.
        sequences_max, kv_tokens_max: what the pool may hold now; 0 while no engine lives.
        timed, timed_max: requests without tokens that run, and those that the engines work on at once, as learned.
        queue_len, queue_len_max: requests that wait, and how many may.
        queued_s: bottleneck seconds that wait.
        backlog_s: how long it will take to serve them.
        utilisation: of the pool's resources.
        engines: engines alive.
        engines_stale: engines whose readings are too old, or have not come for as long.
        foreign, foreign_total: sequences that engines run and nobody here has sent: now, and found so far.
        gone, gone_total: sequences booked that engines do not run any more: the same.
        share: share of the limits in use, 0.25 to 1.
        engines_down: engines that get nothing for what their answers say.
        prefill_left_s: seconds of prompts that the least loaded engine has still to do.
        step_s: seconds of a step with a full prefill chunk, as learned; step_gain: the fast part of that.
        tau_s: seconds a token takes, as learned.
        drain_rate: bottleneck seconds that one engine takes up in a second, as measured.
        draining: the process is shutting down.
    """

    in_flight: int
    orphans: int
    sequences: int
    kv_tokens: int
    over_sequences: int
    over_kv_tokens: int
    sequences_max: int
    kv_tokens_max: int
    timed: int
    timed_max: int
    queue_len: int
    queue_len_max: int
    queued_s: float
    backlog_s: float
    utilisation: Utilisation
    engines: int
    engines_stale: int
    foreign: int
    foreign_total: int
    gone: int
    gone_total: int
    share: float
    engines_down: int
    prefill_left_s: float
    step_s: float
    step_gain: float
    tau_s: float
    drain_rate: float
    draining: bool

    @property
    def sequences_free(self) -> int:
        """Slots left; negative while over-booked. Held and free add up to the capacity at any moment."""
        return self.sequences_max - self.sequences

    @property
    def kv_tokens_free(self) -> int:
        """KV tokens left; negative while over-booked."""
        return self.kv_tokens_max - self.kv_tokens
