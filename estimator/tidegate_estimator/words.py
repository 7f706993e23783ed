"""The words of a prompt's head and tail, and what they ask of the answer's length.

Only the first 300 and the last 420 characters are read, so that a prompt of a megabyte costs what one of a page costs.
A word is a run of letters, a run of digits, one CJK character or one symbol. Words are handled as bytes of UTF-8: most
texts are ASCII, and finding words in its bytes takes two thirds of the time that it takes in a string.
"""

import re
from itertools import compress
from math import log2
from zlib import crc32

from msgspec import Struct

HEAD_CHARS, TAIL_CHARS = 300, 420
HEAD_WORDS, TAIL_WORDS = 30, 50
_NUMBER_MAX = 1_000_000
_ZEROED = bytes.maketrans(b"123456789", b"000000000")

_ASCII_WORD = re.compile(rb"[a-z]+|[^\sa-z0-9\x1c-\x1f]|[0-9]+")  # \s of bytes lacks the four separators of strings
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\d_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|\d+|[^\w\s]|_"
)
_NUMBERS = {
    **{b"%d" % n: n for n in range(101)},
    b"a": 1,
    b"an": 1,
    b"one": 1,
    b"single": 1,
    b"two": 2,
    b"three": 3,
    b"four": 4,
    b"five": 5,
    b"six": 6,
    b"seven": 7,
    b"eight": 8,
    b"nine": 9,
    b"ten": 10,
    b"twelve": 12,
    b"fifteen": 15,
    b"twenty": 20,
    b"hundred": 100,
    b"thousand": 1000,
}
_UNITS = {
    unit.encode(): kind
    for kind, units in enumerate(
        (
            ("word", "words"),
            ("character", "characters", "letter", "letters"),
            ("token", "tokens"),
            ("sentence", "sentences"),
            ("line", "lines"),
            ("paragraph", "paragraphs"),
            ("page", "pages"),
            ("point", "points", "bullet", "bullets", "item", "items", "step", "steps", "idea", "ideas", "tip", "tips"),
            ("example", "examples", "reason", "reasons", "question", "questions", "way", "ways", "option", "options"),
        ),
        start=1,
    )
    for unit in units
}
_ASKS = {
    word.encode(): 1 << bit
    for bit, words in enumerate(
        (
            ("brief", "briefly", "short", "concise", "concisely", "shortly", "quick", "tldr", "summary", "summarize"),
            ("detailed", "detail", "details", "comprehensive", "thorough", "thoroughly", "essay", "elaborate", "long"),
            ("only", "single", "just", "exactly", "directly"),
            ("step", "reasoning", "think", "explain", "why", "prove", "proof"),
            ("json", "yaml", "xml", "csv", "schema"),
            ("table", "list", "bullet", "markdown", "outline"),
            ("code", "function", "script", "implement", "program", "class", "sql"),
            ("story", "poem", "article", "blog", "letter", "report", "chapter"),
            ("yes", "true", "option", "choose", "choice", "label", "classify"),
            ("translate", "rewrite", "paraphrase", "correct", "edit"),
        )
    )
    for word in words
}
_NOTABLE = {word: (_ASKS.get(word, 0), _UNITS.get(word, 0)) for word in (*_ASKS, *_UNITS)}
_VERBS = frozenset(
    (
        b"write explain list give create make generate summarize translate describe what how why who when where "
        b"which is are can could do does find solve calculate compute implement fix convert compare provide tell "
        b"show help suggest design rewrite analyze identify classify extract answer complete pick choose define "
        b"please build develop i you act"
    ).split()
)


class Words(Struct, frozen=True, gc=False):
    """What was read of one message.

    Attributes:
        text: 32-bit hashes of the first words (none where the last ones are the whole message), then of the last ones.
        head_words: how many of them are first words.
        first: hash of the first two words.
        verb: hash of the first word that says what to do, 0 for none.
        request: unit and octave of a stated length ("in 100 words"), 0 for none.
        asks: bits of words that ask for a short, long or formatted answer.
    """

    text: list[int]
    head_words: int
    first: int
    verb: int
    request: int
    asks: int

    @property
    def head(self) -> list[int]:
        """The first words."""
        return self.text[: self.head_words]

    @property
    def tail(self) -> list[int]:
        """The last words."""
        return self.text[self.head_words :]


def read_words(text: str) -> Words:
    """The words at both ends of a text; constant time in its size."""
    whole = len(text) <= HEAD_CHARS + TAIL_CHARS
    if whole:
        words = opening = split_words(text)
        request, asks = _wishes(words)
    else:
        opening, words = split_words(text[:HEAD_CHARS]), split_words(text[-TAIL_CHARS:])
        request, asks = _wishes(opening + words)
    tail = words[-TAIL_WORDS:]
    head = [] if whole and len(words) <= TAIL_WORDS else opening[:HEAD_WORDS]
    verb, start = _verb(opening), opening[:2]
    hashes = hashed([*start, verb, *head, *tail])
    at = len(start)
    return Words(
        text=hashes[at + 1 :],
        head_words=len(head),
        first=(31 * hashes[0] + hashes[at - 1]) % 2**32 if start else 0,
        verb=hashes[at] if verb else 0,
        request=request,
        asks=asks,
    )


def split_words(text: str) -> list[bytes]:
    """The words of a text in lower case."""
    if text.isascii():
        return _ASCII_WORD.findall(text.encode().lower())
    return "\n".join(_WORD.findall(text.lower())).encode("utf-8", "surrogatepass").split()


def hashed(words: list[bytes]) -> list[int]:
    """32-bit hashes, the same in every process; numbers count by how many digits they have."""
    return [*map(crc32, b"\n".join(words).translate(_ZEROED).split(b"\n"))]


def _verb(opening: list[bytes]) -> bytes:
    """The first word that says what to do, or nothing."""
    for word in opening[:12]:
        if word in _VERBS:
            return word
    return b""


def _wishes(words: list[bytes]) -> tuple[int, int]:
    """The last stated length, and the bits of `_ASKS`."""
    request = asks = 0
    # Few words are notable: compress finds them in half the time of a loop.
    for at in compress(range(len(words)), map(_NOTABLE.get, words)):
        ask, unit = _NOTABLE[words[at]]
        asks |= ask
        number = _number_before(words, at) if unit else 0
        if number:
            request = unit * 64 + round(2 * log2(number))
    return request, asks


def _number_before(words: list[bytes], at: int) -> int:
    """The number at most three words before a unit ("100 - 150 words", "5 short bullet points"), 0 for none."""
    for word in words[max(at - 3, 0) : at][::-1]:
        if word in _NUMBERS:
            return _NUMBERS[word]
        digits = word.decode("utf-8", "surrogatepass")
        if digits.isdecimal() and len(digits) < 8:
            return min(int(digits), _NUMBER_MAX)
    return 0
