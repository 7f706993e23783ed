"""When which tenant asks for what: an open-loop Poisson stream a tenant, with log-normal lengths, from a seed.

    gap = -ln(U) / rate                            exponential gaps make a Poisson stream
    length = clip(exp(ln(median) + sigma Z), low, high)

Open loop: a client does not wait for earlier answers, so a slow engine meets the same arrivals as a fast one. Each
tenant draws from a generator of its own, so that adding a tenant leaves the arrivals of the others as they were.
"""

from dataclasses import dataclass
from math import erf, exp, log, sqrt
from random import Random

ARRIVALS_MAX = 100_000
"""Most arrivals of one run; more is a mistake in a rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Tokens, log-normal around `median`, kept within `low` and `high` (both inclusive)."""

    median: float
    sigma: float
    low: int
    high: int

    def draw(self, random: Random) -> int:
        """One length in tokens."""
        drawn = exp(log(self.median) + self.sigma * random.gauss(0.0, 1.0))
        return round(min(max(drawn, self.low), self.high))

    @property
    def mean(self) -> float:
        """Expected tokens, the clipping included (rounding is not)."""
        if self.sigma <= 0.0:
            return min(max(self.median, self.low), self.high)
        mu = log(self.median)
        below, above = (log(self.low) - mu) / self.sigma, (log(self.high) - mu) / self.sigma
        inside = exp(mu + self.sigma**2 / 2) * (_phi(above - self.sigma) - _phi(below - self.sigma))
        return inside + self.low * _phi(below) + self.high * (1.0 - _phi(above))


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLoad:
    """What one tenant sends: requests a second from `start_s` to `end_s` of the run (to its end where None)."""

    name: str
    rate_per_s: float
    prompt_tokens: Lengths
    completion_tokens: Lengths
    start_s: float = 0.0
    end_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One request: when it is sent (from the run's start), what it really needs, and the `max_tokens` it states."""

    at_s: float
    tenant: str
    prompt_tokens: int
    completion_tokens: int
    completion_tokens_max: int


def arrivals_of(tenants: tuple[TenantLoad, ...], *, duration_s: float, seed: int) -> tuple[Arrival, ...]:
    """All arrivals of a run in order of time.

    Raises:
        ValueError: the rates would make more than `ARRIVALS_MAX` of them.
    """
    expected = sum(tenant.rate_per_s * duration_s for tenant in tenants)
    if expected > ARRIVALS_MAX / 2:
        raise ValueError(f"about {expected:.0f} arrivals; at most {ARRIVALS_MAX // 2} a run")
    merged = [arrival for tenant in tenants for arrival in _stream(tenant, duration_s, seed)]
    return tuple(sorted(merged, key=lambda arrival: (arrival.at_s, arrival.tenant)))


def _stream(tenant: TenantLoad, duration_s: float, seed: int) -> list[Arrival]:
    if tenant.rate_per_s <= 0.0:
        return []
    random = Random(f"{seed}:{tenant.name}")
    end_s = duration_s if tenant.end_s is None else min(tenant.end_s, duration_s)
    at_s = tenant.start_s + random.expovariate(tenant.rate_per_s)
    stream: list[Arrival] = []
    while at_s < end_s and len(stream) < ARRIVALS_MAX:
        stream.append(_arrival(tenant, at_s, random))
        at_s += random.expovariate(tenant.rate_per_s)
    return stream


def _arrival(tenant: TenantLoad, at_s: float, random: Random) -> Arrival:
    return Arrival(
        at_s=at_s,
        tenant=tenant.name,
        prompt_tokens=tenant.prompt_tokens.draw(random),
        completion_tokens=tenant.completion_tokens.draw(random),
        completion_tokens_max=tenant.completion_tokens.high,
    )


def _phi(z: float) -> float:
    """Standard normal distribution function."""
    return 0.5 * (1.0 + erf(z / sqrt(2.0)))
