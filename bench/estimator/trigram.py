"""The plain idea, to compare with: the mean length after each 1-, 2- and 3-gram of the prompt's last 50 words.

    E = .1 E_0 + .2 E_1 + .3 E_2 + .4 E_3,   E_n = mean over the n-grams of (S_g + E_(n-1)) / (N_g + 1)
    E_0 = mean of all;   p50 = exp(E) - 1;   p90 = p50 x (9th decile of the last 1000 ratios of observed to predicted)

S_g sums ln(1 + tokens) of the answers after an n-gram, N_g counts them; sums of tokens would do worse. No tenant, no
model, no prompt size.
"""

import struct
from array import array
from bisect import insort
from collections import OrderedDict, deque
from itertools import pairwise
from math import expm1, log, log1p

from tidegate_estimator import CompletionRequest, CostEstimate, Source
from tidegate_estimator.categorical import asking_message
from tidegate_estimator.words import read_words

GRAMS_MAX = 400_000
RATIOS_KEPT = 1000
_WEIGHTS = (0.1, 0.2, 0.3, 0.4)
_START_LOG, _START_RATIO = 5.0, 500.0 / 150.0
_FIGURE = struct.Struct("<d")

Gram = tuple[int, ...]


class TrigramBaseline:
    """Predicts and learns like an `Estimator`; its ticket is the words' hashes and what was predicted."""

    def __init__(self) -> None:
        self._grams: OrderedDict[Gram, list[float]] = OrderedDict()  # sum of ln(1 + tokens), answers
        self._all = [_START_LOG, 1.0]
        self._ratios: deque[float] = deque()
        self._sorted_ratios: list[float] = []

    def estimate(self, request: CompletionRequest) -> CostEstimate:
        """Predict from the words alone, under the caller's bound."""
        words = read_words(asking_message(request.messages).text).tail
        most = float(request.max_tokens or 2**30)
        free = expm1(self._expected(words))
        tokens = min(max(free, 1.0), most)
        p90 = min(max(free * self._high_ratio(), 1.0), most)
        return CostEstimate(
            prompt_tokens=request.prompt_chars // 4,
            log_mean=log(tokens),
            log_sigma=1.0,
            p50=tokens,
            p80=tokens,
            p90=p90,
            p95=p90,
            mean=tokens,
            source=Source.GLOBAL,
            ticket=_FIGURE.pack(free) + array("Q", words).tobytes(),
        )

    def learn(
        self, ticket: bytes, completion_tokens: int, finish_reason: str, prompt_tokens: int | None = None
    ) -> bool:
        """Add the answer to each of its n-grams."""
        words = array("Q")
        words.frombytes(ticket[_FIGURE.size :])
        length = log1p(completion_tokens)
        for order in _grams_of(words.tolist()):
            for gram in order:
                sums = self._grams.setdefault(gram, [0.0, 0.0])
                sums[0] += length
                sums[1] += 1.0
        while len(self._grams) > GRAMS_MAX:
            self._grams.popitem(last=False)
        self._all[0] += length
        self._all[1] += 1.0
        self._add_ratio(completion_tokens / max(_FIGURE.unpack_from(ticket)[0], 1.0))
        return True

    def _expected(self, words: list[int]) -> float:
        wider = self._all[0] / self._all[1]
        total, weight = _WEIGHTS[0] * wider, _WEIGHTS[0]
        for order, share in zip(_grams_of(words), _WEIGHTS[1:], strict=True):
            if order:
                known = [self._grams.get(gram, (0.0, 0.0)) for gram in order]
                wider = sum((total_log + wider) / (answers + 1.0) for total_log, answers in known) / len(known)
                total, weight = total + share * wider, weight + share
        return total / weight

    def _high_ratio(self) -> float:
        ratios = self._sorted_ratios
        return ratios[len(ratios) * 9 // 10] if len(ratios) >= 10 else _START_RATIO

    def _add_ratio(self, ratio: float) -> None:
        self._ratios.append(ratio)
        insort(self._sorted_ratios, ratio)
        if len(self._ratios) > RATIOS_KEPT:
            self._sorted_ratios.remove(self._ratios.popleft())


def _grams_of(words: list[int]) -> tuple[list[Gram], list[Gram], list[Gram]]:
    """The distinct 1-, 2- and 3-grams."""
    triples = zip(words, words[1:], words[2:], strict=False)
    return [*{(word,) for word in words}], [*set(pairwise(words))], [*set(triples)]
