"""The engines of a pool: one book each where the controller chooses the engine, one for all where Envoy does.

    share of a book   the start-up ramp x the health of its engine
    of a pooled book  the start-up ramp x the mean health of its engines: those it was told of or, where more are seen
                      in the access log, those

An engine's health is what its answers say (see health.py): it is known by the address in the access log, so a pool
finds out about each of its engines even where it does not choose among them. Besides the rules there, an engine that
refuses 5 times in a row without one success, or lets a client wait for 8 seconds without a byte, has failed. And the
last engine is never taken out for what it answers, or a client that provokes errors could close a pool: as long as it
can be reached it keeps a quarter of its limits.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf

import numpy as np

from tidegate.admission.arrays import Floats
from tidegate.admission.engine_book import EngineBook
from tidegate.admission.health import Health
from tidegate.admission.ledger import Booking
from tidegate.admission.limits import Limits
from tidegate.admission.outcome import Ending, Outcome
from tidegate.admission.ramp import Ramp
from tidegate.admission.records import as_record
from tidegate.admission.step_model import StepModel

_ADDRESSES_MAX = 256
_SEEN_S = 300.0
_REFUSALS_FAILED = 5
_SILENT_S = 8.0
_LAST_SHARE = 0.25
_CONNECT_DETAILS = ("connection_failure", "connection_timeout", "remote_connection_failure", "no_healthy_upstream")


class _Engine:
    """What the answers of one address say."""

    __slots__ = ("health", "refusals", "seen_s")

    def __init__(self) -> None:
        self.health = Health()
        self.refusals = 0
        self.seen_s = 0.0


class Fleet:
    """The books. `names` makes one each; without, one book stands for `count` engines."""

    def __init__(
        self,
        limits: Limits,
        *,
        count: int,
        names: Sequence[str] = (),
        now_s: float,
        ramp: bool,
        model_of: Callable[[], StepModel],
    ) -> None:
        self._limits = limits
        self._model_of = model_of
        self._ramp = Ramp(start_s=now_s, enabled=ramp)
        self._alive = max(len(names) or count, 0)
        self._engines: OrderedDict[str, _Engine] = OrderedDict()
        self._now_s = now_s
        self._shares_until_s = -inf
        self._orphans: dict[str, EngineBook] = {}
        self.sees_first_tokens = False
        if names:
            self.books = [self._book(limits, name, 1) for name in names]
        else:
            self.books = [self._book(limits, "", max(count, 1))]
        self._pooled = not names

    def __iter__(self) -> Iterator[EngineBook]:
        return iter(self.books)

    @property
    def width(self) -> int:
        """Engines that are alive, as far as the caller says."""
        return self._alive

    @property
    def ramp_share(self) -> float:
        """Share of the limits that the start-up ramp allows now."""
        return self._ramp.share(self._now_s)

    @property
    def reference(self) -> EngineBook:
        """The book that prices are made with: the most capable one that is up."""
        if self._pooled:
            return self.books[0]
        return max(self.books, key=lambda book: book.share)

    def up(self) -> Sequence[EngineBook]:
        """The engines that may be sent something, the most welcome first."""
        if self._alive == 0:
            return ()
        if self._pooled:
            return self.books if self.books[0].share > 0.0 else ()
        return sorted((book for book in self.books if book.share > 0.0), key=lambda book: book.welcome)

    def named(self, name: str) -> EngineBook:
        """The book of an engine; the first one where there is none of that name."""
        return next((book for book in self.books if book.name == name), self.books[0])

    def advance(self, now_s: float) -> None:
        """Reckon all books on to this time."""
        self._now_s = now_s
        for book in self.books:
            book.advance(now_s)
        if now_s >= self._shares_until_s:
            self._share_out()

    def next_change_s(self) -> float | None:
        """When time alone changes a share next."""
        return None if self._shares_until_s == inf else self._shares_until_s

    def set_alive(self, count: int, now_s: float) -> None:
        """Pooled: so many engines are alive, at least 0."""
        if self._alive == 0 and count > 0:
            self._ramp.restart(now_s)
        self._alive = max(count, 0)
        if self._pooled:
            self.books[0].width = max(self._alive, 1)
        self._shares_until_s = now_s
        self.advance(now_s)

    def reconfigure(self, limits: Limits) -> None:
        """Take over other limits; what was learned stays."""
        self._limits = limits
        for book in self.books:
            book.reconfigure(limits)

    def see_first_tokens(self) -> None:
        """First tokens are reported from now on."""
        self.sees_first_tokens = True
        for book in self.books:
            book.see_first_tokens()

    def pace(self, tpot_target_s: float) -> None:
        """Prompts are let in as this objective allows: that of the latest request."""
        for book in self.books:
            book.tpot_target_s = tpot_target_s

    def adopt(self, work_id: str, booking: Booking, now_s: float) -> None:
        """Take in what runs since before a restart; nobody knows where, so the least loaded book has it."""
        book = min(self.books, key=lambda each: each.sequences)
        book.adopt(work_id, sequences=booking.sequences, kv_tokens=booking.kv_tokens, now_s=now_s)
        self._orphans[work_id] = book

    def forget_orphan(self, work_id: str, now_s: float) -> None:
        """It has ended, as far as anybody knows."""
        book = self._orphans.pop(work_id, None)
        if book is not None:
            book.release(work_id, now_s)

    def estimates(self) -> tuple[Floats, Floats, Floats]:
        """Log-means and log-sigmas before calibration and tokens generated, of all that run."""
        if len(self.books) == 1:
            return self.books[0].estimates()
        means, sigmas, tokens = zip(*(book.estimates() for book in self.books), strict=True)
        return np.concatenate(means), np.concatenate(sigmas), np.concatenate(tokens)

    def dump(self) -> dict[str, object]:
        """What was learned of each engine, by its name, as plain records."""
        return {book.name: book.dump() for book in self.books}

    def restore(self, record: Mapping[str, object]) -> None:
        """Take over what was learned of engines that are still here; ValueError where it is damaged."""
        for book in self.books:
            if book.name in record:
                book.restore(as_record(record[book.name]))

    def judge(self, outcome: Outcome, now_s: float, *, silent_s: float = 0.0) -> None:
        """Take in what an outcome says of its engine's health; `silent_s`: how long a client that left had waited for
        a first byte.
        """
        engine = self._seen(outcome.engine, now_s)
        health = engine.health
        match outcome.ending:
            case Ending.COMPLETE | Ending.BAD_REQUEST:
                engine.refusals = 0
                health.succeeded(now_s)
            case Ending.ENGINE_REFUSED:
                engine.refusals += 1
                health.refused(now_s)
                if engine.refusals >= _REFUSALS_FAILED:
                    health.failed(now_s, connect=False)
            case Ending.ENGINE_FAILED:
                health.failed(now_s, connect=any(detail in outcome.details for detail in _CONNECT_DETAILS))
            case Ending.CLIENT_CANCELLED if silent_s >= _SILENT_S:
                health.failed(now_s, connect=False)
            case _:
                return
        self._share_out()

    def down(self) -> Iterable[str]:
        """Addresses of the engines that are down by what their answers say."""
        return (address for address, engine in self._engines.items() if engine.health.down(self._now_s))

    def _seen(self, address: str, now_s: float) -> _Engine:
        engine = self._engines.get(address)
        if engine is None:
            if len(self._engines) >= _ADDRESSES_MAX:
                self._engines.popitem(last=False)
            engine = self._engines[address] = _Engine()
        engine.seen_s = now_s
        self._engines.move_to_end(address)
        return engine

    def _share_out(self) -> None:
        """Give each book its share; it stays until time or an outcome changes it."""
        ramp_share = self._ramp.share(self._now_s)
        for book in self.books:
            book.share = ramp_share * self._health_share(book)
        if all(book.share == 0.0 for book in self.books):
            for book in self.books:
                book.share = ramp_share * self._last_share(book)
        moments = [engine.health.next_change_s(self._now_s) for engine in self._engines.values()]
        moments.append(self._ramp.next_step_s(self._now_s))
        self._shares_until_s = min((moment for moment in moments if moment is not None), default=inf)

    def _health_share(self, book: EngineBook) -> float:
        if not self._pooled:
            engine = self._engines.get(book.name)
            return 1.0 if engine is None else engine.health.share(self._now_s)
        seen = self._seen_lately()
        lost = sum(1.0 - engine.health.share(self._now_s) for engine in seen)
        return max(1.0 - lost / max(self._alive, len(seen), 1), 0.0)

    def _last_share(self, book: EngineBook) -> float:
        """Where nobody is left: what answers, if only with errors, is better than nothing."""
        if not self._pooled:
            engine = self._engines.get(book.name)
            return _LAST_SHARE if engine is not None and not engine.health.unreachable else 0.0
        answering = sum(not engine.health.unreachable for engine in self._seen_lately())
        return _LAST_SHARE * answering / max(self._alive, answering, 1)

    def _seen_lately(self) -> list[_Engine]:
        return [engine for engine in self._engines.values() if engine.seen_s > self._now_s - _SEEN_S]

    def _book(self, limits: Limits, name: str, width: int) -> EngineBook:
        book = EngineBook(limits, name=name, width=width, now_s=self._now_s, model=self._model_of())
        book.share = self._ramp.share(self._now_s)
        return book
