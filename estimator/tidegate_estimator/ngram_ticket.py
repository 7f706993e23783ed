"""A ticket of the n-gram estimator: the common one with the request's features behind it; 50 + 3 bytes a feature.

    common ticket | u8 version | u8 categorical | u8 head | u8 tail | f32 ln p90 | u24 hashes | u16 check

Names and texts are not in it, but hashes of words are: it is sealed before it travels.
"""

import struct
from math import isfinite
from zlib import crc32

from msgspec import Struct

from tidegate_estimator.features import CATEGORICAL_MAX, VERSION, Features, pack_hashes, unpack_hashes
from tidegate_estimator.ticket import TICKET_BYTES, Ticket, open_ticket
from tidegate_estimator.words import HEAD_WORDS, TAIL_WORDS

_FIGURES = struct.Struct("<BBBBf")
_CHECK = struct.Struct("<H")
_HASHES_AT = TICKET_BYTES + _FIGURES.size
HASH_BYTES = 3
NGRAM_TICKET_BYTES_MAX = _HASHES_AT + HASH_BYTES * (CATEGORICAL_MAX + HEAD_WORDS + TAIL_WORDS) + _CHECK.size


class NgramTicket(Struct, frozen=True, kw_only=True, gc=False):
    """What learning needs.

    Attributes:
        common: keys, caps and the predicted log-normal.
        features: of the request.
        log_p90: ln(1 + tokens) a sequence at p90, before its calibration and any cap.
    """

    common: Ticket
    features: Features
    log_p90: float

    def pack(self) -> bytes:
        """The ticket as bytes."""
        categorical, text, head = self.features.categorical, self.features.text, self.features.head_words
        figures = _FIGURES.pack(VERSION, len(categorical), head, len(text) - head, self.log_p90)
        body = self.common.pack() + figures + pack_hashes(categorical) + pack_hashes(text)
        return body + _CHECK.pack(crc32(body) & 0xFFFF)


def open_ngram_ticket(data: bytes) -> NgramTicket | None:
    """The ticket, or None where the bytes are not one of this version."""
    end = len(data) - _CHECK.size
    if not _HASHES_AT <= end < NGRAM_TICKET_BYTES_MAX:
        return None
    common = open_ticket(data[:TICKET_BYTES])
    version, categorical, head, tail, log_p90 = _FIGURES.unpack_from(data, TICKET_BYTES)
    if common is None or version != VERSION or _CHECK.unpack_from(data, end)[0] != crc32(data[:end]) & 0xFFFF:
        return None
    if end - _HASHES_AT != HASH_BYTES * (categorical + head + tail):
        return None
    if not (isfinite(log_p90) and abs(log_p90) < 50.0):
        return None
    hashes = unpack_hashes(data[_HASHES_AT:end])
    features = Features(hashes[:categorical], hashes[categorical:], head)
    return NgramTicket(common=common, features=features, log_p90=log_p90)
