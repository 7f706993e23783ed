"""A client's request, and each attempt it makes."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a client wants and how long it waits; times in seconds.

    Attributes:
        at_s: when it first asks.
        completion_tokens: the true length of its answer; a policy sees `log_mean` and `log_sigma` only.
        ttft_budget_s, tpot_target_s: the objectives: arrival to first token, and mean time of each later token.
        first_timeout_s, whole_timeout_s: when the client gives up on the first token, and on the whole answer.
        cost_s: what it takes from the engine, for the quartiles.
    """

    index: int
    at_s: float
    tenant: str
    prompt_tokens: int
    completion_tokens: int
    max_tokens: int
    log_mean: float
    log_sigma: float
    ttft_budget_s: float
    tpot_target_s: float
    first_timeout_s: float
    whole_timeout_s: float
    cost_s: float


class State(StrEnum):
    """Where an attempt is, or how it ended."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    REJECTED = "rejected"  # the policy said no
    FAILED = "failed"  # an engine said no, or crashed
    LEFT = "left"  # the client gave up


class Attempt:
    """One attempt of a request; only the simulation writes it."""

    __slots__ = (
        "admitted_s",
        "arrived_s",
        "ended_s",
        "engine",
        "first_s",
        "id",
        "number",
        "request",
        "state",
        "status",
    )

    def __init__(self, request: Request, number: int, arrived_s: float) -> None:
        self.request = request
        self.number = number
        self.id = f"{request.index}.{number}"
        self.arrived_s = arrived_s
        self.state = State.QUEUED
        self.engine = ""
        self.admitted_s: float | None = None
        self.first_s: float | None = None
        self.ended_s: float | None = None
        self.status = 0

    @property
    def good(self) -> bool:
        """Whether it met both objectives; the wait in a queue counts towards the first."""
        if self.state is not State.DONE:
            return False
        assert self.first_s is not None
        assert self.ended_s is not None
        later = self.request.completion_tokens - 1
        return (
            self.first_s - self.arrived_s <= self.request.ttft_budget_s
            and self.ended_s - self.first_s <= self.request.tpot_target_s * later + 1e-9
        )
