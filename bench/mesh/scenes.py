"""The scenes as data: an engine, three tenants, and what is sent when.

Loads are relative to load 1 of the mix: the highest rate at which the engine alone serves 95 % within objective. One
second of life takes `TIME_SCALE` seconds, for the engine, its users and the SDK's own pauses alike. What is set in
absolute seconds elsewhere is not scaled: a delay that a server names, and the periods of the controls themselves.

Counting starts after a warm-up below capacity, and a little after each change of load: what an empty engine takes in
before its queue has formed says nothing about overload. It ends before the sending does.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from bench.mesh.capacity import load_1_per_s
from tidegate.sim.arrivals import Arrival, Lengths, TenantLoad, arrivals_of
from tidegate.sim.exchange import Patience
from tidegate.sim.profiles import PROFILES, EngineProfile
from tidegate.sim.report import Objective
from tidegate.sim.scenario import BUSY, FLOOD, QUIET

TIME_SCALE = 0.5
PROFILE: EngineProfile = PROFILES["llama-70b-4xh100"]
ENGINE = PROFILE.slowed(TIME_SCALE)
OBJECTIVE = Objective(ttft_s=2.0 * TIME_SCALE, tpot_s=ENGINE.tpot_target_s)
PATIENCE = Patience(first_token_s=10.0 * TIME_SCALE, whole_s=120.0 * TIME_SCALE)
CHUNK_TOKENS = 16
"""Tokens that the engine gathers for an event after the first: the clients and Envoy then cost little beside it."""

_PROMPTS = Lengths(median=350, sigma=1.0, low=16, high=4000)
_ANSWERS = Lengths(median=70, sigma=0.8, low=8, high=600)
_SHORT_PROMPTS = Lengths(median=160, sigma=0.8, low=16, high=2000)
_SHORT_ANSWERS = Lengths(median=45, sigma=0.7, low=8, high=300)
_LENGTHS = {
    QUIET: (_SHORT_PROMPTS, _SHORT_ANSWERS),
    BUSY: (_PROMPTS, _ANSWERS),
    FLOOD: (_PROMPTS, _ANSWERS),
}
_SETTLING_S = 3.0
"""From a change of load until counting starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Jobs that come in it count; seconds from the run's start."""

    start_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How long the parts take, in seconds."""

    warm_up_s: float
    overload_s: float
    solo_s: float
    spike_s: float
    after_spike_s: float


FULL = Times(warm_up_s=8.0, overload_s=22.0, solo_s=24.0, spike_s=20.0 * TIME_SCALE, after_spike_s=10.0)
SHORT = Times(warm_up_s=6.0, overload_s=13.0, solo_s=10.0, spike_s=20.0 * TIME_SCALE, after_spike_s=10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Load 1, in requests a second: of everyday tenants together (half each), of the quiet one, of the flood."""

    everyday_per_s: float
    quiet_per_s: float
    flood_per_s: float

    @classmethod
    def measured(cls) -> "Mix":
        """Found on the engine model; about a second."""
        found = [
            load_1_per_s(ENGINE, tuple(_tenant(name, 1.0) for name in names), OBJECTIVE)
            for names in ((QUIET, BUSY), (QUIET,), (FLOOD,))
        ]
        return cls(everyday_per_s=found[0], quiet_per_s=found[1], flood_per_s=found[2])

    def everyday(self, load: float) -> tuple[TenantLoad, ...]:
        """Both everyday tenants at this load together."""
        return tuple(_tenant(name, load * self.everyday_per_s / 2.0) for name in (QUIET, BUSY))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What is sent, and which jobs count in which window."""

    tenants: tuple[TenantLoad, ...]
    windows: dict[str, Window]
    sending_s: float

    @property
    def counted_from_s(self) -> float:
        """When the first window starts."""
        return min(window.start_s for window in self.windows.values())

    def arrivals(self, seed: int) -> tuple[Arrival, ...]:
        """The same for every contender."""
        return arrivals_of(self.tenants, duration_s=self.sending_s, seed=seed)


OVERLOAD, SOLO, BESIDE, SPIKE, AFTER = "overload", "solo", "beside", "spike", "after"
"""Names of the windows."""
LOAD = 2.0
WARM_LOAD = 0.5
QUIET_LOAD = 0.2
SPIKE_LOAD, SPIKE_FACTOR = 0.8, 4.0


class SceneName(StrEnum):
    """The scenes, in the order of the tables."""

    OVERLOAD = "overload"
    FLOOD = "flood"
    SPIKE = "spike"

    def build(self, mix: Mix, times: Times) -> Scene:
        """The scene for an engine of this load 1."""
        match self:
            case SceneName.OVERLOAD:
                return overload(mix, times)
            case SceneName.FLOOD:
                return flood(mix, times)
            case SceneName.SPIKE:
                return spike(mix, times)
            case _:
                assert_never(self)


def overload(mix: Mix, times: Times) -> Scene:
    """Twice what the engine can do, for long enough that the tries that are repeated have come."""
    start_s = times.warm_up_s
    settling_s = 2.0 * _SETTLING_S
    end_s = start_s + times.overload_s
    tenants = (*_during(mix.everyday(WARM_LOAD), 0.0, start_s), *_during(mix.everyday(LOAD), start_s, end_s))
    window = Window(start_s=start_s + settling_s, end_s=end_s - _SETTLING_S)
    return Scene(tenants=tenants, windows={OVERLOAD: window}, sending_s=end_s)


def flood(mix: Mix, times: Times) -> Scene:
    """The quiet tenant alone, then the same requests of it while another floods."""
    solo_s = times.warm_up_s + 1.0
    beside_s = solo_s + times.solo_s
    end_s = beside_s + times.solo_s
    quiet = (_tenant(QUIET, QUIET_LOAD * mix.quiet_per_s),)
    tenants = (
        *_during(mix.everyday(WARM_LOAD), 0.0, times.warm_up_s),
        *_during(quiet, solo_s, beside_s),
        *_during(quiet, beside_s, end_s),
        *_during((_tenant(FLOOD, LOAD * mix.flood_per_s),), beside_s, end_s),
    )
    windows = {
        SOLO: Window(start_s=solo_s + _SETTLING_S, end_s=beside_s),
        BESIDE: Window(start_s=beside_s + _SETTLING_S, end_s=end_s),
    }
    return Scene(tenants=tenants, windows=windows, sending_s=end_s)


def spike(mix: Mix, times: Times) -> Scene:
    """An everyday load, four times that for a while, and then the everyday load again."""
    start_s = times.warm_up_s
    end_s = start_s + times.spike_s
    last_s = end_s + times.after_spike_s
    everyday = mix.everyday(SPIKE_LOAD)
    tenants = (
        *_during(everyday, 0.0, start_s),
        *_during(mix.everyday(SPIKE_LOAD * SPIKE_FACTOR), start_s, end_s),
        *_during(everyday, end_s, last_s),
    )
    windows = {SPIKE: Window(start_s=start_s, end_s=end_s), AFTER: Window(start_s=end_s, end_s=last_s)}
    return Scene(tenants=tenants, windows=windows, sending_s=last_s)


def _during(tenants: tuple[TenantLoad, ...], start_s: float, end_s: float) -> tuple[TenantLoad, ...]:
    return tuple(replace(each, start_s=start_s, end_s=end_s) for each in tenants)


def _tenant(name: str, rate_per_s: float) -> TenantLoad:
    prompts, answers = _LENGTHS[name]
    return TenantLoad(name=name, rate_per_s=rate_per_s, prompt_tokens=prompts, completion_tokens=answers)
