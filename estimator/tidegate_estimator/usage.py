"""How many tokens an answer has, from its bytes, where nobody says.

    bytes  ~  a + b tokens          for answers of one model through one API, streamed or not

Without `stream_options` a stream never tells its usage. Yet its bytes do: each token comes in an event of its own,
whose envelope (200 bytes and more) outweighs the text in it, so that bytes count events. `a` is what surrounds the
tokens: the opening event, the usage itself, the mark at the end. Both are fitted to the last 32 answers that did
report, from their median ratio, by relative errors (lengths span three decades) and with Huber's weights (Robust
Estimation of a Location Parameter, 1964): an answer off by more than 10 % counts in inverse proportion, so that a few
callers with logprobs do not bend the line for the rest. A weak prior holds `a` where all answers are of one length and
nothing tells the two apart.

An answer without usage lacks the bytes of the usage itself, a nearly constant size, which is taken off `a`.

Where the line tells fewer than two thirds of the reports to 10 %, bytes say too little and nothing is inferred: in
most whole JSON answers, where all bytes are text, and in models that hide a varying share of their tokens.

Bounded: 1024 kinds of answers, the one used longest ago leaves first.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from itertools import islice
from math import isfinite, log
from statistics import median
from typing import NamedTuple, TypeAlias

REPORTS_MIN = 8
REPORTS_KEPT = 32
KINDS_MAX = 1024
KINDS_SAVED = 64
TOKENS_MAX = 100_000_000
BYTES_MAX = 1 << 40

USAGE_BYTES_STREAM = 290.0
"""The last event of a stream that asked: identity, an empty list of choices, three counts and their details."""
USAGE_BYTES_WHOLE = 120.0

_AROUND_BYTES = 240.0  # prior of `a` without the usage: an opening event and the mark at the end
_AROUND_SIGMA_BYTES = 150.0
_SIGMA = 0.05  # how far answers lie from the line, relative
_PRIOR_WEIGHT = (_SIGMA / _AROUND_SIGMA_BYTES) ** 2
_HUBER = 0.1
_NEAR, _NEAR_SHARE_MIN = 0.1, 2.0 / 3.0
_ROUNDS = 4
_REFIT_EVERY = 4


class AnswerKind(NamedTuple):
    """Answers whose bytes mean the same: one model, streamed or whole, one API."""

    model: str
    stream: bool
    api: str


UsageRecord: TypeAlias = tuple[str, bool, str, list[tuple[int, int]]]
"""A kind and its reports at rest: model, stream, api, pairs of bytes and tokens, oldest first."""


class _Fit(NamedTuple):
    around_bytes: float
    token_bytes: float
    holds: bool


class _Reports:
    """The last answers of one kind that told their usage, and the line through them."""

    __slots__ = ("_fit", "_unfitted", "pairs")

    def __init__(self) -> None:
        self.pairs: deque[tuple[int, int]] = deque(maxlen=REPORTS_KEPT)
        self._fit: _Fit | None = None
        self._unfitted = 0

    def add(self, response_bytes: int, tokens: int) -> None:
        self.pairs.append((response_bytes, tokens))
        self._unfitted += 1

    def fit(self, usage_bytes: float) -> _Fit:
        """The line, fitted anew once enough has changed; about 40 us then."""
        if self._fit is None or self._unfitted >= _REFIT_EVERY:
            self._fit, self._unfitted = _fitted(self.pairs, _AROUND_BYTES + usage_bytes), 0
        return self._fit


class UsageRatios:
    """Learns what a token takes of an answer from those that tell, and counts the tokens of those that do not.

    Attributes:
        inferred_total: answers whose tokens were inferred.
    """

    def __init__(self) -> None:
        self._kinds: OrderedDict[AnswerKind, _Reports] = OrderedDict()
        self.inferred_total = 0

    def __len__(self) -> int:
        return len(self._kinds)

    def learn(self, kind: AnswerKind, response_bytes: int, completion_tokens: int) -> None:
        """Take in an answer that told its usage; figures out of range are passed over."""
        if not (0 < completion_tokens <= TOKENS_MAX and completion_tokens < response_bytes <= BYTES_MAX):
            return
        reports = self._kinds.get(kind)
        if reports is None:
            reports = self._kinds[kind] = _Reports()
            if len(self._kinds) > KINDS_MAX:
                self._kinds.popitem(last=False)
        self._kinds.move_to_end(kind)
        reports.add(response_bytes, completion_tokens)

    def infer(self, kind: AnswerKind, response_bytes: int) -> int | None:
        """Completion tokens of a finished answer, at least 1.

        None with fewer than 8 reports of its kind, or where these show that its bytes do not tell.
        """
        reports = self._kinds.get(kind)
        if reports is None or len(reports.pairs) < REPORTS_MIN or not 0 < response_bytes <= BYTES_MAX:
            return None
        self._kinds.move_to_end(kind)
        usage_bytes = USAGE_BYTES_STREAM if kind.stream else USAGE_BYTES_WHOLE
        fit = reports.fit(usage_bytes)
        if not fit.holds:
            return None
        self.inferred_total += 1
        around_bytes = max(fit.around_bytes - usage_bytes, 0.0)
        return max(1, min(round((response_bytes - around_bytes) / fit.token_bytes), TOKENS_MAX))

    def dump(self) -> list[UsageRecord]:
        """What was learned of the 64 kinds in use, for a state file."""
        kinds = list(self._kinds.items())[-KINDS_SAVED:]
        return [(*kind, list(reports.pairs)) for kind, reports in kinds]

    def restore(self, records: Iterable[UsageRecord]) -> None:
        """Take over dumped records; what is out of range in them is passed over."""
        for model, stream, api, pairs in islice(records, KINDS_SAVED):
            for response_bytes, tokens in pairs[-REPORTS_KEPT:]:
                self.learn(AnswerKind(model, stream, api), response_bytes, tokens)


def _fitted(pairs: deque[tuple[int, int]], around_prior: float) -> _Fit:
    """The line through the pairs: the median ratio, then a few rounds of weighted least squares of relative errors."""
    around = around_prior
    per_token = median(max(size - around, size / 2.0) / tokens for size, tokens in pairs)
    for _ in range(_ROUNDS):
        # minimise  sum w (1 - a / bytes - b tokens / bytes)^2  +  prior (a - a0)^2
        aa, ab, bb = _PRIOR_WEIGHT, 0.0, 0.0
        a1, b1 = _PRIOR_WEIGHT * around_prior, 0.0
        for size, tokens in pairs:
            off = abs(log(size / (around + per_token * tokens)))
            weight = 1.0 if off <= _HUBER else _HUBER / off
            x, y = 1.0 / size, tokens / size
            aa += weight * x * x
            ab += weight * x * y
            bb += weight * y * y
            a1 += weight * x
            b1 += weight * y
        determinant = aa * bb - ab * ab
        a, b = (a1 * bb - b1 * ab) / determinant, (b1 * aa - a1 * ab) / determinant
        if not (isfinite(b) and b > 0.0 and isfinite(a) and a >= 0.0):
            break  # the median ratio stands
        around, per_token = a, b
    # judged by tokens, not bytes: where `a` is most of an answer, its size is near the line whatever its length
    near = sum(abs((size - around) / per_token - tokens) <= max(1.0, _NEAR * tokens) for size, tokens in pairs)
    return _Fit(around, per_token, near >= _NEAR_SHARE_MIN * len(pairs))
