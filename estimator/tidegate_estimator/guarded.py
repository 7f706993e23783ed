"""A guard over the n-gram estimator: while a tenant's predictions are adrift, a wider source speaks for them.

    z       = (ln tokens - mu) / max(sigma, .3)      of each whole answer, mu and sigma as predicted
    bias   += .05 (z - bias)                         of a tenant and model
    miss_p += .05 (|ln tokens - mu| - miss_p),  miss_w: the same for the wider source
    adrift:   bias beyond +-1.2 after 20 answers, and miss_w < miss_p;   back: within +-.5, or miss_w >= miss_p

The wider source is what the model answered lately, to whoever asked: the last 256 lengths, over those of all models.
The n-grams go on predicting and learning underneath, so that they can find back. For a good predictor bias is normal
with a deviation of .16: a false alarm is a matter of seven deviations. A model that is exchanged behind its name is
the case in point.
"""

from collections import OrderedDict
from collections.abc import Callable
from math import exp, log

from msgspec.structs import replace

from tidegate_estimator.caps import TOKENS_MAX, caps_of, was_cut
from tidegate_estimator.cost import CostEstimate, Source
from tidegate_estimator.history import PRIOR, History, Shape
from tidegate_estimator.identity import identity_of
from tidegate_estimator.lognormal import SIGMA_MAX, SIGMA_MIN, mean_under
from tidegate_estimator.ngram import NgramEstimator
from tidegate_estimator.recent import touch
from tidegate_estimator.request import CompletionRequest
from tidegate_estimator.ticket import TICKET_BYTES, Ticket, open_ticket

KEYS_MAX, MODELS_MAX = 20_000, 1024
_WINDOW, _WIDER_WEIGHT = 256, 4.0
_RATE, _ANSWERS_MIN, _SIGMA_LEAST = 0.05, 20, 0.3
_BIAS_ADRIFT, _BIAS_BACK, _Z_MAX = 1.2, 0.5, 6.0


class Drift:
    """How the predictions for one tenant and model have fared."""

    __slots__ = ("adrift", "answers", "bias", "miss", "wider_miss")

    def __init__(self) -> None:
        self.answers = 0
        self.bias = self.miss = self.wider_miss = 0.0
        self.adrift = False

    def take(self, z: float, miss: float, wider_miss: float) -> None:
        """Take in one answer, and say anew whether the predictions are adrift."""
        self.answers += 1
        rate = max(_RATE, 1.0 / self.answers)  # a plain mean at first
        self.bias += rate * (min(max(z, -_Z_MAX), _Z_MAX) - self.bias)
        self.miss += rate * (miss - self.miss)
        self.wider_miss += rate * (wider_miss - self.wider_miss)
        bound = _BIAS_BACK if self.adrift else _BIAS_ADRIFT
        self.adrift = self.answers >= _ANSWERS_MIN and abs(self.bias) > bound and self.wider_miss < self.miss


class GuardedEstimator:
    """An `Estimator`: the n-grams, watched. What is saved is the n-grams' state; drift is found again within 20
    answers.
    """

    def __init__(self) -> None:
        self._ngrams = NgramEstimator()
        self._all = History(_WINDOW)
        self._by_model: OrderedDict[int, History] = OrderedDict()
        self._drifts: OrderedDict[int, Drift] = OrderedDict()

    def estimate(self, request: CompletionRequest) -> CostEstimate:
        """Predict by the n-grams, or by the wider source where they are adrift; the ticket is always the n-grams'."""
        estimate = self._ngrams.estimate(request)
        drift = self._drifts.get(identity_of(request.tenant, request.model).key)
        if drift is None or not drift.adrift or estimate.source is Source.CAP:
            return estimate
        return self._wider_estimate(request, estimate)

    def learn(
        self, ticket: bytes, completion_tokens: int, finish_reason: str, prompt_tokens: int | None = None
    ) -> bool:
        """Teach the n-grams, and watch how well they had predicted."""
        common = open_ticket(ticket[:TICKET_BYTES])
        taught = self._ngrams.learn(ticket, completion_tokens, finish_reason, prompt_tokens)
        if taught and common is not None and _says_something(common, completion_tokens, finish_reason):
            self._watch(common, completion_tokens)
        return taught

    def remaining(self, ticket: bytes, generated_tokens: int) -> float:
        """As the n-grams say."""
        return self._ngrams.remaining(ticket, generated_tokens)

    def dump(self) -> bytes:
        """The n-grams' state."""
        return self._ngrams.dump()

    def snapshot(self) -> Callable[[], bytes]:
        """The n-grams' state of now."""
        return self._ngrams.snapshot()

    def load(self, state: bytes) -> None:
        """Take over the n-grams' state; ValueError where it is damaged or of another version."""
        self._ngrams.load(state)

    def _watch(self, common: Ticket, completion_tokens: int) -> None:
        length = log(completion_tokens / common.sequences)
        shape = self._wider_shape(common.model)
        miss = length - (common.log_mean - log(common.sequences))
        drift = touch(self._drifts, common.key, Drift, KEYS_MAX)
        drift.take(miss / max(common.log_sigma, _SIGMA_LEAST), abs(miss), abs(length - shape.quantiles[0]))
        touch(self._by_model, common.model, _new_history, MODELS_MAX).add(length, counts=True)
        self._all.add(length, counts=True)

    def _wider_shape(self, model: int) -> Shape:
        shape = self._all.shape.over(PRIOR, _WIDER_WEIGHT)
        history = self._by_model.get(model)
        return shape if history is None else history.shape.over(shape, _WIDER_WEIGHT)

    def _wider_estimate(self, request: CompletionRequest, estimate: CostEstimate) -> CostEstimate:
        """The estimate with the wider source's figures in it."""
        shape, caps = self._wider_shape(identity_of(request.tenant, request.model).model), caps_of(request)
        p50, p80, p90, p95 = [caps.clip(caps.sequences * exp(level)) for level in shape.quantiles]
        log_mean = shape.mean + log(caps.sequences)
        log_sigma = min(max(shape.variance**0.5, SIGMA_MIN), SIGMA_MAX)
        mean = caps.clip(mean_under(log_mean, log_sigma, caps.most))
        return replace(
            estimate,
            log_mean=log_mean,
            log_sigma=log_sigma,
            p50=p50,
            p80=p80,
            p90=p90,
            p95=p95,
            mean=mean,
            source=Source.WIDER,
        )


def _new_history() -> History:
    return History(_WINDOW)


def _says_something(common: Ticket, tokens: int, finish_reason: str) -> bool:
    """A whole answer whose length was the model's own choice."""
    free = not common.forced and common.min_tokens < tokens <= TOKENS_MAX
    return free and tokens > 0 and not was_cut(tokens, finish_reason, common.cap_tokens)
