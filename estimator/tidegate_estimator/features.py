"""A request as hashed features: who asks which model how much, and the words at both ends of the last message.

    categorical: row = mix(kind, a, b), scale 1                   54 of them
    n-grams:     1, 2 and 3 words of the tail, 1 and 2 of the head, scale 1/sqrt(number of n-grams), at most 130

Identity decides most of a length and the words correct it, so each n-gram counts little beside a categorical. Only
the head and tail of one message are read. What is kept of a request is its categorical hashes and its words' hashes,
24 bits each; n-grams are put together from them again when the answer is learned.
"""

import numpy as np
from msgspec import Struct

from tidegate_estimator.arrays import Indices, Octets, Wide
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
SHAPES_MAX = 512  # numbers of rows that a request can have: what depends on nothing else is worth keeping
# Arrays without dimensions: see hashing.
_LEFT = np.array(LEFT, np.uint64)
_TO_HASH, _TO_ROW = np.array(64 - HASH_BITS, np.uint64), np.array(64 - ROW_BITS, np.uint64)
_HASH_TO_ROW = np.array(HASH_BITS - ROW_BITS, np.uint64)
_HASH_MASK = np.array(2**HASH_BITS - 1, np.uint64)

assert CATEGORICAL_MAX + HEAD_WORDS + TAIL_WORDS <= 136  # of three bytes: a ticket is sealed and carried in 512


class Features(Struct, frozen=True, gc=False):
    """Hashes of HASH_BITS: categorical ones, and of words: the first `head_words` of the head, the others of the tail."""

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


def read_features(request: CompletionRequest) -> Features:
    """The features of a request; constant time in the prompt's size."""
    identity = identity_of(request.tenant, request.model)
    message = asking_message(request.messages)
    words = read_words(message.text)
    sums = np.array(categorical_values(request, message, words, identity.tenant, identity.model), np.uint64)
    sums *= _LEFT
    sums += identity.sums
    text = np.array(words.head + words.tail, np.uint64)
    text &= _HASH_MASK
    return Features(mix(sums) >> _TO_HASH, text, len(words.head))


def rows_of(features: Features) -> Rows:
    """The table rows of a request's features."""
    categorical, text = features.categorical, features.text
    rows = categorical >> _HASH_TO_ROW
    if len(text):
        rows = np.concatenate((rows, mix(gram_sums(text, features.head_words)) >> _TO_ROW))
    return Rows(rows.view(np.int64), len(categorical))


def pack_hashes(hashes: Wide) -> bytes:
    """Three bytes a hash."""
    return hashes.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :3].tobytes()


def unpack_hashes(data: bytes) -> Wide:
    """What `pack_hashes` was given."""
    octets: Octets = np.frombuffer(data, np.uint8).reshape(-1, 3)
    wide = np.zeros((len(octets), 4), np.uint8)
    wide[:, :3] = octets
    return wide.view("<u4").ravel().astype(np.uint64)
