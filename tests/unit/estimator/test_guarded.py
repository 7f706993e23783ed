"""The guard over the n-grams: it falls back when predictions drift off, says so, and comes back."""

from math import exp, log
from random import Random

import pytest

from tidegate_estimator import CompletionRequest, Message, Source
from tidegate_estimator.guarded import KEYS_MAX, Drift, GuardedEstimator


def request(tenant: str, number: int, **facts: int) -> CompletionRequest:
    message = Message(role="user", text=f"tell me about number {number}")
    return CompletionRequest(tenant=tenant, model="m", messages=(message,), prompt_chars=30, **facts)


class World:
    """Two tenants of one model whose answers have a median length each."""

    def __init__(self, **medians: float) -> None:
        self.estimator = GuardedEstimator()
        self.medians = medians
        self._random = Random(1)

    def run(self, answers: int) -> list[Source]:
        """So many answers of each tenant; the sources of the first one's estimates."""
        sources = []
        for number in range(answers):
            for tenant, median in self.medians.items():
                estimate = self.estimator.estimate(request(tenant, number))
                tokens = max(1, round(exp(log(median) + 0.3 * self._random.gauss(0.0, 1.0))))
                assert self.estimator.learn(estimate.ticket, tokens, "stop")
                if tenant == next(iter(self.medians)):
                    sources.append(estimate.source)
        return sources


def test_good_predictions_are_left_alone() -> None:
    """Over two thousand answers of a steady tenant the guard never speaks."""
    world = World(steady=200.0, other=20.0)
    assert set(world.run(2000)) <= {Source.PRIOR, Source.GLOBAL, Source.TENANT_MODEL}


def test_a_silent_change_of_the_model_is_bridged() -> None:
    """Within twenty answers of a change the wider source speaks, and once the n-grams have learned it they do again."""
    world = World(changed=400.0, other=20.0)
    world.run(600)
    world.medians["changed"] = 20.0
    sources = world.run(200)
    assert Source.WIDER in sources[:20]
    assert set(sources[100:]) == {Source.TENANT_MODEL}
    assert world.estimator.estimate(request("changed", 1)).p50 == pytest.approx(20.0, rel=0.4)


def adrift(estimator: GuardedEstimator) -> GuardedEstimator:
    """With a tenant adrift, and a model that answers twenty tokens."""
    world = World(changed=400.0, other=20.0)
    world.estimator = estimator
    world.run(600)
    world.medians["changed"] = 20.0
    world.run(20)
    assert estimator.estimate(request("changed", 1)).source is Source.WIDER
    return estimator


def test_the_wider_source_respects_what_the_caller_says() -> None:
    """Caps, several sequences and a forced length hold whoever speaks."""
    estimator = adrift(GuardedEstimator())
    assert estimator.estimate(request("changed", 1, max_tokens=5)).p95 == 5.0
    one, four = (estimator.estimate(request("changed", 1, sequences=n)) for n in (1, 4))
    assert four.p50 == pytest.approx(4.0 * one.p50)
    assert one.p50 <= one.p80 <= one.p90 <= one.p95
    forced = request("changed", 1, max_tokens=64, min_tokens=64)
    assert estimator.estimate(forced).source is Source.CAP


def test_a_wider_source_that_is_worse_keeps_silent() -> None:
    """A tenant that changes to what nobody else's answers are like is left to its own n-grams."""
    world = World(changed=400.0, other=20.0)
    world.run(600)
    world.medians["changed"] = 8000.0
    assert Source.WIDER not in world.run(60)


def test_what_is_saved_is_the_n_grams() -> None:
    """A restart keeps what was learned; the guard starts anew."""
    estimator = adrift(GuardedEstimator())
    again = GuardedEstimator()
    again.load(estimator.dump())
    assert again.estimate(request("changed", 1)).source is Source.TENANT_MODEL
    assert again.dump() == estimator.dump()


def test_answers_that_were_cut_say_nothing_about_drift() -> None:
    """A tenant whose answers are cut by its own cap is not taken to have drifted."""
    world = World(capped=400.0, other=20.0)
    world.run(300)
    for number in range(100):
        estimate = world.estimator.estimate(request("capped", number, max_tokens=16))
        world.estimator.learn(estimate.ticket, 16, "length")
    assert world.estimator.estimate(request("capped", 1)).source is Source.TENANT_MODEL


def test_tenants_are_bounded() -> None:
    """Invented tenants push each other out and nothing else."""
    estimator = GuardedEstimator()
    ticket = estimator.estimate(request("t", 1)).ticket
    estimator._drifts.update((key, Drift()) for key in range(KEYS_MAX))
    assert estimator.learn(ticket, 10, "stop")
    assert len(estimator._drifts) == KEYS_MAX
    assert 0 not in estimator._drifts


def test_drift_has_hysteresis() -> None:
    """It begins beyond 1.2 deviations and ends within 0.5."""
    drift = Drift()
    for _ in range(40):
        drift.take(1.3, 1.0, 0.5)
    assert drift.adrift
    for _ in range(5):
        drift.take(0.8, 1.0, 0.5)
    assert drift.adrift
    for _ in range(60):
        drift.take(0.0, 1.0, 0.5)
    assert not drift.adrift
