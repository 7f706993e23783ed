"""What is known of a request without its words: who asks which model, how large the prompt is, what shape it has.

Each feature is (kind, value, owner), the owner being nobody, the tenant or the model. Sizes are octaves of characters
at several resolutions, so that a rare size borrows from its neighbours through the coarse ones. Features of a tenant or
model let each have its own dependence.
"""

from math import isnan, log2
from zlib import crc32

from tidegate_estimator.hashing import paired
from tidegate_estimator.request import CompletionRequest, Message
from tidegate_estimator.words import HEAD_CHARS, TAIL_CHARS, Words

# In the order of categorical_values; a kind keeps its meaning within a version of the features.
KINDS = (*range(22), *range(32, 36), *range(40, 48), 48, 49, *range(50, 59), *range(70, 79))
_OF_TENANT = frozenset((7, 8, 9, 14, 20, 32, 46))
_OF_MODEL = frozenset((3, 10, 15, 18, 19, 33, 35, *range(70, 79)))

_TURNS_READ, _ANSWERS_READ = 8, 16
_COUNT_MAX = 2**31
_DIGITS = b"0123456789"


def asking_message(messages: tuple[Message, ...]) -> Message:
    """The newest message of a user or tool, or simply the newest."""
    for message in messages[: -_TURNS_READ - 1 : -1]:
        if message.role in ("user", "tool", "function"):
            return message
    return messages[-1] if messages else Message(role="", text="")


def owners(tenant: int, model: int) -> list[int]:
    """Whose each feature is: a hash of the tenant or the model, or 0; in the order of KINDS."""
    return [tenant if kind in _OF_TENANT else model if kind in _OF_MODEL else 0 for kind in KINDS]


def categorical_features(request: CompletionRequest, message: Message, words: Words) -> list[tuple[int, int, int]]:
    """(kind, value, owner) of each feature, each at least 0."""
    tenant, model = name_hash(request.tenant), name_hash(request.model)
    values = categorical_values(request, message, words, tenant, model)
    return [*zip(KINDS, values, owners(tenant, model), strict=True)]


def categorical_values(
    request: CompletionRequest, message: Message, words: Words, tenant: int, model: int
) -> list[int]:
    """The value of each feature in the order of KINDS, 64 bits at most; `tenant` and `model` are hashes.

    Kinds and owners are left out: they do not change from request to request, and a flat list of numbers is made in
    half the time of one of tuples.
    """
    size, own = _log_chars(request), log2(1.0 + len(message.text))
    size_2, size_4, size_16 = int(2.0 * size), int(4.0 * size), int(16.0 * size)
    octave, own_2, own_4, own_16 = int(own), int(2.0 * own), int(4.0 * own), int(16.0 * own)
    return [
        *(0, model, tenant, tenant),
        *(size_2, size_4, size_16, size_2, size_4, size_16, size_4),
        *(own_2, own_4, own_16, own_4, own_4),
        *(words.request, words.asks, words.asks, words.verb, words.verb, paired(words.first, octave)),
        *_settings(request),
        *_turns(request, message, octave),
        *_shape(message.text),
    ]


def name_hash(name: str) -> int:
    """32 bits of a name, the same in every process."""
    return crc32(name.encode("utf-8", "surrogatepass"))


def _log_chars(request: CompletionRequest) -> float:
    """log2 of the prompt's characters; four a token where only tokens are known."""
    chars = min(max(request.prompt_chars, 0), _COUNT_MAX)
    if request.prompt_tokens is not None:
        chars = max(chars, 4 * min(max(request.prompt_tokens, 0), _COUNT_MAX))
    return log2(1.0 + chars)


def _settings(request: CompletionRequest) -> tuple[int, ...]:
    """What the caller set beside the prompt."""
    cap = request.max_tokens
    bound = 0 if cap is None else 1 + int(4.0 * log2(1.0 + min(max(cap, 0), _COUNT_MAX)))
    temperature = request.temperature
    if temperature is None or isnan(temperature):
        tenths = 99
    else:
        tenths = round(10.0 * min(max(temperature, 0.0), 2.0))
    form = request.structured + 2 * min(max(request.stop, 0), 4)
    return bound, tenths, paired(min(max(request.tools, 0), 64), form), name_hash(request.reasoning_effort)


def _turns(request: CompletionRequest, message: Message, octave: int) -> tuple[int, ...]:
    """The conversation's course, the lengths of its earlier answers among it."""
    messages = request.messages
    answers = [len(m.text) for m in messages[-_ANSWERS_READ:] if m.role == "assistant"]
    previous = 1 + int(2.0 * log2(1.0 + answers[-1])) if answers else 0
    typical = 1 + int(2.0 * log2(1.0 + sum(answers) / len(answers))) if answers else 0
    opening = messages[0] if messages else message
    roles = 0
    for m in messages[-4:]:
        roles = roles * 256 + (ord(m.role[0]) % 255 + 1 if m.role else 0)
    return (
        min(len(messages), 40),
        int(2.0 * log2(1.0 + len(opening.text))) if opening.role == "system" else 99,
        name_hash(message.role),
        roles,
        previous,
        paired(previous, octave),
        previous,
        typical,
    )


def _shape(text: str) -> tuple[int, ...]:
    """At both ends of the message: wide characters and the last one; punctuation, digits and lines, twice."""
    ends = text if len(text) <= HEAD_CHARS + TAIL_CHARS else text[:HEAD_CHARS] + text[-TAIL_CHARS:]
    octets = ends.encode("utf-8", "surrogatepass")
    size = len(octets)
    count = octets.count
    digits = size - len(octets.translate(None, _DIGITS))
    wide = size - len(ends)
    questions = count(b"?")
    code = b"```" in octets or b"def " in octets or b"{" in octets
    marks = (
        min(count(b"\n"), 60) // 2,
        min(count(b","), 12),
        min(count(b"."), 12),
        min(questions, 5),
        min(digits // 4, 20),
        min(count(b"\\"), 20) // 2,
        min(count(b"("), 20) // 2,
        min(count(b'"'), 20) // 2,
        2 * code + (questions > 0),
    )
    return (int(log2(1.0 + 8 * wide / max(len(ends), 1))), ord(ends[-1]) if ends else 0, *marks, *marks)
