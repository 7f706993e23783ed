"""What a decision may look at besides the request and the limits: the engines as they are, and the queue."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from tidegate.admission.contract import Breach
from tidegate.admission.cost import Cost


class TimedLoad(Struct, frozen=True, kw_only=True, gc=False):
    """The requests without tokens that an engine runs.

    Attributes:
        running: how many.
        most: how many it works on at once, at its present share.
        trust: what the time of one more would be worth as a sample (see service_book.py).
    """

    running: int = 0
    most: int = 1
    trust: float = 1.0


class EngineLoad(Protocol):
    """One engine that is up, as the gates see it: figures of now, nothing that can be changed.

    Where Envoy chooses among the engines of a pool, this is all of them together, and capacities are sums.

    Attributes:
        name: its address; empty where it stands for a whole pool.
        share: share of its capacity in use, above 0 and at most 1: the ramp after a start or an outage.
        sequences, slots: sequences it runs, and those it may run at this share.
        kv_tokens, kv_tokens_max: KV tokens its requests hold, and those it holds at this share.
        prefilling: a prompt is being prefilled or waits for it.
        prefill_left_s: how long the prompts it has been given will still take.
    """

    @property
    def name(self) -> str: ...
    @property
    def share(self) -> float: ...
    @property
    def sequences(self) -> int: ...
    @property
    def slots(self) -> int: ...
    @property
    def kv_tokens(self) -> float: ...
    @property
    def kv_tokens_max(self) -> int: ...
    @property
    def prefilling(self) -> bool: ...
    @property
    def prefill_left_s(self) -> float: ...

    def timed_load(self) -> TimedLoad:
        """Its requests without tokens."""
        ...

    def kv_demand_tokens(self, cost: Cost) -> float:
        """KV tokens needed if all requests grew to their expected ends at the same time, this one included."""
        ...

    def kv_peak_tokens(self, cost: Cost) -> float:
        """The most KV tokens that are expected to be held at once, this request included."""
        ...

    def ttft_s(self, prompt_tokens: float) -> float:
        """From being sent to it to the first token of such a prompt."""
        ...

    def tpot_s(self, *, joining: int, prefill: bool) -> float:
        """Time of a step once so many more sequences decode; with a full prefill chunk in it, or none."""
        ...

    def prefill_allowance(self, tpot_target_s: float) -> tuple[float, float]:
        """Prompt tokens a second that keep the time a token takes at this target, and how many it has saved up."""
        ...


class Signals(Struct, frozen=True, kw_only=True, gc=False):
    """What the guards compare with: limits that were learned beside the gates, and figures of the whole pool.

    Attributes:
        p99_window: requests in flight that the window of p99 times allows, or None where nobody keeps it.
        littles_law: requests in flight that the rate of completions sustains, or None while that is unknown.
        memory_free_mib: GPU memory that is free, or None where no engine tells.
    """

    p99_window: float | None = None
    littles_law: float | None = None
    memory_free_mib: float | None = None


NO_SIGNALS = Signals()


class Load(Struct, frozen=True, kw_only=True, gc=False):
    """The pool as one request finds it.

    Attributes:
        cost: what this request asks for.
        engines: those that are up, the most welcome first.
        in_flight: requests that run.
        queue_len: requests that wait.
        queue_len_max: requests that may wait.
        queued_s: bottleneck seconds of all that wait.
        ahead_len: requests in the queue that go before this one.
        ahead_s: bottleneck seconds in the queue that are served before this one.
        makes_room: the queue is full, and somebody in it should make room for this one.
        drain_rate: bottleneck seconds that one engine takes up in a second.
        width: how many engines `engines` stands for.
        draining: the process is shutting down.
        signals: what the guards compare with.
        breach: the limit in its tenant's contract that stands against it, or None.
        asked_delay_s: how long the engines have asked that nobody comes back; 0 where they have not.
    """

    cost: Cost
    engines: Sequence[EngineLoad]
    in_flight: int = 0
    queue_len: int = 0
    queue_len_max: int = 50
    queued_s: float = 0.0
    ahead_len: int = 0
    ahead_s: float = 0.0
    makes_room: bool = False
    drain_rate: float = 1.0
    width: int = 1
    draining: bool = False
    signals: Signals = NO_SIGNALS
    breach: Breach | None = None
    asked_delay_s: float = 0.0

    @property
    def queue_wait_s(self) -> float:
        """Predicted time in the queue: bottleneck seconds ahead / what the engines take up in a second."""
        return self.ahead_s / (self.drain_rate * max(self.width, 1))

    @property
    def pressure_s(self) -> float:
        """Time it would take to serve all that wait."""
        return self.queued_s / (self.drain_rate * max(self.width, 1))
