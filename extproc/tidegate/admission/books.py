"""Bookings as plain records that outlive the process, and back: what a state file keeps of a ledger.

A record is `{"id": str, "sequences": int, "kv_tokens": int, "expires_in_s": float}`. Times are differences, because a
new process has a new clock. Reading is forgiving: a record that is not of this shape is skipped, since a pool that
starts with a few bookings too few is better than one that does not start.
"""

from collections.abc import Iterable, Iterator, Mapping

from tidegate.admission.ledger import Booking

_BOOKS_MAX = 65_536
_ID_LEN_MAX = 256
_UNITS_MAX = 1_000_000_000
_EXPIRES_IN_S_MIN, _EXPIRES_IN_S_MAX = 1.0, 3600.0


def dump(items: Iterable[tuple[str, Booking]], now_s: float) -> list[dict[str, object]]:
    """One record a booking; the first 65,536 of them."""
    return [
        {
            "id": work_id,
            "sequences": booking.sequences,
            "kv_tokens": booking.kv_tokens,
            "expires_in_s": max(booking.ends_at_s - now_s, _EXPIRES_IN_S_MIN),
        }
        for (work_id, booking), _ in zip(items, range(_BOOKS_MAX), strict=False)
    ]


def read(books: Iterable[Mapping[str, object]], now_s: float) -> Iterator[tuple[str, Booking]]:
    """The usable records among the first 65,536, as bookings that end between 1 s and an hour from now."""
    for book, _ in zip(books, range(_BOOKS_MAX), strict=False):
        work_id, expires_in_s = book.get("id"), book.get("expires_in_s")
        sequences, kv_tokens = _units(book.get("sequences")), _units(book.get("kv_tokens"))
        if not isinstance(work_id, str) or not 0 < len(work_id) <= _ID_LEN_MAX or not sequences or not kv_tokens:
            continue
        if not isinstance(expires_in_s, int | float) or not 0 < expires_in_s < _UNITS_MAX:
            continue
        ends_at_s = now_s + min(max(expires_in_s, _EXPIRES_IN_S_MIN), _EXPIRES_IN_S_MAX)
        yield work_id, Booking(sequences=sequences, kv_tokens=kv_tokens, ends_at_s=ends_at_s)


def _units(value: object) -> int | None:
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _UNITS_MAX
    return value if usable and isinstance(value, int) else None
