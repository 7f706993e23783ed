"""The scenes are the same for everybody, and load 1 is what it says."""

from dataclasses import replace

import pytest
from bench.mesh import scenes
from bench.mesh.capacity import ATTAINED, attained, load_1_per_s
from bench.mesh.scenes import FULL, Mix, SceneName

from tidegate.sim.arrivals import TenantLoad, arrivals_of
from tidegate.sim.scenario import BUSY, FLOOD, QUIET

MIX = Mix(everyday_per_s=20.0, quiet_per_s=40.0, flood_per_s=10.0)


def rate_per_s(scene: scenes.Scene, tenant: str, start_s: float, end_s: float) -> float:
    came = [each for each in scene.arrivals(1) if each.tenant == tenant and start_s <= each.at_s < end_s]
    return len(came) / (end_s - start_s)


def test_the_quiet_tenant_sends_the_same_beside_the_flood() -> None:
    """Moments and lengths of its requests in both windows are equal, so that only the flood differs."""
    scene = SceneName.FLOOD.build(MIX, FULL)
    solo, beside = scene.windows[scenes.SOLO], scene.windows[scenes.BESIDE]
    sent = []
    for window in (solo, beside):
        own = [each for each in scene.arrivals(1) if each.tenant == QUIET]
        inside = [each for each in own if window.start_s <= each.at_s < window.end_s]
        sent.append(
            [(round(each.at_s - window.start_s, 6), each.prompt_tokens, each.completion_tokens) for each in inside]
        )
    assert sent[0] == sent[1]
    assert len(sent[0]) > 50
    assert rate_per_s(scene, FLOOD, solo.start_s, solo.end_s) == 0.0
    assert rate_per_s(scene, FLOOD, beside.start_s, beside.end_s) == pytest.approx(20.0, rel=0.2)


def test_overload_warms_up_below_capacity_first() -> None:
    """Half of load 1 until the warm-up is over, twice load 1 from then to the end."""
    scene = SceneName.OVERLOAD.build(MIX, FULL)
    both = [
        rate_per_s(scene, QUIET, *span) + rate_per_s(scene, BUSY, *span)
        for span in ((0.0, FULL.warm_up_s), (FULL.warm_up_s, scene.sending_s))
    ]
    assert both == pytest.approx([10.0, 40.0], rel=0.3)
    assert scene.counted_from_s > FULL.warm_up_s
    assert scene.windows[scenes.OVERLOAD].end_s < scene.sending_s


def test_the_spike_is_four_times_what_is_before_and_after() -> None:
    """The windows lie where the rate changes."""
    scene = SceneName.SPIKE.build(MIX, FULL)
    spike, after = scene.windows[scenes.SPIKE], scene.windows[scenes.AFTER]
    assert spike.end_s == after.start_s
    assert rate_per_s(scene, BUSY, spike.start_s, spike.end_s) == pytest.approx(32.0, rel=0.25)
    assert rate_per_s(scene, BUSY, after.start_s, after.end_s) == pytest.approx(8.0, rel=0.5)


def test_load_1_is_the_highest_rate_with_95_percent() -> None:
    """A little below it 95 % are within objective, a little above they are not."""
    tenant = TenantLoad(name=BUSY, rate_per_s=1.0, prompt_tokens=scenes._PROMPTS, completion_tokens=scenes._ANSWERS)
    found = load_1_per_s(scenes.ENGINE, (tenant,), scenes.OBJECTIVE)
    shares = []
    for factor in (0.9, 1.1):
        arrivals = arrivals_of((replace(tenant, rate_per_s=found * factor),), duration_s=3000 / found, seed=0)
        shares.append(attained(scenes.ENGINE, arrivals, scenes.OBJECTIVE))
    assert shares[0] >= ATTAINED > shares[1]
    with pytest.raises(ValueError, match="without requests"):
        load_1_per_s(scenes.ENGINE, (), scenes.OBJECTIVE)


def test_an_engine_that_is_never_busy_serves_all_in_time() -> None:
    """Far apart, every request is within objective; none at all is no failure."""
    tenant = TenantLoad(name=BUSY, rate_per_s=0.05, prompt_tokens=scenes._PROMPTS, completion_tokens=scenes._ANSWERS)
    assert attained(scenes.ENGINE, arrivals_of((tenant,), duration_s=1000.0, seed=1), scenes.OBJECTIVE) == 1.0
    assert attained(scenes.ENGINE, (), scenes.OBJECTIVE) == 1.0
