"""Hashed features: stable, bounded, and found where they should be."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.unit.estimator.asking import request
from tidegate_estimator import CompletionRequest, Message
from tidegate_estimator.features import (
    CATEGORICAL_MAX,
    HASH_BITS,
    ROW_BITS,
    pack_hashes,
    read_features,
    rows_of,
    unpack_hashes,
)
from tidegate_estimator.ngram_ticket import NGRAM_TICKET_BYTES_MAX
from tidegate_estimator.words import HEAD_WORDS, TAIL_WORDS, read_words

ROOT = Path(__file__).resolve().parents[3]
TEXTS = [
    "",
    "?",
    "hi",
    "one two",
    "one two three",
    "word " * 49,
    "word " * 51,
    "x" * 5000,
    "汉字" * 400,
    "a\ud800b",
    "\x00\n\r",
]
PROGRAM = """
from tests.unit.estimator.asking import request
from tidegate_estimator.features import read_features, rows_of
print(rows_of(read_features(request(text="Write 3 haiku about the sea, " * 40))).rows.tolist())
"""


@pytest.mark.parametrize("text", TEXTS)
def test_features_are_bounded(text: str) -> None:
    """Whatever the text, so many hashes and no more, each within its bits."""
    features = read_features(request(text=text))
    assert len(features.categorical) <= CATEGORICAL_MAX
    assert len(features.head) <= HEAD_WORDS
    assert len(features.tail) <= TAIL_WORDS
    rows = rows_of(features)
    assert rows.categorical == len(features.categorical)
    assert rows.rows.min() >= 0
    assert rows.rows.max() < 2**ROW_BITS


def test_a_sealed_ticket_fits_512_bytes() -> None:
    """Sealing adds a nonce of 12 bytes and a tag of 16."""
    assert NGRAM_TICKET_BYTES_MAX + 28 <= 512


def test_every_request_has_the_same_categorical_features() -> None:
    """Their number says which hashes in a ticket are words, and what an empty request lacks is a value of its own."""
    full = CompletionRequest(
        tenant="t",
        model="m",
        messages=(Message(role="system", text="Be brief."), Message(role="user", text="Hi")),
        max_tokens=5,
        temperature=0.7,
        tools=3,
        structured=True,
        reasoning_effort="high",
        stop=2,
    )
    counts = {len(read_features(r).categorical) for r in (full, CompletionRequest(), request(text="x" * 9999))}
    assert len(counts) == 1


@pytest.mark.parametrize(
    "facts",
    [
        {"tenant": "u"},
        {"model": "n"},
        {"max_tokens": 20},
        {"temperature": 1.0},
        {"tools": 2},
        {"structured": True},
        {"reasoning_effort": "high"},
        {"stop": 1},
        {"prompt_chars": 9000},
    ],
)
def test_each_fact_changes_the_features(facts: dict[str, object]) -> None:
    """No fact of a request that may decide its length goes unread."""
    plain = {"tenant": "t", "model": "m", "messages": (Message(role="user", text="Hi"),), "prompt_chars": 2}
    one, other = (read_features(CompletionRequest(**f)) for f in (plain, plain | facts))  # type: ignore[arg-type]
    assert not np.array_equal(one.categorical, other.categorical)


def test_hashes_do_not_depend_on_the_process() -> None:
    """PYTHONHASHSEED salts Python's own hash and must not reach the features: tickets travel between replicas."""
    environments = [{**os.environ, "PYTHONHASHSEED": seed} for seed in ("1", "2")]
    outputs = [
        subprocess.run([sys.executable, "-c", PROGRAM], env=env, cwd=ROOT, capture_output=True, check=True).stdout
        for env in environments
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) > 500


def test_hashes_survive_packing() -> None:
    """24 bits in, the same 24 bits out."""
    hashes = np.array([0, 1, 255, 256, 65536, 2**HASH_BITS - 1], np.uint64)
    assert unpack_hashes(pack_hashes(hashes)).tolist() == hashes.tolist()


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("in 100 words", True),
        ("in about 100 words", True),
        ("in 100 - 110 words", False),
        ("in 400 words", False),
        ("in 100 sentences", False),
        ("in words", False),
        ("100 of these and those words", False),
    ],
)
def test_stated_lengths_are_read(text: str, same: bool) -> None:
    """The number at most three words before a unit, in half octaves."""
    assert (read_words("Explain rain " + text).request == read_words("In 100 words, please: rain").request) == same


def test_numbers_count_by_their_digits() -> None:
    """Two primes of four digits are one word; a number of two digits is another."""
    words = [read_words(f"Is {n} a prime number?").tail for n in (7919, 7907, 17)]
    assert words[0] == words[1] != words[2]


def test_a_short_message_has_no_head() -> None:
    """The tail holds it whole; beyond 50 words or 720 characters the opening is read apart."""
    assert read_words("word " * 50).head == []
    assert len(read_words("word " * 51).head) == HEAD_WORDS
    assert len(read_words("abc" * 300).tail) == 1
