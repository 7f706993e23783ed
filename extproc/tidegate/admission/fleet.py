"""The engines of a pool: one book each where the controller chooses the engine, one for all where Envoy does.

    share of a book   the start-up ramp x the health of its engine, or of the whole pool (see healths.py)
                      x what its readings allow (see meters.py)

Engines come and go under a running controller. Who stays keeps the book, who comes gets a new one, and the book of who
goes is put aside: it gets nothing more, counts for no capacity, and is dropped when the last of its requests has ended.
Where the choice itself passes from Envoy to the controller or back, nobody can say which engine runs what, or it no
longer matters: the new books take in all that runs, at its booked size, and start from what the old ones had learned.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf

import numpy as np

from tidegate.admission.arrays import Floats
from tidegate.admission.engine_book import EngineBook
from tidegate.admission.healths import Healths
from tidegate.admission.ledger import Booking
from tidegate.admission.limits import Limits
from tidegate.admission.meters import Meters
from tidegate.admission.outcome import Outcome
from tidegate.admission.ramp import Ramp
from tidegate.admission.reading import EngineReading
from tidegate.admission.records import as_record
from tidegate.admission.step_model import StepModel


class Fleet:
    """The books. `names` makes one each; without, one book stands for `count` engines.

    Attributes:
        meters: what the engines say of themselves, where they are asked.
        memory_free_mib: of the GPU that has the least, None where no engine tells.
        foreign_total, gone_total: sequences found that nobody here had sent, and bookings found whose request is gone.
    """

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
        self._healths = Healths()
        self.meters = Meters(limits)
        self.memory_free_mib: float | None = None
        self.foreign_total = self.gone_total = 0
        self._now_s = now_s
        self._shares_until_s = -inf
        self._orphans: dict[str, EngineBook] = {}
        self._leaving: list[EngineBook] = []  # of engines that have left; each runs something, so that is their bound
        self.sees_first_tokens = False
        self._pooled = not names
        self.books = [self._book(name, 1) for name in names] if names else [self._book("", max(count, 1))]

    def __iter__(self) -> Iterator[EngineBook]:
        return iter(self.books)

    @property
    def width(self) -> int:
        """Engines that are alive, as far as the caller says."""
        return self._alive

    @property
    def share(self) -> float:
        """Share of all limits that is in force now."""
        return sum(book.share for book in self.books) / len(self.books)

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

    def meter(self, addresses: Sequence[str], now_s: float) -> None:
        """Readings of these engines are expected from now on, and of no others."""
        self.meters.follow(addresses, now_s)
        self._share_out()

    def read(self, name: str, reading: EngineReading, now_s: float) -> None:
        """Take in what an engine says; where it is one of many in a pooled book, in a sum with theirs."""
        self._now_s = now_s
        if name not in self.meters:
            self._read(self.named(name), reading, now_s)
            return
        reading = reading.checked()
        shared = self.meters.share(name), self.meters.is_blind()
        self.meters.take(name, reading, now_s)
        self.memory_free_mib = self.meters.memory_free_mib()
        if self._pooled:
            whole = self.meters.whole()
            if whole is not None:
                self._read(self.books[0], whole, now_s)
        else:
            self._read(self.named(name), reading, now_s)
        if shared != (self.meters.share(name), self.meters.is_blind()):
            self._share_out()

    def missed(self, name: str, now_s: float, *, began_anew: bool) -> None:
        """An engine could not be read; `began_anew`: what answers there now is not what was read before."""
        self._now_s = now_s
        busy = any(book.sequences for book in self.books if self._pooled or book.name == name)
        self.meters.missed(name, now_s, busy=busy, began_anew=began_anew)
        self._share_out()

    def advance(self, now_s: float) -> None:
        """Reckon all books on to this time."""
        self._now_s = now_s
        for book in self.books:
            book.advance(now_s)
        if self._leaving:
            self._leaving = [book for book in self._leaving if book.sequences]
            for book in self._leaving:
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

    def reconfigure(self, limits: Limits, names: Sequence[str]) -> None:
        """Take over other limits and engines; what was learned of those that stay stays.

        What runs in a book that is not kept (see `keeps`) is the caller's to take in.
        """
        self._limits = limits
        self.meters.reconfigure(limits)
        if list(names) != [book.name for book in self.books if book.name]:
            self._change_books(names)
        for book in (*self.books, *self._leaving):
            book.reconfigure(limits)
        self._shares_until_s = -inf

    def keeps(self, book: EngineBook) -> bool:
        """Whether this book still stands for something."""
        return book in self.books or book in self._leaving

    def see_first_tokens(self) -> None:
        """First tokens are reported from now on."""
        self.sees_first_tokens = True
        for book in self.books:
            book.see_first_tokens()

    def pace(self, tpot_target_s: float) -> None:
        """Prompts are let in as this objective allows: that of the latest request."""
        for book in self.books:
            book.tpot_target_s = tpot_target_s

    def take_in(self, work_id: str, booking: Booking, now_s: float) -> EngineBook:
        """Take in what runs already, nobody knows where: the least loaded book has it, this one."""
        book = min(self.books, key=lambda each: each.sequences)
        book.adopt(work_id, sequences=booking.sequences, kv_tokens=booking.kv_tokens, now_s=now_s)
        return book

    def adopt(self, work_id: str, booking: Booking, now_s: float) -> None:
        """Take in what runs since before a restart; without effect where a book that is kept has it."""
        book = self._orphans.get(work_id)
        if book is None or not self.keeps(book):
            self._orphans[work_id] = self.take_in(work_id, booking, now_s)

    def forget_orphan(self, work_id: str, now_s: float) -> None:
        """It has ended, as far as anybody knows."""
        book = self._orphans.pop(work_id, None)
        if book is not None:
            book.release(work_id, now_s)

    def estimates(self) -> tuple[Floats, Floats, Floats]:
        """Log-means and log-sigmas before calibration and tokens generated, of all that run."""
        books = (*self.books, *self._leaving)
        if len(books) == 1:
            return books[0].estimates()
        means, sigmas, tokens = zip(*(book.estimates() for book in books), strict=True)
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
        if self._healths.judge(outcome, now_s, silent_s=silent_s):
            self._share_out()

    def down(self) -> Sequence[str]:
        """Addresses of the engines that are down by what their answers say."""
        down = self._healths.down(self._now_s)
        if self._pooled:
            return tuple(down)
        names = {book.name for book in self.books}
        return [address for address in down if address in names]

    def _share_out(self) -> None:
        """Give each book its share; it stays until time or an outcome changes it."""
        ramp_share = self._ramp.share(self._now_s)
        self.meters.advance(self._now_s)
        self.memory_free_mib = self.meters.memory_free_mib()
        allowed = [ramp_share * self._meter_share(book) for book in self.books]
        for book, share in zip(self.books, allowed, strict=True):
            book.share = share * self._health_share(book)
            if self.meters.is_blind(book.name):
                book.others.forget()
        if all(book.share == 0.0 for book in self.books):
            for book, share in zip(self.books, allowed, strict=True):
                book.share = share * self._last_share(book)
        moments = (
            self._healths.next_change_s(self._now_s),
            self._ramp.next_step_s(self._now_s),
            self.meters.next_change_s(),
        )
        self._shares_until_s = min((moment for moment in moments if moment is not None), default=inf)

    def _health_share(self, book: EngineBook) -> float:
        if self._pooled:
            return self._healths.pool_share(self._alive, self._now_s)
        return self._healths.share(book.name, self._now_s)

    def _meter_share(self, book: EngineBook) -> float:
        return self.meters.pool_share() if self._pooled else self.meters.share(book.name)

    def _read(self, book: EngineBook, reading: EngineReading, now_s: float) -> None:
        foreign, gone = book.others.foreign, book.others.gone
        book.read(reading, now_s)
        self.foreign_total += max(book.others.foreign - foreign, 0)
        self.gone_total += max(book.others.gone - gone, 0)

    def _last_share(self, book: EngineBook) -> float:
        if self._pooled:
            return self._healths.last_pool_share(self._alive, self._now_s)
        return self._healths.last_share(book.name)

    def _change_books(self, names: Sequence[str]) -> None:
        learned, switched, before = self.reference.dump(), self._pooled != (not names), self.books
        old = {book.name: book for book in (*self._leaving, *before) if book.name}
        self._pooled = not names
        self.books = [old[name] if name in old else self._book(name, 1) for name in names or ("",)]
        self._leaving = [
            book
            for book in old.values()
            if book.sequences and book not in self.books and not (switched and book in before)
        ]
        if switched:
            for book in self.books:
                if not book.sequences:
                    book.restore(learned)

    def _book(self, name: str, width: int) -> EngineBook:
        book = EngineBook(self._limits, name=name, width=width, now_s=self._now_s, model=self._model_of())
        book.share = self._ramp.share(self._now_s)
        if self.sees_first_tokens:
            book.see_first_tokens()
        return book
