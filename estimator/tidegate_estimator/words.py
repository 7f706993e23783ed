"""The words of a prompt's head and tail, and what they ask of the answer's length.

Only the first 300 and the last 420 characters are read, so that a prompt of a megabyte costs what one of a page costs.
A word is a run of letters, a run of digits, one CJK character or one symbol.
"""

import re
from dataclasses import dataclass
from math import log2
from zlib import crc32

HEAD_CHARS, TAIL_CHARS = 300, 420
HEAD_WORDS, TAIL_WORDS = 30, 50
_NUMBER_MAX = 1_000_000
_ZEROED = bytes.maketrans(b"123456789", b"000000000")

_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\d_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|\d+|[^\w\s]|_"
)
_NUMBERS = {
    **{str(n): n for n in range(101)},
    "a": 1,
    "an": 1,
    "one": 1,
    "single": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "twelve": 12,
    "fifteen": 15,
    "twenty": 20,
    "hundred": 100,
    "thousand": 1000,
}
_UNITS = {
    unit: kind
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
    word: 1 << bit
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
_ASKING, _COUNTED = frozenset(_ASKS), frozenset(_UNITS)
_VERBS = frozenset(
    [
        "write",
        "explain",
        "list",
        "give",
        "create",
        "make",
        "generate",
        "summarize",
        "translate",
        "describe",
        "what",
        "how",
        "why",
        "who",
        "when",
        "where",
        "which",
        "is",
        "are",
        "can",
        "could",
        "do",
        "does",
        "find",
        "solve",
        "calculate",
        "compute",
        "implement",
        "fix",
        "convert",
        "compare",
        "provide",
        "tell",
        "show",
        "help",
        "suggest",
        "design",
        "rewrite",
        "analyze",
        "identify",
        "classify",
        "extract",
        "answer",
        "complete",
        "pick",
        "choose",
        "define",
        "please",
        "build",
        "develop",
        "i",
        "you",
        "act",
    ]
)


@dataclass(frozen=True, slots=True)
class Words:
    """What was read of one message.

    Attributes:
        head, tail: 32-bit hashes of the first words (empty where the tail holds the whole message) and the last ones.
        first: hash of the first two words.
        verb: hash of the first word that says what to do, 0 for none.
        request: unit and octave of a stated length ("in 100 words"), 0 for none.
        asks: bits of words that ask for a short, long or formatted answer.
    """

    head: list[int]
    tail: list[int]
    first: int
    verb: int
    request: int
    asks: int


def read_words(text: str) -> Words:
    """The words at both ends of a text; constant time in its size."""
    whole = len(text) <= HEAD_CHARS + TAIL_CHARS
    if whole:
        words = _WORD.findall(text.lower())
        opening = words[:HEAD_WORDS]
    else:
        opening = _WORD.findall(text[:HEAD_CHARS].lower())
        words = _WORD.findall(text[-TAIL_CHARS:].lower())
    request, asks = _wishes(words if whole else opening + words)
    tail = words[-TAIL_WORDS:]
    if whole and len(words) <= TAIL_WORDS:
        head: list[str] = []
    else:
        head = opening[:HEAD_WORDS]
    verb = next((w for w in opening[:12] if w in _VERBS), "")
    start = opening[:2]
    hashes = hashed([*start, verb, *head, *tail])
    at = len(start)
    cut = at + 1 + len(head)
    return Words(
        head=hashes[at + 1 : cut],
        tail=hashes[cut:],
        first=(31 * hashes[0] + hashes[at - 1]) % 2**32 if start else 0,
        verb=hashes[at] if verb else 0,
        request=request,
        asks=asks,
    )


def hashed(words: list[str]) -> list[int]:
    """32-bit hashes, the same in every process; numbers count by how many digits they have."""
    octets = "\n".join(words).encode("utf-8", "surrogatepass").translate(_ZEROED)
    return [*map(crc32, octets.split(b"\n"))]


def _wishes(words: list[str]) -> tuple[int, int]:
    """The last stated length, and the bits of `_ASKS`."""
    distinct = frozenset(words)
    asks = 0
    for word in distinct & _ASKING:
        asks |= _ASKS[word]
    if not distinct & _COUNTED:
        return 0, asks
    request = 0
    for at, word in enumerate(words):
        if word in _UNITS:
            number = _number_before(words, at)
            if number:
                request = _UNITS[word] * 64 + round(2 * log2(number))
    return request, asks


def _number_before(words: list[str], at: int) -> int:
    """The number at most three words before a unit ("100 - 150 words", "5 short bullet points"), 0 for none."""
    for word in words[max(at - 3, 0) : at][::-1]:
        if word in _NUMBERS:
            return _NUMBERS[word]
        if word.isdecimal() and len(word) < 8:
            return min(int(word), _NUMBER_MAX)
    return 0
