"""Who takes part: a policy, how it is made and what it is told."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.goodput.adapter import StepSeconds
from bench.goodput.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a policy is made from: the pool as an operator states it, and for the clairvoyant one the truth."""

    pool: Mapping[str, Any]
    step_seconds: Mapping[str, StepSeconds]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A policy and how it is to be told things.

    Attributes:
        make: builds it.
        knows_lengths: it is given the true length of each answer.
        first_tokens: whether it is told of them.
        reading_period_s: how often it is told the engines' counts; None: never.
        queue_tokens_max: the engines' own bound.
    """

    make: Callable[[Scene], Policy]
    knows_lengths: bool = False
    first_tokens: bool = False
    reading_period_s: float | None = None
    queue_tokens_max: int | None = None
