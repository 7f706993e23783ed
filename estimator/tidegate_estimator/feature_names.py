"""Names for hashed features.

Features are hashed, so a row cannot tell its feature. The other way round works: probe requests, which differ in
nothing but size, turns, wording or settings, give (kind, a, b) and row of each feature they have, and so the rows of
every feature that somebody might ask about. Rows that no probe reaches are words, and pairs with other tenants and
models.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from tidegate_estimator.categorical import asking_message, categorical_features
from tidegate_estimator.features import read_features, rows_of
from tidegate_estimator.request import CompletionRequest, Message
from tidegate_estimator.words import read_words

_PLAIN = Message(role="user", text="Say hello")
_OCTAVES, _STEPS = 20, 16
_KINDS = {
    0: "bias",
    1: "model",
    2: "tenant",
    3: "tenant and model",
    **dict.fromkeys((4, 5, 6), "prompt size"),
    **dict.fromkeys((7, 8, 9), "prompt size, of the tenant"),
    10: "prompt size, of the model",
    **dict.fromkeys((11, 12, 13), "message size"),
    14: "message size, of the tenant",
    15: "message size, of the model",
    16: "stated length",
    17: "asks for a form",
    18: "asks for a form, of the model",
    19: "verb, of the model",
    20: "verb, of the tenant",
    21: "first two words and size",
    32: "max_tokens, of the tenant",
    33: "temperature, of the model",
    34: "tools, format, stop strings",
    35: "reasoning effort, of the model",
    40: "turns",
    41: "system prompt size",
    42: "role that asks",
    43: "last four roles",
    44: "previous answer's size",
    45: "previous answer's and message size",
    46: "previous answer's size, of the tenant",
    47: "typical answer's size",
    48: "share of non-ASCII",
    49: "last character",
}
_SHAPE = (
    "line breaks",
    "commas",
    "full stops",
    "question marks",
    "digits",
    "backslashes",
    "brackets",
    "quotes",
    "code",
)


def probed_rows(tenant: str, model: str) -> Iterator[tuple[str, int]]:
    """Name and row of every feature that a probe has; those of a tenant or model only where one is given."""
    seen: set[tuple[int, int, int]] = set()
    for request in _probes(tenant, model):
        rows = rows_of(read_features(request)).rows
        message = asking_message(request.messages)
        for (kind, a, b), row in zip(
            categorical_features(request, message, read_words(message.text)), rows.tolist(), strict=False
        ):
            own = ("tenant" in kind_name(kind) and not tenant) or ("model" in kind_name(kind) and not model)
            if (kind, a, b) not in seen and not own:
                seen.add((kind, a, b))
                yield f"{kind_name(kind)}{_detail(kind, a)}", row


def kind_name(kind: int) -> str:
    """What a kind of categorical feature is about."""
    if 50 <= kind < 50 + len(_SHAPE):
        return _SHAPE[kind - 50]
    if 70 <= kind < 70 + len(_SHAPE):
        return f"{_SHAPE[kind - 70]}, of the model"
    return _KINDS.get(kind, f"kind {kind}")


def _detail(kind: int, a: int) -> str:
    """The value, where it is a size or a count: sizes in characters."""
    per_octave = {4: 2, 5: 4, 6: 16, 7: 2, 8: 4, 9: 16, 10: 4, 11: 2, 12: 4, 13: 16, 14: 4, 15: 4, 41: 2}.get(kind)
    if per_octave is not None:
        return f" {2 ** (a / per_octave) - 1:.0f} to {2 ** ((a + 1) / per_octave) - 1:.0f} chars"
    if kind in (44, 46, 47):
        return " none" if a == 0 else f" {2 ** ((a - 1) / 2) - 1:.0f} to {2 ** (a / 2) - 1:.0f} chars"
    if kind == 49:
        return f" {chr(a)!r}"
    return f" {a}" if kind in (16, 17, 18, 40, 48) or 50 <= kind < 90 else ""


def _probes(tenant: str, model: str) -> Iterator[CompletionRequest]:
    """A few thousand requests that differ in one thing each."""
    plain = CompletionRequest(tenant=tenant, model=model, messages=(_PLAIN,), prompt_chars=len(_PLAIN.text))
    for step in range(_OCTAVES * _STEPS):
        chars = int(2 ** (step / _STEPS))
        yield replace(plain, prompt_chars=chars)
        if step <= 14 * _STEPS:
            yield replace(plain, messages=(Message(role="user", text="x" * chars),), prompt_chars=chars)
    for turns in range(1, 41):
        answer = Message(role="assistant", text="x" * int(2 ** (turns / 3)))
        yield replace(plain, messages=(_PLAIN, answer) * turns + (_PLAIN,))
        yield replace(plain, messages=(Message(role="system", text=answer.text), _PLAIN))
    for mark in '\n,.?5\\("{':
        for count in range(1, 60):
            yield replace(plain, messages=(Message(role="user", text=f"Say {mark * count}"),))
    for number in (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000):
        for unit in ("words", "characters", "tokens", "sentences", "lines", "paragraphs", "pages", "points"):
            yield replace(plain, messages=(Message(role="user", text=f"Say it in {number} {unit}"),))
    for word in ("brief", "detailed", "only", "explain", "json", "table", "code", "story", "yes", "translate"):
        yield replace(plain, messages=(Message(role="user", text=f"Say it {word}"),))
