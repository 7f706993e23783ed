"""What an estimate of a service time leaves behind, so that any replica can learn from its answer: 22 bytes."""

import struct
from math import exp, isfinite

from msgspec import Struct

MAGIC = 0x53
"""First byte; tickets of completion lengths begin with their version, 1."""
CLASS_MAX = 127
_Z90 = 1.2815515655446004
_BODY = struct.Struct("<BQBfff")
TICKET_BYTES = _BODY.size
_LOG_MAX, _SIGMA_MAX, _TRUST_LEAST = 20.0, 4.0, 1e-6


class ServiceTicket(Struct, frozen=True, kw_only=True, gc=False):
    """An estimate's keys and figures.

    Attributes:
        key: 64-bit hash of the model's name.
        size_class: half octave of the input's size; 0 where it was not told.
        log_mean, log_sigma: ln of the seconds, as predicted.
        trust: weight of its time as a sample, above 0 and at most 1; less than 1 where others were in its engine that
            it may have waited for.
    """

    key: int
    size_class: int
    log_mean: float
    log_sigma: float
    trust: float

    @property
    def mean_s(self) -> float:
        """The mean of what was predicted, in seconds."""
        return mean_of(self.log_mean, self.log_sigma)

    @property
    def p90_s(self) -> float:
        """What nine of ten should have stayed below, in seconds."""
        return p90_of(self.log_mean, self.log_sigma)

    def pack(self) -> bytes:
        """The ticket as bytes."""
        trust = max(self.trust, _TRUST_LEAST)
        return _BODY.pack(MAGIC, self.key, self.size_class, self.log_mean, self.log_sigma, trust)


def mean_of(log_mean: float, log_sigma: float) -> float:
    """The mean of a log-normal."""
    return exp(log_mean + log_sigma * log_sigma / 2.0)


def p90_of(log_mean: float, log_sigma: float) -> float:
    """The value that nine of ten of a log-normal stay below."""
    return exp(log_mean + _Z90 * log_sigma)


def open_service_ticket(data: bytes) -> ServiceTicket | None:
    """The ticket in these bytes, or None where they are none of ours."""
    if len(data) != TICKET_BYTES or data[0] != MAGIC:
        return None
    _, key, size_class, log_mean, log_sigma, trust = _BODY.unpack(data)
    figures = (log_mean, log_sigma, trust)
    in_range = abs(log_mean) <= _LOG_MAX and 0.0 < log_sigma <= _SIGMA_MAX
    if not (all(map(isfinite, figures)) and in_range and 0.0 < trust <= 1.0 and size_class <= CLASS_MAX):
        return None
    return ServiceTicket(key=key, size_class=size_class, log_mean=log_mean, log_sigma=log_sigma, trust=trust)
