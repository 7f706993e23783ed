"""The baselines: each behind the same interface, each with its own rule."""

import pytest
from bench.goodput.contender import Contender, Scene
from bench.goodput.contenders import CONTENDERS
from bench.goodput.policies.baseline import Baseline
from bench.goodput.policies.fixed import FixedConcurrency
from bench.goodput.policies.gradient2 import Gradient2
from bench.goodput.policies.littles_law import LittlesLaw
from bench.goodput.policies.min_rtt_gradient import MinRttGradient, Tuning
from bench.goodput.policies.p99_window import P99Window
from bench.goodput.policies.slots import SequenceSlots
from bench.goodput.policies.success_rate import SuccessRate
from bench.goodput.policies.utilisation import UtilisationGate
from bench.goodput.policies.vegas import Vegas
from bench.goodput.policy import Verdict
from bench.goodput.request import State
from bench.goodput.simulation import Fault, Simulation
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.goodput_scenes import POOL, PROFILE, request
from tidegate.sim.engine_model import EngineModel

BASELINES = {name: each for name, each in CONTENDERS.items() if not name.startswith(("ours", "clair"))}
TWO_ENGINES = {"engines": [{"name": "engine0", "slots": 2}, {"name": "engine1", "slots": 2}]}


def arrive(policy: Baseline, now_s: float, request_id: str) -> list[Verdict]:
    """A request of typical size."""
    return policy.arrive(now_s, request_id, "", 1_000, 16_384, 4.6, 0.6, 2.0, 0.15, 10.0)


def admitted(policy: Baseline, now_s: float, request_id: str) -> bool:
    """Whether it was let in at once."""
    return (request_id, "admit", "engine0") in arrive(policy, now_s, request_id)


def crowd(policy: Baseline, now_s: float, *, at_most: int = 2_000) -> int:
    """Fill the policy until it says no; how many are in flight then."""
    for number in range(at_most):
        if not admitted(policy, now_s, f"{now_s}-{number}"):
            break
    return policy.in_flight


def drained(policy: Baseline, now_s: float, *, e2e_s: float, ttft_s: float = 0.5) -> None:
    """End all that is in flight."""
    for request_id in list(policy._running):
        policy.finish(now_s, request_id, 200, 100, ttft_s, e2e_s)


@pytest.mark.parametrize("name", BASELINES)
def test_every_request_comes_to_an_end(name: str) -> None:
    """Whatever the policy, under overload and a crash each request ends once and all places are given back."""
    contender: Contender = BASELINES[name]
    policy = contender.make(Scene(pool=POOL, step_seconds={}, seed=0))
    assert isinstance(policy, Baseline)
    engines = {"engine0": EngineModel(PROFILE, queue_tokens_max=contender.queue_tokens_max)}
    simulation = Simulation(
        engines,
        policy,
        first_tokens=contender.first_tokens,
        reading_period_s=contender.reading_period_s,
        retries=True,
        faults=(Fault(engine=0, at_s=12.0, until_s=15.0),),
    )
    requests = [request(each / 20.0, index=each, prompt_tokens=1_500) for each in range(600)]
    simulation.run(requests, (0.0, 1e6))
    assert {attempt.request.index for attempt in simulation.attempts} == set(range(600))
    assert all(attempt.ended_s is not None for attempt in simulation.attempts)
    assert any(attempt.state is State.DONE for attempt in simulation.attempts)
    assert policy.in_flight == 0
    assert engines["engine0"].running == engines["engine0"].waiting == 0


def test_fixed_concurrency_holds_its_limit() -> None:
    """The limit is reached and never passed."""
    assert crowd(FixedConcurrency(POOL, 7), 0.0) == 7


def test_slots_are_those_of_each_engine() -> None:
    """As many go as there are slots, to the engine with fewer in flight."""
    policy = SequenceSlots(TWO_ENGINES)
    verdicts = [arrive(policy, 0.0, str(each))[0] for each in range(5)]
    assert [verdict[2] for verdict in verdicts] == ["engine0", "engine1", "engine0", "engine1", 429]


def test_utilisation_rejects_only_while_every_engine_is_saturated() -> None:
    """Beyond 5 waiting or 80 % of the KV an engine is passed by; when all are, the answer is 429."""
    policy = UtilisationGate(TWO_ENGINES)
    policy.reading(0.0, "engine0", 10, 6, 0.1, 0, 0)
    assert arrive(policy, 0.0, "a") == [("a", "admit", "engine1")]
    policy.reading(0.0, "engine1", 10, 0, 0.81, 0, 0)
    assert arrive(policy, 0.0, "b") == [("b", "reject", 429, None)]
    policy.reading(0.1, "engine0", 10, 5, 0.8, 0, 0)
    assert arrive(policy, 0.1, "c") == [("c", "admit", "engine0")]


def test_the_p99_window_shrinks_and_grows() -> None:
    """A tenth less after five seconds with a late tail, a twentieth more after five good ones in which it was full."""
    policy = P99Window(POOL)
    assert crowd(policy, 0.0) == 64
    drained(policy, 1.0, e2e_s=5.0, ttft_s=3.0)
    policy.tick(5.0)
    assert crowd(policy, 5.0) == 57
    drained(policy, 6.0, e2e_s=5.0, ttft_s=1.0)
    policy.tick(10.0)
    assert crowd(policy, 10.0) == 60


def test_the_p99_windows_queue_is_first_come_first_served_and_short() -> None:
    """Those that wait go in order as places come free, and get a 503 after 300 ms."""
    policy = P99Window(POOL)
    crowd(policy, 0.0)
    assert arrive(policy, 0.1, "a") == []
    assert arrive(policy, 0.1, "b") == []
    policy.cancel(0.15, "0.0-64")
    policy.finish(0.2, "0.0-0", 200, 100, 0.1, 0.2)
    assert policy.tick(0.2) == [("a", "admit", "engine0")]
    assert policy.tick(0.45) == [("b", "reject", 503, None)]


def test_success_rate_sheds_after_failures() -> None:
    """Nothing is shed while responses begin; after a window of failures four of five are, and after another, none."""
    policy = SuccessRate(POOL, seed=1)
    for number in range(200):
        assert admitted(policy, 0.0, str(number))
        policy.first_token(0.1, str(number))
    for number in range(200):
        policy.cancel(0.2, str(number))
    assert admitted(policy, 0.3, "well")
    policy = SuccessRate(POOL, seed=1)
    for number in range(400):
        if admitted(policy, 0.0, str(number)):
            policy.cancel(0.1, str(number))
    shed = sum(not admitted(policy, 0.2, f"later-{number}") for number in range(400))
    assert shed / 400 == pytest.approx(0.8, abs=0.06)
    assert all(admitted(policy, 31.0, f"forgotten-{number}") for number in range(20))


def test_littles_law_lets_as_many_in_as_the_throughput_serves() -> None:
    """Limit: 1.05 x completions a second x (budget + decoding time) + 4."""
    policy = LittlesLaw(POOL)
    for second in range(100):
        for number in range(10):
            request_id = f"{second}-{number}"
            arrive(policy, float(second), request_id)
            policy.finish(float(second), request_id, 200, 100, 0.5, 4.5)
    limit = crowd(policy, 100.0)
    assert limit == pytest.approx(1.05 * 10.0 * (2.0 + 4.0) + 4.0, rel=0.05)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.01, 100.0), min_size=1, max_size=40), st.integers(0, 3))
def test_adaptive_limits_stay_within_their_bounds(e2e_s: list[float], which: int) -> None:
    """Whatever the response times, each limit lets somebody in and stays below its maximum."""
    policy = [
        Gradient2(POOL),
        Vegas(POOL, seed=1),
        MinRttGradient(POOL, Tuning(), seed=1),
        MinRttGradient(POOL, Tuning(update_s=1.0, request_count=5, concurrency_min=10), seed=1),
    ][which]
    now_s = 0.0
    for each in e2e_s:
        assert 1 <= crowd(policy, now_s) <= 1_000
        now_s += each
        drained(policy, now_s, e2e_s=each)


def test_gradient2_shrinks_when_responses_slow_down() -> None:
    """Equal responses let the limit grow; each ten times longer one takes up to a tenth of it, down to 20."""
    policy = Gradient2(POOL)
    for second in range(4):
        crowd(policy, float(second))
        drained(policy, float(second) + 0.9, e2e_s=1.0)
    before = crowd(policy, 50.0)
    assert before > 60
    for request_id in list(policy._running)[-10:]:
        policy.finish(60.0, request_id, 200, 100, 0.5, 10.0)
    limit = policy.in_flight + 10
    while not policy.allows(60.0):
        policy.cancel(60.0, next(iter(policy._running)))
    assert policy.in_flight + 1 < limit / 2


def test_vegas_grows_without_a_queue_and_shrinks_with_one() -> None:
    """Equal response times raise the limit; responses twice as long lower it."""
    policy = Vegas(POOL, seed=1)
    for second in range(3):
        crowd(policy, float(second))
        drained(policy, float(second) + 0.9, e2e_s=1.0)
    grown = crowd(policy, 10.0)
    assert grown > 40
    drained(policy, 12.0, e2e_s=2.0)
    assert crowd(policy, 13.0) < grown


def test_adaptive_concurrency_measures_first_and_then_follows_the_gradient() -> None:
    """It starts at its lowest concurrency; once measured, fast responses raise the limit and slow ones halve it."""
    policy = MinRttGradient(POOL, Tuning(update_s=1.0, request_count=6), seed=1)
    assert crowd(policy, 0.0) == 3
    drained(policy, 1.0, e2e_s=1.0)
    assert crowd(policy, 1.0) == 3
    drained(policy, 2.0, e2e_s=1.0)
    limits = []
    for second in range(3, 12):
        limits.append(crowd(policy, float(second)))
        drained(policy, second + 0.9, e2e_s=1.0)
    assert limits == sorted(limits)
    top = crowd(policy, 12.0)
    assert top > 20
    drained(policy, 13.0, e2e_s=10.0)
    assert crowd(policy, 14.5) == int(top / 2 + (top / 2) ** 0.5)
