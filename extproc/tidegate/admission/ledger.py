"""Who holds what: one booking an id, and the sums of all of them.

A booking belongs to a live stream until that stream ends. An *orphan* is a booking restored after a restart: its
engine still works on it, but no stream of this process will ever give it back. It goes when the access log reports its
request, or at a time by which that must long have happened.
"""

from msgspec import Struct

from tidegate.admission.expiry import ExpiryHeap


class Booking(Struct, frozen=True, kw_only=True, gc=False):
    """What one request holds.

    Attributes:
        sequences, kv_tokens: slots and KV tokens, at least 1 each.
        over: booked although a gate was shut, because the request could not be refused.
        ends_at_s: when its answer should long be complete; only a restart makes use of it.
    """

    sequences: int
    kv_tokens: int
    over: bool = False
    ends_at_s: float = 0.0


class Ledger:
    """Bookings by id; every operation is O(1) amortised, and O(log n) where orphans are concerned.

    `sequences` and `kv_tokens` are the sums over live bookings and orphans; `over_sequences` and `over_kv_tokens` the
    part of it that could not be refused.
    """

    __slots__ = ("_expiry", "_live", "_orphans", "kv_tokens", "over_kv_tokens", "over_sequences", "sequences")

    def __init__(self) -> None:
        self._live: dict[str, Booking] = {}
        self._orphans: dict[str, Booking] = {}
        self._expiry = ExpiryHeap()
        self.sequences = 0
        self.kv_tokens = 0
        self.over_sequences = 0
        self.over_kv_tokens = 0

    def __len__(self) -> int:
        """Live bookings, orphans apart."""
        return len(self._live)

    def __contains__(self, work_id: str) -> bool:
        """Whether this id has a live booking."""
        return work_id in self._live

    @property
    def orphans(self) -> int:
        return len(self._orphans)

    def book(self, work_id: str, booking: Booking) -> bool:
        """Book a request that is admitted; its id must not be live. True where an orphan was given up for it.

        Ids are unique within one process only, so an orphan may have the same; then its engine's log entry can no
        longer be told from the newcomer's, and the orphan is given up.
        """
        assert work_id not in self._live, f"{work_id} is already booked"
        orphaned = self.settle(work_id)
        self._live[work_id] = booking
        self._add(booking, 1)
        return orphaned

    def release(self, work_id: str) -> bool:
        """Give a live booking back; False where there is none."""
        booking = self._live.pop(work_id, None)
        if booking is None:
            return False
        self._add(booking, -1)
        return True

    def adopt(self, work_id: str, booking: Booking) -> bool:
        """Book an orphan until its `ends_at_s`; False where its id is booked already."""
        if work_id in self._live or work_id in self._orphans:
            return False
        self._orphans[work_id] = booking
        self._expiry.add(work_id, booking.ends_at_s)
        self._add(booking, 1)
        return True

    def settle(self, work_id: str) -> bool:
        """Give an orphan back; False where there is none of that id."""
        booking = self._orphans.pop(work_id, None)
        if booking is None:
            return False
        self._expiry.discard(work_id)
        self._add(booking, -1)
        return True

    def expire(self, now_s: float) -> list[str]:
        """Give back the orphans whose time has come; their ids."""
        ended = self._expiry.pop_ended(now_s)
        for work_id in ended:
            self._add(self._orphans.pop(work_id), -1)
        return ended

    def next_expiry_s(self) -> float | None:
        """When the next orphan's time comes; None where there is none."""
        return self._expiry.next_s()

    def items(self) -> list[tuple[str, Booking]]:
        """All bookings, orphans last."""
        return [*self._live.items(), *self._orphans.items()]

    def _add(self, booking: Booking, sign: int) -> None:
        self.sequences += sign * booking.sequences
        self.kv_tokens += sign * booking.kv_tokens
        if booking.over:
            self.over_sequences += sign * booking.sequences
            self.over_kv_tokens += sign * booking.kv_tokens
