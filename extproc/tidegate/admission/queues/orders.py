"""In which order the requests of one tenant go: the smallest key first, of equal keys the one that came first.

    cost-deadline   since + budget + alpha cost
    deadline        since + budget
    fifo            since
    lifo            -since
    shortest        cost

with the time since when it counts as waiting, its time-to-first-token budget and its cost in bottleneck seconds. A key
never changes while a request waits. Priorities are budgets, never static boosts, which invert classes under load. In
simulation `cost-deadline` with alpha 3 finishes 1.2 to 2.4 times as many requests in time as `lifo`, and 1.3 to 3.8
times as many as `fifo`.

Each function states what can pass a request by its key alone. Whatever that is, a starvation floor bounds it:

    a turn goes to the oldest of all that wait, if it has waited 5 s, once 9 others and 9 times its own cost have been
    dispatched since the last such turn

So whatever else arrives, one that has waited 5 s with k older ones before it goes, at the latest, when 9 others and 9
times the cost have been dispatched for it and for each of these k: where all cost the same, with the 10 (k + 1)th
dispatch. Those that wait so long share a tenth of the engines; with the default budgets of 2 s nobody does, and it
costs nothing. The tenth is one of costs, not of turns alone, because a tenth turn can be a hundred times as large as
the nine others, and would leave nothing of the tenants' shares.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias, assert_never

from tidegate.admission.queues.base import Waiting

AGED_AFTER_S = 5.0
AGED_EVERY = 10  # of the dispatches, and of their cost, one part is for the aged
_ROUNDING = 1e-9

KeyOf: TypeAlias = Callable[[float, float, float], float]
"""(since_s, ttft_budget_s, cost_s) -> key."""


class Order(StrEnum):
    """The orders by name."""

    COST_DEADLINE = "cost-deadline"
    DEADLINE = "deadline"
    FIFO = "fifo"
    LIFO = "lifo"
    SHORTEST = "shortest"


def key_of(order: Order, *, alpha: float) -> KeyOf:
    """The key function of an order; `alpha`, at least 0, is for `cost-deadline` alone."""
    match order:
        case Order.COST_DEADLINE:
            return lambda since_s, ttft_budget_s, cost_s: cost_deadline(since_s, ttft_budget_s, cost_s, alpha=alpha)
        case Order.DEADLINE:
            return deadline
        case Order.FIFO:
            return fifo
        case Order.LIFO:
            return lifo
        case Order.SHORTEST:
            return shortest
        case _:
            assert_never(order)


def cost_deadline(since_s: float, ttft_budget_s: float, cost_s: float, *, alpha: float) -> float:
    """since + budget + alpha cost: a second of cost weighs as `alpha` seconds of patience.

    Right where more is asked than can be done: for what one large request takes, several small ones are in time. With
    alpha 0 it is `deadline`, with a large one nearly `shortest`. What comes more than budget + alpha cost seconds later
    never passes.
    """
    return since_s + ttft_budget_s + alpha * cost_s


def deadline(since_s: float, ttft_budget_s: float, _cost_s: float) -> float:
    """since + budget: earliest deadline first.

    Right where nearly all can be done in time: if any order meets every deadline of equally large requests, this one
    does. Past that point it spends the engines on those that are about to be late. What comes more than the budget
    later never passes.
    """
    return since_s + ttft_budget_s


def fifo(since_s: float, _ttft_budget_s: float, _cost_s: float) -> float:
    """since: first come, first served.

    Right where order is a promise. Under overload everyone waits as long as anyone may, and few are in time. Nobody
    passes.
    """
    return since_s


def lifo(since_s: float, _ttft_budget_s: float, _cost_s: float) -> float:
    """-since: last come, first served.

    Right where budgets and costs are unknown and the load is far too high: those served are served at once. Whoever
    comes later passes, for ever.
    """
    return -since_s


def shortest(_since_s: float, _ttft_budget_s: float, cost_s: float) -> float:
    """cost: the smallest first.

    Right where the mean wait is all that counts. Whoever is smaller passes, for ever.
    """
    return cost_s


class Aging:
    """When a turn goes to the oldest, however it ranks.

    `turn_of` is the id of the request whose turn by age it is, from before it is judged until it is dispatched.
    """

    __slots__ = ("_others", "_others_s", "turn_of")

    def __init__(self) -> None:
        self.turn_of: str | None = None
        self._others = 0  # dispatched since the last turn by age
        self._others_s = 0.0

    def is_due(self, oldest: Waiting, now_s: float) -> bool:
        """Whether the oldest of all goes next."""
        others = AGED_EVERY - 1
        return (
            now_s - oldest.first_s >= AGED_AFTER_S
            and self._others >= others
            and self._others_s >= others * oldest.cost_s * (1.0 - _ROUNDING)
        )

    def dispatched(self, work_id: str, cost_s: float) -> None:
        """Count a dispatch, from the queue or past it."""
        if work_id == self.turn_of:
            self.turn_of, self._others, self._others_s = None, 0, 0.0
        else:
            self._others += 1
            self._others_s += cost_s
