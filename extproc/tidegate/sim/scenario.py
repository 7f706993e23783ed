"""The story of the demo as data: an engine, three tenants, three phases.

Loads are relative to what the engine can do with the mix of the two everyday tenants. One second of life takes
`TIME_SCALE` seconds here, for the engine and for its clients alike: a budget of two seconds to the first token is one
second, and a client that would wait ten seconds for it waits five.
"""

from dataclasses import dataclass

from tidegate.sim.arrivals import Arrival, Lengths, TenantLoad, arrivals_of
from tidegate.sim.capacity import capacity_per_s
from tidegate.sim.exchange import Patience
from tidegate.sim.profiles import PROFILES, EngineProfile
from tidegate.sim.report import Objective

TIME_SCALE = 0.5
PROFILE: EngineProfile = PROFILES["demo"]
ENGINE = PROFILE.slowed(TIME_SCALE)
OBJECTIVE = Objective(ttft_s=2.0 * TIME_SCALE, tpot_s=ENGINE.tpot_target_s)
PATIENCE = Patience(first_token_s=10.0 * TIME_SCALE, whole_s=120.0 * TIME_SCALE)

QUIET = "acme"
BUSY = "globex"
FLOOD = "initech"
OPENINGS = {
    QUIET: "Answer the customer's question in one or two sentences. ",
    BUSY: "Summarise the following report for the board, with headings. ",
    FLOOD: "Write a product description for each of these articles. ",
}
_PROMPTS = {
    QUIET: Lengths(median=100, sigma=0.6, low=16, high=500),
    BUSY: Lengths(median=250, sigma=0.6, low=32, high=1000),
    FLOOD: Lengths(median=150, sigma=0.6, low=16, high=800),
}
_ANSWERS = {
    QUIET: Lengths(median=40, sigma=0.5, low=8, high=120),
    BUSY: Lengths(median=80, sigma=0.5, low=16, high=200),
    FLOOD: Lengths(median=60, sigma=0.5, low=16, high=160),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One chapter: what is sent, the same without and with Tidegate."""

    name: str
    title: str
    tenants: tuple[TenantLoad, ...]

    def arrivals(self, *, duration_s: float, seed: int) -> tuple[Arrival, ...]:
        """Its requests, from the seed and the phase's name."""
        return arrivals_of(self.tenants, duration_s=duration_s, seed=seed)


def capacity() -> float:
    """Requests a second of the everyday mix that the demo's engine finishes at most."""
    return capacity_per_s(ENGINE, _everyday(1.0))


def phases(capacity_per_s: float) -> tuple[Phase, ...]:
    """The three chapters for an engine of this capacity."""
    flood = _tenant(FLOOD, 2.0 * capacity_per_s)
    return (
        Phase(name="normal", title="normal load", tenants=_everyday(0.6 * capacity_per_s)),
        Phase(name="overload", title="twice capacity", tenants=_everyday(2.0 * capacity_per_s)),
        Phase(name="flood", title="tenant floods", tenants=(*_everyday(0.4 * capacity_per_s), flood)),
    )


def _everyday(rate_per_s: float) -> tuple[TenantLoad, ...]:
    return (_tenant(QUIET, rate_per_s / 2.0), _tenant(BUSY, rate_per_s / 2.0))


def _tenant(name: str, rate_per_s: float) -> TenantLoad:
    return TenantLoad(name=name, rate_per_s=rate_per_s, prompt_tokens=_PROMPTS[name], completion_tokens=_ANSWERS[name])
