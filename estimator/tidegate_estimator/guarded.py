"""A guard over the n-gram estimator: while a tenant's predictions are adrift, a wider source speaks for them.

    z       = (ln tokens - mu) / max(sigma, .3)      of each whole answer, mu and sigma as predicted
    bias   += .05 (z - bias)                         of a tenant and model
    miss_p += .05 (|ln tokens - mu| - miss_p),  miss_w: the same for the wider source
    adrift:   bias beyond +-1.2 after 20 answers, and miss_w < miss_p;   back: within +-.5, or miss_w >= miss_p

The wider source is what the model answered lately, to whoever asked: the last 256 lengths, over those of all models.
The n-grams go on predicting and learning underneath, so that they can find back. For a good predictor bias is normal
with a deviation of .16: a false alarm is a matter of seven deviations. A model that is exchanged behind its name is
the case in point.

The guard's state is kept with the n-grams', or a restart would hand a tenant adrift back to the predictions that
failed it. As bytes, at most 1.9 MB:

    u32 histories | u32 drifts | histories x (u32 model | u32 seen | u16 lengths)
    | drifts x (u64 key | u32 answers | u8 adrift | f64 bias, miss_p, miss_w) | f32 ln tokens, history by history

The first history is the one of all models; the rest, and the drifts, come idlest first. Figures are whole, not rounded
to 16 bits like weights: a restart must not decide for either side of a bound.
"""

import struct
from array import array
from collections import OrderedDict
from collections.abc import Callable
from math import exp, log

import numpy as np
from msgspec.structs import replace

from tidegate_estimator import model_file
from tidegate_estimator.caps import TOKENS_MAX, caps_of, was_cut
from tidegate_estimator.cost import CostEstimate, Source
from tidegate_estimator.history import PRIOR, History, Shape
from tidegate_estimator.identity import identity_of
from tidegate_estimator.lognormal import SIGMA_MAX, SIGMA_MIN, mean_under
from tidegate_estimator.ngram import NgramEstimator
from tidegate_estimator.recent import touch
from tidegate_estimator.request import CompletionRequest
from tidegate_estimator.ticket import TICKET_BYTES, U32_MAX, Ticket, open_ticket

KEYS_MAX, MODELS_MAX = 20_000, 1024
_WINDOW, _WIDER_WEIGHT = 256, 4.0
_RATE, _ANSWERS_MIN, _SIGMA_LEAST = 0.05, 20, 0.3
_BIAS_ADRIFT, _BIAS_BACK, _Z_MAX = 1.2, 0.5, 6.0
_LENGTH_MAX, _MISS_MAX = 32.0, 128.0  # above any ln(tokens), and above any distance that a ticket can make of it

_COUNTS = struct.Struct("<II")
_HISTORY_ROW = np.dtype([("model", "<u4"), ("seen", "<u4"), ("lengths", "<u2")])
_DRIFT_ROW = np.dtype(
    [("key", "<u8"), ("answers", "<u4"), ("adrift", "u1"), ("bias", "<f8"), ("miss", "<f8"), ("wider_miss", "<f8")]
)

Drifts = OrderedDict[int, "Drift"]
Histories = OrderedDict[int, History]


class Drift:
    """How the predictions for one tenant and model have fared.

    Attributes:
        answers: seen so far.
        bias: answers' distance from the prediction, in its deviations; above 0 they are longer.
        miss, wider_miss: distance in ln(tokens) of the n-grams' and of the wider source's predictions.
        adrift: whether the wider source speaks.
    """

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
    """An `Estimator`: the n-grams, watched. Who speaks for whom survives a restart, like all that was learned."""

    def __init__(self) -> None:
        self._ngrams = NgramEstimator()
        self._all = History(_WINDOW)
        self._by_model: Histories = OrderedDict()
        self._drifts: Drifts = OrderedDict()

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
        """The state of the n-grams and of the guard: hashes and lengths, no names; at most 16 MB."""
        return self.snapshot()()

    def snapshot(self) -> Callable[[], bytes]:
        """A copy of both states; the function makes it into what `dump` gives."""
        ngrams, guard = self._ngrams.snapshot(), _snapshot(self._all, self._by_model, self._drifts)
        return lambda: model_file.join(ngrams(), guard())

    def load(self, state: bytes) -> None:
        """Take over a dumped state, or the n-grams' alone: the guard then begins anew.

        Raises:
            ValueError: either part is damaged or of another version; nothing has changed then.
        """
        ngrams, guard = model_file.split(state)
        everyone, by_model, drifts = _unpack(guard)
        self._ngrams.load(ngrams)
        self._all, self._by_model, self._drifts = everyone, by_model, drifts

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


def drifts_of(state: bytes) -> Drifts:
    """The drift of each tenant and model in a model file, by `key_of`, idlest first; ValueError as `load`."""
    return _unpack(model_file.split(state)[1])[2]


def _snapshot(everyone: History, by_model: Histories, drifts: Drifts) -> Callable[[], bytes]:
    """A copy of the guard's state; the function makes bytes of it, in any thread."""
    histories = [(model, h.seen, h.values[:]) for model, h in [(0, everyone), *by_model.items()]]
    rows = [(key, min(d.answers, U32_MAX), d.adrift, d.bias, d.miss, d.wider_miss) for key, d in drifts.items()]

    def pack() -> bytes:
        heads = [(model, min(seen, U32_MAX), len(lengths)) for model, seen, lengths in histories]
        parts = [_COUNTS.pack(len(heads), len(rows)), np.array(heads, _HISTORY_ROW).tobytes()]
        parts += [np.array(rows, _DRIFT_ROW).tobytes()]
        return b"".join(parts + [np.array(lengths, "<f4").tobytes() for _, _, lengths in histories])

    return pack


def _unpack(guard: bytes | None) -> tuple[History, Histories, Drifts]:
    """The history of all, those of models and the drifts; ValueError where a figure cannot be one of ours."""
    if guard is None:
        return History(_WINDOW), OrderedDict(), OrderedDict()
    if len(guard) < _COUNTS.size:
        raise ValueError("estimator state: the guard's part ends early")
    histories, drifts = _COUNTS.unpack_from(guard)
    rows_at = _COUNTS.size + histories * _HISTORY_ROW.itemsize
    lengths_at = rows_at + drifts * _DRIFT_ROW.itemsize
    if not 1 <= histories <= MODELS_MAX + 1 or drifts > KEYS_MAX or lengths_at > len(guard):
        raise ValueError("estimator state: the guard's tables have another size")
    heads = np.frombuffer(guard[_COUNTS.size : rows_at], _HISTORY_ROW)
    found = _histories(heads, guard[lengths_at:])
    return (
        found[0],
        OrderedDict(zip(heads["model"][1:].tolist(), found[1:], strict=True)),
        _drifts(guard[rows_at:lengths_at]),
    )


def _histories(heads: "np.ndarray[tuple[int], np.dtype[np.void]]", packed: bytes) -> list[History]:
    counts = heads["lengths"].astype(np.int64)
    if (counts > _WINDOW).any() or 4 * counts.sum() != len(packed):
        raise ValueError("estimator state: the guard's histories have another size")
    lengths = np.frombuffer(packed, "<f4")
    if not (np.abs(lengths) <= _LENGTH_MAX).all():
        raise ValueError("estimator state: the guard's lengths are out of range")
    found = []
    for seen, own in zip(heads["seen"].tolist(), np.split(lengths, np.cumsum(counts)[:-1]), strict=True):
        history = History(_WINDOW)
        history.seen, history.values = seen, array("f", own.tolist())
        history.refresh()
        found.append(history)
    return found


def _drifts(packed: bytes) -> Drifts:
    rows = np.frombuffer(packed, _DRIFT_ROW)
    misses = np.stack([rows["miss"], rows["wider_miss"]])
    bounded = (np.abs(rows["bias"]) <= _Z_MAX).all() and ((misses >= 0.0) & (misses <= _MISS_MAX)).all()
    if not bounded or (rows["adrift"] > 1).any():
        raise ValueError("estimator state: the guard's figures are out of range")
    drifts: Drifts = OrderedDict()
    for key, answers, adrift, bias, miss, wider_miss in rows.tolist():
        drift = drifts[key] = Drift()
        drift.answers, drift.adrift = answers, bool(adrift)
        drift.bias, drift.miss, drift.wider_miss = bias, miss, wider_miss
    return drifts
