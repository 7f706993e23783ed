"""What an estimate leaves behind so that any replica can learn from its answer: 41 bytes, no names in them."""

import struct
from math import isfinite
from zlib import crc32

from msgspec import Struct

from tidegate_estimator.caps import Caps

VERSION = 1
U32_MAX = 2**32 - 1

_BODY = struct.Struct("<BBBQIIIIIff")
_CHECK = struct.Struct("<H")
TICKET_BYTES = _BODY.size + _CHECK.size


class Ticket(Struct, frozen=True, kw_only=True, gc=False):
    """An estimate's keys and figures.

    Attributes:
        forced: the answer's length was dictated by the caller, so that it says nothing about the model.
        bucket: of the prompt's size.
        key: 64-bit hash of tenant and model; `model` a 32-bit hash of the model.
        base_tokens: prompt tokens before the model's own correction; 0 where the prompt cannot teach (ids, images).
        cap_tokens: completion tokens the caller allows, all sequences together; 0 is no cap.
        min_tokens: completion tokens the caller demands, all sequences together.
        sequences: completions generated at once.
        log_mean, log_sigma: as predicted, all sequences together.
    """

    forced: bool
    bucket: int
    key: int
    model: int
    base_tokens: int
    cap_tokens: int
    min_tokens: int
    sequences: int
    log_mean: float
    log_sigma: float

    def pack(self) -> bytes:
        """The ticket as bytes."""
        body = _BODY.pack(
            VERSION,
            self.forced,
            self.bucket,
            self.key,
            self.model,
            self.base_tokens,
            self.cap_tokens,
            self.min_tokens,
            self.sequences,
            self.log_mean,
            self.log_sigma,
        )
        return body + _CHECK.pack(crc32(body) & 0xFFFF)


def ticket_of(
    caps: Caps, *, bucket: int, key: int, model: int, base_tokens: int, log_mean: float, log_sigma: float
) -> Ticket:
    """The ticket of an estimate under the caller's bounds."""
    return Ticket(
        forced=not caps.teaches,
        bucket=bucket,
        key=key,
        model=model,
        base_tokens=base_tokens,
        cap_tokens=min(caps.cap or 0, U32_MAX),
        min_tokens=min(caps.least, U32_MAX),
        sequences=caps.sequences,
        log_mean=log_mean,
        log_sigma=log_sigma,
    )


def open_ticket(data: bytes) -> Ticket | None:
    """The ticket, or None where the bytes are not one of this version."""
    if len(data) != TICKET_BYTES or data[0] != VERSION:
        return None
    body = data[: _BODY.size]
    if _CHECK.unpack_from(data, _BODY.size)[0] != crc32(body) & 0xFFFF:
        return None
    _, forced, bucket, key, model, base, cap, least, sequences, log_mean, log_sigma = _BODY.unpack(body)
    if sequences < 1 or not (isfinite(log_mean) and abs(log_mean) < 50.0 and 0.0 < log_sigma < 5.0):
        return None
    return Ticket(
        forced=bool(forced),
        bucket=bucket,
        key=key,
        model=model,
        base_tokens=base,
        cap_tokens=cap,
        min_tokens=least,
        sequences=sequences,
        log_mean=log_mean,
        log_sigma=log_sigma,
    )
