"""A request as hashed features: who asks which model how much, and the words at both ends of the last message.

    categorical: row = mix(kind, a, b), scale 1                   54 of them
    n-grams:     1, 2 and 3 words of the tail, 1 and 2 of the head, scale 1/sqrt(number of n-grams), at most 130

Identity decides most of a length and the words correct it, so each n-gram counts little beside a categorical. Only
the head and tail of one message are read. What is kept of a request is its categorical hashes and its words' hashes,
24 bits each; n-grams are put together from them again when the answer is learned.
"""

from functools import lru_cache
from math import sqrt

import numpy as np
from msgspec import Struct

from tidegate_estimator.arrays import Floats, Indices, Wide
from tidegate_estimator.categorical import asking_message, categorical_values
from tidegate_estimator.grams import gram_sums
from tidegate_estimator.hashing import LEFT, mix
from tidegate_estimator.identity import identity_of
from tidegate_estimator.request import CompletionRequest
from tidegate_estimator.words import HEAD_WORDS, TAIL_WORDS, read_words

VERSION = 1  # of what the features mean: weights learned under another are of no use
ROW_BITS = 18
HASH_BITS = 24
CATEGORICAL_MAX = 56
_SCALES_MAX = 512  # kept: about as many as there are numbers of rows, for each of two heads
# Arrays without dimensions: see hashing.
_LEFT = np.array(LEFT, np.uint64)
_TO_HASH, _TO_ROW = np.array(64 - HASH_BITS, np.uint64), np.array(64 - ROW_BITS, np.uint64)
_HASH_TO_ROW = np.array(HASH_BITS - ROW_BITS, np.uint64)
_LOW_BYTES = np.dtype({"names": ["low"], "formats": ["V3"], "itemsize": 8})
_HASH_MASK = np.array(2**HASH_BITS - 1, np.uint64)

assert CATEGORICAL_MAX + HEAD_WORDS + TAIL_WORDS <= 136  # of three bytes: a ticket is sealed and carried in 512


class Features(Struct, frozen=True, gc=False):
    """Hashes of HASH_BITS: categorical ones, and of words: the first `head_words` of the head, the rest of the tail."""

    categorical: Wide
    text: Wide
    head_words: int

    @property
    def head(self) -> Wide:
        """The words of the head."""
        return self.text[: self.head_words]

    @property
    def tail(self) -> Wide:
        """The words of the tail."""
        return self.text[self.head_words :]


class Rows(Struct, frozen=True, gc=False):
    """Table rows below 2**ROW_BITS: the first `categorical` of them have scale 1, the rest are n-grams."""

    rows: Indices
    categorical: int

    def scales(self, of_ngrams: float) -> Floats:
        """The scale of each row: 1, and for n-grams `of_ngrams` / sqrt(their number)."""
        return _scales(len(self.rows), self.categorical, of_ngrams)


def read_features(request: CompletionRequest) -> Features:
    """The features of a request; constant time in the prompt's size."""
    identity = identity_of(request.tenant, request.model)
    message = asking_message(request.messages)
    words = read_words(message.text)
    sums = np.array(categorical_values(request, message, words, identity.tenant, identity.model), np.uint64)
    sums *= _LEFT
    sums += identity.sums
    text = np.array(words.text, np.uint64)
    text &= _HASH_MASK
    return Features(mix(sums) >> _TO_HASH, text, words.head_words)


def rows_of(features: Features) -> Rows:
    """The table rows of a request's features."""
    categorical, text = features.categorical, features.text
    rows = categorical >> _HASH_TO_ROW
    if len(text):
        rows = np.concatenate((rows, mix(gram_sums(text, features.head_words)) >> _TO_ROW))
    return Rows(rows.view(np.int64), len(categorical))


@lru_cache(_SCALES_MAX)
def _scales(rows: int, categorical: int, of_ngrams: float) -> Floats:
    scales: Floats = np.ones(rows, np.float32)
    if rows > categorical:
        scales[categorical:] = of_ngrams / sqrt(rows - categorical)
    scales.flags.writeable = False  # shared by all requests of as many rows
    return scales


def pack_hashes(hashes: Wide) -> bytes:
    """Three bytes a hash."""
    return hashes.astype("<u8", copy=False).view(_LOW_BYTES)["low"].tobytes()


def unpack_hashes(data: bytes) -> Wide:
    """What `pack_hashes` was given."""
    # Every third byte begins a number of four, the lowest of which is its neighbour's.
    overlapping = np.ndarray(len(data) // 3, "<u4", b"\0" + data, strides=3)
    hashes: Wide = np.right_shift(overlapping, 8, dtype=np.uint64)
    return hashes
