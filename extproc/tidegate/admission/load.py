"""The pool as one request finds it: everything a decision may look at besides the request and the limits."""

from msgspec import Struct

from tidegate.admission.cost import Cost


class Load(Struct, frozen=True, kw_only=True, gc=False):
    """A snapshot, taken for one request.

    Attributes:
        cost: what this request asks for.
        engines: engines alive.
        share: share of the limits in use, 0.25 to 1: the ramp after a start.
        sequences, kv_tokens: booked in the whole pool.
        queue_len: requests that wait.
        queued_s: bottleneck seconds of all that wait.
        ahead_len: requests in the queue that go before this one.
        ahead_s: bottleneck seconds in the queue that are served before this one.
        makes_room: the queue is full, and somebody in it should make room for this one.
        drain_rate: bottleneck seconds that one engine takes up in a second.
        draining: the process is shutting down.
    """

    cost: Cost
    engines: int
    share: float = 1.0
    sequences: int = 0
    kv_tokens: int = 0
    queue_len: int = 0
    queued_s: float = 0.0
    ahead_len: int = 0
    ahead_s: float = 0.0
    makes_room: bool = False
    drain_rate: float = 1.0
    draining: bool = False

    @property
    def alone(self) -> bool:
        """Nothing runs: whatever comes may go, however large."""
        return self.sequences == 0

    @property
    def queue_wait_s(self) -> float:
        """Predicted time in the queue: bottleneck seconds ahead / what the engines take up in a second."""
        return self.ahead_s / (self.drain_rate * max(self.engines, 1))

    @property
    def first_token_s(self) -> float:
        """Predicted time to the first token, the queue included."""
        return self.queue_wait_s + self.cost.ttft_s


def capacity(per_engine: int, *, engines: int, share: float) -> int:
    """What the pool holds of a resource of which one engine holds `per_engine`: at least 1."""
    return max(1, int(share * per_engine * engines))


def queue_len_max(per_engine: int, *, engines: int) -> int:
    """Requests that may wait; a pool without any engine keeps the queue of one."""
    return per_engine * max(engines, 1)
