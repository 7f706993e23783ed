"""A request as hashed features: who asks which model how much, and the words at both ends of the last message.

    categorical: row = mix(kind, a, b), scale 1                   54 of them
    n-grams:     1, 2 and 3 words of the tail, 1 and 2 of the head, scale 1/sqrt(number of n-grams), at most 130

Identity decides most of a length and the words correct it, so each n-gram counts little beside a categorical. Only
the head and tail of one message are read. What is kept of a request is its categorical hashes and its words' hashes,
24 bits each; n-grams are put together from them again when the answer is learned. Runs of two and three are taken of
the last words only: nearer the end they decide more, and further ones were measured to bring nothing.
"""

from dataclasses import dataclass

import numpy as np

from tidegate_estimator.arrays import Indices, Octets, Wide
from tidegate_estimator.categorical import asking_message, categorical_features
from tidegate_estimator.request import CompletionRequest
from tidegate_estimator.words import HEAD_WORDS, TAIL_WORDS, read_words

VERSION = 1  # of what the features mean: weights learned under another are of no use
ROW_BITS = 18
HASH_BITS = 24
CATEGORICAL_MAX = 56
_TAIL_PAIRS, _TAIL_TRIPLES, _HEAD_PAIRS = 24, 16, 10  # how many runs are taken

_KIND, _LEFT, _RIGHT = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)
_FINAL = np.uint64(0xD6E8FEB86659FD93)
_FACTORS = np.array((_KIND, _LEFT, _RIGHT))
_HALF = np.uint64(32)
_TO_HASH, _TO_ROW = np.uint64(64 - HASH_BITS), np.uint64(64 - ROW_BITS)
_HASH_TO_ROW = np.uint64(HASH_BITS - ROW_BITS)
_HASH_MASK = np.uint64(2**HASH_BITS - 1)
_UNIGRAM, _BIGRAM, _TRIGRAM, _HEAD_UNIGRAM, _HEAD_BIGRAM = (np.uint64(k * 0x51ED270B27B1) for k in range(1, 6))

assert CATEGORICAL_MAX + HEAD_WORDS + TAIL_WORDS <= 136  # of three bytes: a ticket is sealed and carried in 512


@dataclass(frozen=True, slots=True)
class Features:
    """Hashes of HASH_BITS: categorical ones, the words of the head, the words of the tail."""

    categorical: Wide
    head: Wide
    tail: Wide


@dataclass(frozen=True, slots=True)
class Rows:
    """Table rows below 2**ROW_BITS: the first `categorical` of them have scale 1, the rest are n-grams."""

    rows: Indices
    categorical: int


def read_features(request: CompletionRequest) -> Features:
    """The features of a request; constant time in the prompt's size."""
    message = asking_message(request.messages)
    words = read_words(message.text)
    pairs = categorical_features(request, message, words)
    flat = np.array([number for pair in pairs for number in pair], np.uint64)
    categorical = _mix((flat.reshape(-1, 3) * _FACTORS).sum(axis=1)) >> _TO_HASH
    text = np.array(words.head + words.tail, np.uint64) & _HASH_MASK
    return Features(categorical, text[: len(words.head)], text[len(words.head) :])


def rows_of(features: Features) -> Rows:
    """The table rows of a request's features."""
    tail, head = features.tail, features.head
    left = tail * _LEFT
    pairs = left[:-1] + tail[1:] * _RIGHT
    triples = pairs[:-1] * _FINAL + left[2:]
    opening = head[:-1] * _LEFT + head[1:] * _RIGHT
    grams = np.concatenate(
        (
            left + _UNIGRAM,
            pairs[-_TAIL_PAIRS:] + _BIGRAM,
            triples[-_TAIL_TRIPLES:] + _TRIGRAM,
            head * _LEFT + _HEAD_UNIGRAM,
            opening[:_HEAD_PAIRS] + _HEAD_BIGRAM,
        )
    )
    rows = np.concatenate((features.categorical >> _HASH_TO_ROW, _mix(grams) >> _TO_ROW))
    return Rows(rows.astype(np.int64), len(features.categorical))


def pack_hashes(hashes: Wide) -> bytes:
    """Three bytes a hash."""
    return hashes.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :3].tobytes()


def unpack_hashes(data: bytes) -> Wide:
    """What `pack_hashes` was given."""
    octets: Octets = np.frombuffer(data, np.uint8).reshape(-1, 3)
    wide = np.zeros((len(octets), 4), np.uint8)
    wide[:, :3] = octets
    return wide.view("<u4").ravel().astype(np.uint64)


def _mix(x: Wide) -> Wide:
    """A 64-bit finaliser: every bit of the sum reaches the upper ones that are kept."""
    x = (x ^ (x >> _HALF)) * _FINAL
    return x ^ (x >> _HALF)
