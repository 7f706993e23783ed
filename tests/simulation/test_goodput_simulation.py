"""The discrete-event simulation: what it tells a policy, how clients behave, what faults do."""

import itertools

import pytest
from bench.goodput.measure import figures_of
from bench.goodput.policy import Verdict
from bench.goodput.request import State
from bench.goodput.simulation import Fault, PolicyError
from bench.goodput.workload import prefill_s

from tests.simulation.goodput_scenes import PROFILE, Deaf, Refusing, Told, request, simulated

ALL = (0.0, 1e6)


def test_a_request_alone_meets_its_objectives() -> None:
    """Alone in an engine, a request has its first token after its ideal prefill, and its times count from admission."""
    policy = Told()
    simulation = simulated(policy, first_tokens=True)
    simulation.run([request(5.0)], ALL)
    (attempt,) = simulation.attempts
    ideal_s = prefill_s(PROFILE, 1_000)
    assert attempt.first_s == pytest.approx(5.0 + ideal_s)
    assert attempt.good
    (finish,) = policy.told("finish")
    assert finish[3:5] == (200, 100)
    assert finish[5] == pytest.approx(ideal_s)
    assert policy.told("first_token") == [("first_token", attempt.first_s, "0.0")]


def test_no_first_tokens_are_told_where_responses_are_not_seen() -> None:
    """In a mode without first tokens the policy learns of them only when the request has ended."""
    policy = Told()
    simulated(policy).run([request()], ALL)
    assert not policy.told("first_token")
    assert policy.told("finish")[0][5] is not None


def test_a_client_leaves_when_no_first_token_came() -> None:
    """A client whose request only waits leaves at its timeout, and the policy is told."""
    policy = Deaf()
    simulation = simulated(policy)
    simulation.run([request(1.0)], ALL)
    assert simulation.attempts[0].state is State.LEFT
    assert policy.told("cancel") == [("cancel", 11.0, "0.0")]


def test_a_client_leaves_an_answer_that_takes_too_long() -> None:
    """A client leaves at its timeout for the whole answer, the engine's work is aborted and counts as waste."""
    policy = Told()
    simulation = simulated(policy)
    simulation.run([request(completion_tokens=16_000)], ALL)
    assert simulation.attempts[0].state is State.LEFT
    assert policy.told("cancel") == [("cancel", 120.0, "0.0")]
    assert simulation.engines["engine0"].running == 0
    assert figures_of(simulation, ALL).waste == 1.0


def test_tpot_counts() -> None:
    """A request whose tokens come too slowly is not good, however fast its first one came."""
    slow = Fault(engine=0, at_s=1.0, until_s=1e9, slow=10.0)
    simulation = simulated(Told(), faults=(slow,))
    simulation.run([request(completion_tokens=200)], ALL)
    (attempt,) = simulation.attempts
    assert attempt.state is State.DONE
    assert not attempt.good


class Twice(Told):
    """Admits a request again when time passes."""

    def tick(self, now_s: float, /) -> list[Verdict]:
        return [(str(entry[2]), "admit", "engine0") for entry in self.told("arrive")]


def test_a_second_verdict_is_an_error() -> None:
    """A verdict on a request that does not wait for one ends the run."""
    with pytest.raises(PolicyError):
        simulated(Twice()).run([request(completion_tokens=1_000)], ALL)


def test_a_crash_fails_what_runs_and_refuses_what_comes() -> None:
    """While an engine is down all fails with 503, at once; afterwards it serves again."""
    policy = Told()
    crash = Fault(engine=0, at_s=3.0, until_s=20.0)
    simulation = simulated(policy, faults=(crash,))
    simulation.run([request(0.0, completion_tokens=500), request(10.0, index=1), request(30.0, index=2)], ALL)
    assert [attempt.state for attempt in simulation.attempts] == [State.FAILED, State.FAILED, State.DONE]
    first, second, third = policy.told("finish")
    assert (first[1], first[3]) == (3.0, 503)
    assert isinstance(first[4], int)
    assert 0 < first[4] < 500
    assert second[1:5] == (10.0, "1.0", 503, 0)
    assert third[3] == 200


def test_a_slow_engine_takes_longer_until_the_fault_is_over() -> None:
    """A fault multiplies the step time from the next step on, and its end restores it."""
    engine_s = []
    for faults in ((), (Fault(engine=0, at_s=0.0, until_s=1e9, slow=3.0),)):
        simulation = simulated(Told(), faults=faults)
        simulation.run([request(1.0, completion_tokens=1)], ALL)
        ended_s = simulation.attempts[0].ended_s
        assert ended_s is not None
        engine_s.append(ended_s - 1.0)
    assert engine_s[1] == pytest.approx(3.0 * engine_s[0])
    simulation = simulated(Told(), faults=(Fault(engine=0, at_s=0.0, until_s=0.5, slow=3.0),))
    simulation.run([request(1.0, completion_tokens=1)], ALL)
    assert simulation.attempts[0].ended_s == pytest.approx(1.0 + engine_s[0])


@pytest.mark.parametrize("retry_after_s", [None, 0.05, 7.0])
def test_clients_retry_three_times_with_growing_pauses(retry_after_s: float | None) -> None:
    """A rejected client comes back at most three times, never before what the reject asked for."""
    policy = Refusing(retry_after_s)
    simulation = simulated(policy, retries=True)
    simulation.run([request()], ALL)
    arrived_s = [attempt.arrived_s for attempt in simulation.attempts]
    assert len(arrived_s) == 4
    pauses_s = [later - earlier for earlier, later in itertools.pairwise(arrived_s)]
    for number, pause_s in enumerate(pauses_s):
        backoff_s = 0.1 * 2**number
        if retry_after_s == 7.0:
            assert pause_s == pytest.approx(7.0)
        else:
            assert 0.8 * backoff_s <= pause_s <= 1.2 * backoff_s
    figures = figures_of(simulation, ALL)
    assert figures.attempts_per_request == 4.0
    assert figures.ends == {"rejected": 1}


def test_clients_that_do_not_retry_come_once() -> None:
    """Without retries a reject is the end."""
    simulation = simulated(Refusing(None))
    simulation.run([request()], ALL)
    assert len(simulation.attempts) == 1


def test_only_the_window_counts_and_each_of_it_is_followed_to_its_end() -> None:
    """Requests outside the window are served but not counted; the run ends with the last one inside."""
    simulation = simulated(Told())
    requests = [request(float(second), index=second, completion_tokens=50) for second in range(30)]
    simulation.run(requests, (10.0, 20.0))
    figures = figures_of(simulation, (10.0, 20.0))
    assert figures.arrivals_per_s == 1.0
    assert figures.goodput_per_s == 1.0
    assert all(each.ended_s is not None for each in simulation.attempts if 10.0 <= each.arrived_s < 20.0)
