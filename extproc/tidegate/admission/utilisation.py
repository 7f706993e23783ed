"""How much of what it has a pool uses, resource by resource: for whoever adds and removes engines.

    slots      sequences in the engines, foreign ones included / sequence slots
    kv         the coming peak of KV tokens, foreign ones included / 0.95 of what there is
    prefill    seconds of prompts without a first token / what the prefill gate allows at a budget of 2 s
    service    requests without tokens / those that the engines work on at once

Each is what its gate compares, so that 1 is where requests begin to wait; the highest is the bottleneck. Of several
engines, the mean of those that are up. CPU and GPU utilisation say little here: an engine decodes at full speed with
one sequence as with a hundred.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from tidegate.admission.engine_book import EngineBook
from tidegate.admission.gates.kv import KV_SHARE
from tidegate.admission.gates.prefill import backlog_s_max

_BUDGET_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """Shares from 0; above 1 where requests were let in that could not be refused."""

    slots: float = 0.0
    kv: float = 0.0
    prefill: float = 0.0
    service: float = 0.0

    @property
    def highest(self) -> float:
        """That of the scarcest resource."""
        return max(self.slots, self.kv, self.prefill, self.service)


def utilisation(books: Sequence[EngineBook]) -> Utilisation:
    """Of the engines that are up; nothing where none is."""
    up = [book for book in books if book.share > 0.0]
    if not up:
        return Utilisation()
    return Utilisation(
        slots=fmean(map(_slots, up)),
        kv=fmean(map(_kv, up)),
        prefill=fmean(map(_prefill, up)),
        service=fmean(map(_service, up)),
    )


def _slots(book: EngineBook) -> float:
    others = book.others.sequences
    return max(book.sequences + others, 0) / max(book.slots + others, 1)


def _kv(book: EngineBook) -> float:
    others = book.others.kv_tokens
    return max(book.kv_peak_now_tokens + others, 0.0) / max(KV_SHARE * (book.kv_tokens_max + others), 1.0)


def _prefill(book: EngineBook) -> float:
    step_s = book.tpot_s(joining=0, prefill=True)
    return book.prefill_left_s / (book.share * backlog_s_max(_BUDGET_S, step_s))


def _service(book: EngineBook) -> float:
    timed = book.timed_load()
    return timed.running / timed.most
