"""What is known of a request without its words: who asks which model, how large the prompt is, what shape it has.

Each feature is (kind, a, b). Sizes are octaves of characters at several resolutions, so that a rare size borrows from
its neighbours through the coarse ones. Pairs with the tenant or the model let each have its own dependence.
"""

from math import isnan, log2
from zlib import crc32

from tidegate_estimator.request import CompletionRequest, Message
from tidegate_estimator.words import HEAD_CHARS, TAIL_CHARS, Words

_TURNS_READ, _ANSWERS_READ = 8, 16
_COUNT_MAX = 2**31
_DIGITS = b"0123456789"


def asking_message(messages: tuple[Message, ...]) -> Message:
    """The newest message of a user or tool, or simply the newest."""
    for message in messages[: -_TURNS_READ - 1 : -1]:
        if message.role in ("user", "tool", "function"):
            return message
    return messages[-1] if messages else Message(role="", text="")


def categorical_features(request: CompletionRequest, message: Message, words: Words) -> list[tuple[int, int, int]]:
    """(kind, a, b) of each feature, each at least 0; a kind keeps its meaning within a version of the features."""
    model, tenant = name_hash(request.model), name_hash(request.tenant)
    size, own = _log_chars(request), log2(1.0 + len(message.text))
    size_4, own_4 = int(4.0 * size), int(4.0 * own)
    return [
        (0, 0, 0),
        (1, model, 0),
        (2, tenant, 0),
        (3, tenant, model),
        (4, int(2.0 * size), 0),
        (5, size_4, 0),
        (6, int(16.0 * size), 0),
        (7, int(2.0 * size), tenant),
        (8, size_4, tenant),
        (9, int(16.0 * size), tenant),
        (10, size_4, model),
        (11, int(2.0 * own), 0),
        (12, own_4, 0),
        (13, int(16.0 * own), 0),
        (14, own_4, tenant),
        (15, own_4, model),
        (16, words.request, 0),
        (17, words.asks, 0),
        (18, words.asks, model),
        (19, words.verb, model),
        (20, words.verb, tenant),
        (21, words.first, int(own)),
        *_settings(request, model, tenant),
        *_turns(request, message, int(own), tenant),
        *_shape(message.text, model),
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


def _settings(request: CompletionRequest, model: int, tenant: int) -> list[tuple[int, int, int]]:
    """What the caller set beside the prompt."""
    cap = request.max_tokens
    bound = 0 if cap is None else 1 + int(4.0 * log2(1.0 + min(max(cap, 0), _COUNT_MAX)))
    temperature = request.temperature
    if temperature is None or isnan(temperature):
        tenths = 99
    else:
        tenths = round(10.0 * min(max(temperature, 0.0), 2.0))
    return [
        (32, bound, tenant),
        (33, tenths, model),
        (34, min(max(request.tools, 0), 64), request.structured + 2 * min(max(request.stop, 0), 4)),
        (35, name_hash(request.reasoning_effort), model),
    ]


def _turns(request: CompletionRequest, message: Message, octave: int, tenant: int) -> list[tuple[int, int, int]]:
    """The conversation's course, the lengths of its earlier answers among it."""
    messages = request.messages
    answers = [len(m.text) for m in messages[-_ANSWERS_READ:] if m.role == "assistant"]
    previous = 1 + int(2.0 * log2(1.0 + answers[-1])) if answers else 0
    typical = 1 + int(2.0 * log2(1.0 + sum(answers) / len(answers))) if answers else 0
    opening = messages[0] if messages else message
    roles = 0
    for m in messages[-4:]:
        roles = roles * 256 + (ord(m.role[0]) % 255 + 1 if m.role else 0)
    return [
        (40, min(len(messages), 40), 0),
        (41, int(2.0 * log2(1.0 + len(opening.text))) if opening.role == "system" else 99, 0),
        (42, name_hash(message.role), 0),
        (43, roles, 0),
        (44, previous, 0),
        (45, previous, octave),
        (46, previous, tenant),
        (47, typical, 0),
    ]


def _shape(text: str, model: int) -> list[tuple[int, int, int]]:
    """Punctuation, digits and lines at both ends of the message, alone and for the model."""
    ends = text if len(text) <= HEAD_CHARS + TAIL_CHARS else text[:HEAD_CHARS] + text[-TAIL_CHARS:]
    octets = ends.encode("utf-8", "surrogatepass")
    size = len(octets)
    count = octets.count
    digits = size - len(octets.translate(None, _DIGITS))
    wide = size - len(ends)
    code = b"```" in octets or b"def " in octets or b"{" in octets
    shape = (
        min(count(b"\n"), 60) // 2,
        min(count(b","), 12),
        min(count(b"."), 12),
        min(count(b"?"), 5),
        min(digits // 4, 20),
        min(count(b"\\"), 20) // 2,
        min(count(b"("), 20) // 2,
        min(count(b'"'), 20) // 2,
        2 * code + (b"?" in octets),
    )
    return [
        (48, int(log2(1.0 + 8 * wide / max(len(ends), 1))), 0),
        (49, ord(ends[-1]) if ends else 0, 0),
        *[(50 + at, value, 0) for at, value in enumerate(shape)],
        *[(70 + at, value, model) for at, value in enumerate(shape)],
    ]
