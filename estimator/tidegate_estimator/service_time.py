"""How long an engine works on a request that has no tokens: a log-normal by model and size of the input.

    x = ln(e2e)     of each complete answer, by its trust: 1 where it was alone with its engine, or as good as alone
    mean    class -> model -> pool -> ln 0.1 s      each held to the next with weight 1/5
    spread  within a class, held with weight 4 to that of its model, of the pool, to 0.5;   plus, of a class that is
            little known, what tells its mean: the spread between the classes of the model, over its weight

A class is half an octave of the input's size: twice the pixels is not twice the time, but the same pixels are the same
time. What is wanted is the engine's time without queueing in it, and answers are timed from outside: behind others
that fill the engine, the time of a small request is mostly theirs. So an answer that came out of a crowd (trust below
0.1) only teaches a class of which nothing better is known. A class remembers answers of weight 100; one that is far
off moves it by no more than three of its deviations. Under load it is the slow ones whose clients leave first: those
that were cut after t seconds count as what they would have come to on average, E[x | x > ln t], or times would be
learned from the quick ones alone. All tables are bounded, and whoever was idle longest leaves first.
"""

from collections import OrderedDict
from math import exp, isfinite, log, pi, sqrt
from typing import TypeVar

from msgspec import Struct

from tidegate_estimator.lognormal import survival
from tidegate_estimator.service_ticket import CLASS_MAX, ServiceTicket, mean_of, p90_of
from tidegate_estimator.window import key_of

CLASSES_MAX, MODELS_MAX = 1024, 128
SECONDS_MIN, SECONDS_MAX = 1e-4, 3600.0
_PRIOR_LOG_S, _PRIOR_SIGMA, _PRIOR_BETWEEN = log(0.1), 0.5, 1.0
_MEMORY = 100.0
_HELD, _SPREAD_HELD = 0.2, 4.0
_REACH, _REACH_SIGMA_MIN, _REACH_FROM = 3.0, 0.5, 3.0
_SIGMA_MIN, _SIGMA_MAX = 0.05, 1.5
_FAR_Z = 6.0
_TRUST_CROWDED, _ENOUGH = 0.1, 0.5

K = TypeVar("K")


class ServiceEstimate(Struct, frozen=True, kw_only=True, gc=False):
    """The predicted service time of one request, in seconds of an engine that does nothing else beside.

    Attributes:
        mean_s, p90_s: its mean, and what nine of ten stay below.
        log_mean, log_sigma: ln of the seconds, as a normal.
        key, size_class: whose it is; for the ticket.
    """

    mean_s: float
    p90_s: float
    log_mean: float
    log_sigma: float
    key: int
    size_class: int

    def ticket(self, *, trust: float) -> bytes:
        """What `learn` needs to be told the truth later, on any replica.

        Args:
            trust: weight of its time as a sample, above 0 and at most 1.
        """
        return ServiceTicket(
            key=self.key,
            size_class=self.size_class,
            log_mean=self.log_mean,
            log_sigma=self.log_sigma,
            trust=trust,
        ).pack()


class _Moments:
    """Weighted mean and variance of values; older ones are forgotten beyond a weight of 100."""

    __slots__ = ("mean", "square", "weight")

    def __init__(self, weight: float = 0.0, mean: float = 0.0, square: float = 0.0) -> None:
        self.weight, self.mean, self.square = weight, mean, square

    def add(self, value: float, weight: float) -> None:
        kept = min(self.weight, _MEMORY - weight)
        if self.weight > 0.0:
            self.square *= kept / self.weight
        self.weight = kept + weight
        step = value - self.mean
        self.mean += step * weight / self.weight
        self.square += weight * step * (value - self.mean)

    def mean_towards(self, prior: float) -> float:
        """The mean, held to `prior`."""
        return (self.weight * self.mean + _HELD * prior) / (self.weight + _HELD)

    def variance_towards(self, prior: float) -> float:
        """The variance, held to `prior`."""
        return (self.square + _SPREAD_HELD * prior) / (self.weight + _SPREAD_HELD)


class _Level:
    """What is known of one class, model or pool: where its values lie, and how far from their class's mean."""

    __slots__ = ("values", "within")

    def __init__(self) -> None:
        self.values = _Moments()
        self.within = _Moments()


class ServiceTimes:
    """The service times of one pool."""

    def __init__(self) -> None:
        self._all = _Level()
        self._models: OrderedDict[int, _Level] = OrderedDict()
        self._classes: OrderedDict[tuple[int, int], _Level] = OrderedDict()

    def __len__(self) -> int:
        """Classes that are known."""
        return len(self._classes)

    def estimate(self, model: str, input_size: int) -> ServiceEstimate:
        """Predict; changes nothing. `input_size` is in any unit that is the same for all requests of a model."""
        key, size_class = key_of("", model), class_of(input_size)
        mean, sigma = self._predict(key, size_class)
        return ServiceEstimate(
            mean_s=mean_of(mean, sigma),
            p90_s=p90_of(mean, sigma),
            log_mean=mean,
            log_sigma=sigma,
            key=key,
            size_class=size_class,
        )

    def learn(self, ticket: ServiceTicket, seconds: float, *, cut: bool = False) -> bool:
        """Take in how long an answer took, from its being sent to its end; False where that says nothing.

        `cut`: its client left after so long, and it would have taken longer.
        """
        if not SECONDS_MIN <= seconds <= SECONDS_MAX:  # NaN is none of these
            return False
        known, model = self._levels(ticket.key, ticket.size_class)
        if ticket.trust < _TRUST_CROWDED and (cut or known.values.weight >= _ENOUGH):
            return False
        mean, sigma = self._predict(ticket.key, ticket.size_class)
        value = log(seconds)
        if cut:
            value = _beyond(value, mean, sigma)
        if known.values.weight >= _REACH_FROM:
            reach = _REACH * max(sigma, _REACH_SIGMA_MIN)
            value = min(max(value, mean - reach), mean + reach)
        for level in (known, model, self._all):
            if known.values.weight > 0.0:
                level.within.add(value - known.values.mean, ticket.trust)
            level.values.add(value, ticket.trust)
        return True

    def dump(self) -> list[list[float]]:
        """What was learned, for a state file: `key high, key low, class, weight, mean, square` of each class."""
        return [
            [key >> 32, key & 0xFFFFFFFF, size_class, level.values.weight, level.values.mean, level.values.square]
            for (key, size_class), level in self._classes.items()
        ]

    def restore(self, records: list[list[float]]) -> None:
        """Take over what `dump` gave; a record that cannot be one of ours is passed over."""
        for record in records[-CLASSES_MAX:]:
            if len(record) != 6 or not all(map(_is_number, record)):
                continue
            high, low, size_class, weight, mean, square = record
            if not (0 <= high < 2**32 and 0 <= low < 2**32 and 0 <= size_class <= CLASS_MAX and 0 < weight <= _MEMORY):
                continue
            if not (log(SECONDS_MIN) - 10.0 <= mean <= log(SECONDS_MAX) and 0.0 <= square <= 100.0 * weight):
                continue
            known, model = self._levels((int(high) << 32) + int(low), int(size_class))
            known.values = _Moments(weight, mean, square)
            known.within = _Moments(weight, 0.0, square)
            for level in (model, self._all):
                level.values.add(mean, weight)
                level.within.add(sqrt(square / weight), weight)

    def _levels(self, key: int, size_class: int) -> tuple[_Level, _Level]:
        """The class and its model, made where there are none; they are the last to leave now."""
        return _touch(self._classes, (key, size_class), CLASSES_MAX), _touch(self._models, key, MODELS_MAX)

    def _predict(self, key: int, size_class: int) -> tuple[float, float]:
        """Mean and deviation of ln(seconds)."""
        everything = self._all
        mean = everything.values.mean_towards(_PRIOR_LOG_S)
        variance = everything.within.variance_towards(_PRIOR_SIGMA**2)
        between, weight = _PRIOR_BETWEEN**2, 0.0
        model = self._models.get(key)
        if model is not None:
            mean = model.values.mean_towards(mean)
            variance = model.within.variance_towards(variance)
            between = model.values.variance_towards(between)
        known = self._classes.get((key, size_class))
        if known is not None:
            mean = known.values.mean_towards(mean)
            variance = known.within.variance_towards(variance)
            weight = known.values.weight
        variance += between * _HELD / (weight + _HELD)
        bounded = min(max(mean, log(SECONDS_MIN)), log(SECONDS_MAX))
        return bounded, min(max(sqrt(variance), _SIGMA_MIN), _SIGMA_MAX)


def _beyond(value: float, mean: float, sigma: float) -> float:
    """The mean of a normal above a value."""
    z = (value - mean) / sigma
    if z > _FAR_Z:
        return value + sigma / z
    return mean + sigma * exp(-z * z / 2.0) / (sqrt(2.0 * pi) * survival(z))


def class_of(input_size: int) -> int:
    """Half octaves of the size; 0 is a size that nobody told."""
    return 0 if input_size < 1 else min(1 + int(2.0 * log(input_size) / log(2.0) + 1e-9), CLASS_MAX)


def _touch(table: OrderedDict[K, _Level], key: K, limit: int) -> _Level:
    level = table.get(key)
    if level is None:
        level = table[key] = _Level()
        if len(table) > limit:
            table.popitem(last=False)
    table.move_to_end(key)
    return level


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
