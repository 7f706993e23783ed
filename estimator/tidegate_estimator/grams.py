"""Runs of one, two and three words as sums of products, for all runs of a text at once.

    1 word     L a + k                       of the tail, k its kind; of the head with another kind
    2 words    L a + R b + k                 of the last 25 words of the tail, the first 11 of the head
    3 words    F (L a + R b) + L c + k       of the last 18 words of the tail

Each is linear in the words' hashes, so that a text of given numbers of words always has the same places and
coefficients: they are made once, and a request costs four operations on arrays in place of twenty.

Runs of two and three are taken of the last words only: nearer the end they decide more, and further ones were measured
to bring nothing.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tidegate_estimator.arrays import Indices, Wide
from tidegate_estimator.hashing import FINAL, LEFT, RIGHT, WORD_MASK

_TAIL_PAIRS, _TAIL_TRIPLES, _HEAD_PAIRS = 24, 16, 10  # how many runs are taken
_SHAPES_MAX = 256  # kept, of 1,600 that there can be; 6 kB each. Nearly all requests have one of 80.
_UNIGRAM, _BIGRAM, _TRIGRAM, _HEAD_UNIGRAM, _HEAD_BIGRAM = (k * 0x51ED270B27B1 for k in range(1, 6))

_Run = tuple[int, int, int, int, int, int, int]  # the places of three words, their coefficients, the kind


class Runs(NamedTuple):
    """Of every run of a text: [3, runs] places and coefficients of its words, [runs] kinds."""

    places: Indices
    factors: Wide
    kinds: Wide


def gram_sums(text: Wide, head_words: int) -> Wide:
    """The sums of all runs of a text, whose first `head_words` hashes are its head's and the rest its tail's."""
    runs = _runs(head_words, len(text) - head_words)
    products = text.take(runs.places)
    products *= runs.factors
    sums: Wide = np.add.reduce(products, axis=0)
    sums += runs.kinds
    return sums


@lru_cache(_SHAPES_MAX)
def _runs(head_words: int, tail_words: int) -> Runs:
    head, tail = range(head_words), range(head_words, head_words + tail_words)
    runs: list[_Run] = [
        *[(a, a, a, LEFT, 0, 0, _UNIGRAM) for a in tail],
        *[(a, a + 1, a, LEFT, RIGHT, 0, _BIGRAM) for a in tail[:-1][-_TAIL_PAIRS:]],
        *[(a, a + 1, a + 2, LEFT * FINAL, RIGHT * FINAL, LEFT, _TRIGRAM) for a in tail[:-2][-_TAIL_TRIPLES:]],
        *[(a, a, a, LEFT, 0, 0, _HEAD_UNIGRAM) for a in head],
        *[(a, a + 1, a, LEFT, RIGHT, 0, _HEAD_BIGRAM) for a in head[:-1][:_HEAD_PAIRS]],
    ]
    columns = [[number & WORD_MASK for number in column] for column in zip(*runs, strict=True)]
    return Runs(np.array(columns[:3], np.int64), np.array(columns[3:6], np.uint64), np.array(columns[6], np.uint64))
