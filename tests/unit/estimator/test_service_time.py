"""Service times: what is predicted, what is learned, what is forgotten, what survives a restart."""

from math import exp, log
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_estimator.service_ticket import TICKET_BYTES, ServiceTicket, open_service_ticket
from tidegate_estimator.service_time import CLASSES_MAX, MODELS_MAX, ServiceTimes, class_of


def taught(times: ServiceTimes, model: str, size: int, seconds: float, *, trust: float = 1.0) -> bool:
    ticket = open_service_ticket(times.estimate(model, size).ticket(trust=trust))
    assert ticket is not None
    return times.learn(ticket, seconds)


def lognormal(times: ServiceTimes, model: str, size: int, median_s: float, count: int, *, seed: int = 1) -> None:
    random = Random(seed)
    for _ in range(count):
        taught(times, model, size, median_s * random.lognormvariate(0.0, 0.3))


def test_before_the_first_answer() -> None:
    """A tenth of a second, and far from sure of it."""
    estimate = ServiceTimes().estimate("m", 100)
    assert estimate.log_mean == pytest.approx(log(0.1))
    assert estimate.p90_s > 3 * 0.1
    assert estimate.mean_s > 0.1


def test_one_answer_is_most_of_what_is_known() -> None:
    """The second request of a kind is predicted within a factor of two, however far off the prior was."""
    times = ServiceTimes()
    assert taught(times, "m", 100, 10.0)
    assert 5.0 < exp(times.estimate("m", 100).log_mean) < 11.0


def test_median_and_spread_are_learned_by_size() -> None:
    """After 200 answers of each size the median is within 5 %, and nine of ten answers lie below p90."""
    times, sizes = ServiceTimes(), {1_000: 0.02, 10_000: 0.06, 100_000: 0.2}
    for size, median_s in sizes.items():
        lognormal(times, "resnet", size, median_s, 200)
    random = Random(2)
    for size, median_s in sizes.items():
        estimate = times.estimate("resnet", size)
        assert exp(estimate.log_mean) == pytest.approx(median_s, rel=0.05)
        assert estimate.mean_s == pytest.approx(median_s * exp(0.045), rel=0.08)
        within = sum(median_s * random.lognormvariate(0.0, 0.3) <= estimate.p90_s for _ in range(4000))
        assert 0.86 < within / 4000 < 0.95


def test_an_unknown_size_is_taken_for_its_model_and_an_unknown_model_for_its_pool() -> None:
    """Each falls back on the next wider, and is less sure of it."""
    times = ServiceTimes()
    lognormal(times, "slow", 1_000, 2.0, 200)
    known, other_size, other_model = (
        times.estimate("slow", 1_000),
        times.estimate("slow", 10**6),
        times.estimate("x", 1),
    )
    assert exp(other_size.log_mean) == pytest.approx(2.0, rel=0.1)
    assert exp(other_model.log_mean) == pytest.approx(2.0, rel=0.1)
    assert known.log_sigma < other_size.log_sigma
    assert known.log_sigma < other_model.log_sigma


def test_two_models_are_told_apart() -> None:
    """One name is no other's, whatever the size."""
    times = ServiceTimes()
    lognormal(times, "a", 100, 0.01, 100)
    lognormal(times, "b", 100, 1.0, 100)
    assert exp(times.estimate("a", 100).log_mean) == pytest.approx(0.01, rel=0.1)
    assert exp(times.estimate("b", 100).log_mean) == pytest.approx(1.0, rel=0.1)


def test_a_crowd_teaches_only_where_nothing_better_is_known() -> None:
    """Times with queueing in them give a first idea, and never move what quiet answers have taught."""
    times = ServiceTimes()
    assert taught(times, "m", 1, 5.0, trust=0.05)
    assert times.estimate("m", 1).log_mean > log(0.1)
    lognormal(times, "m", 1, 0.5, 100)
    before = times.estimate("m", 1)
    assert not taught(times, "m", 1, 50.0, trust=0.05)
    assert times.estimate("m", 1) == before


def test_a_model_that_became_slower_is_followed() -> None:
    """Three hundred answers after a change by ten nothing is left of the old time, though no single one counts much."""
    times = ServiceTimes()
    lognormal(times, "m", 1, 0.1, 300)
    taught(times, "m", 1, 1000.0)
    assert exp(times.estimate("m", 1).log_mean) < 0.12
    lognormal(times, "m", 1, 1.0, 500)
    assert exp(times.estimate("m", 1).log_mean) == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize(("counts_the_cut", "low", "high"), [(True, -0.05, 0.05), (False, -0.5, -0.15)])
def test_answers_whose_clients_left_are_not_forgotten(counts_the_cut: bool, low: float, high: float) -> None:
    """Where half of the clients leave before the end, the rest alone would say a fifth less than is true."""
    random, errors = Random(3), []
    for _ in range(20):
        times = ServiceTimes()
        for _ in range(300):
            seconds, patience_s = 0.2 * random.lognormvariate(0.0, 0.3), random.uniform(0.1, 0.3)
            ticket = open_service_ticket(times.estimate("m", 1).ticket(trust=1.0))
            assert ticket is not None
            if seconds <= patience_s:
                times.learn(ticket, seconds)
            elif counts_the_cut:
                times.learn(ticket, patience_s, cut=True)
        errors.append(times.estimate("m", 1).log_mean - log(0.2))
    assert low < sum(errors) / len(errors) < high


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_a_time_that_cannot_be_teaches_nothing(seconds: float) -> None:
    """Clocks and clients may say anything."""
    times = ServiceTimes()
    before = times.estimate("m", 1)
    assert not taught(times, "m", 1, seconds)
    assert times.estimate("m", 1) == before


def test_tables_are_bounded() -> None:
    """A thousand models of a thousand sizes leave no more than the bounds, and the one in use stays."""
    times = ServiceTimes()
    lognormal(times, "kept", 1, 3.0, 50)
    for number in range(3 * CLASSES_MAX):
        taught(times, f"m{number % (3 * MODELS_MAX)}", 2 ** (number % 60), 0.1)
        taught(times, "kept", 1, 3.0)
    assert len(times) == CLASSES_MAX
    assert exp(times.estimate("kept", 1).log_mean) == pytest.approx(3.0, rel=0.1)


@given(st.integers(0, 2**62))
def test_classes_are_half_octaves(size: int) -> None:
    """A class holds sizes within a factor of the square root of two; 0, not told, has one of its own."""
    found = class_of(size)
    assert (found == 0) == (size == 0)
    assert class_of(2 * size) == (found + 2 if size else 0)
    assert class_of(size + 1) in (found, found + 1, found + 2 if size <= 2 else found + 1)


def test_what_was_learned_survives() -> None:
    """A restored table predicts the same within a percent."""
    times, other = ServiceTimes(), ServiceTimes()
    lognormal(times, "a", 100, 0.01, 100)
    lognormal(times, "b", 10**6, 1.0, 60)
    other.restore(times.dump())
    for model, size in (("a", 100), ("b", 10**6)):
        before, after = times.estimate(model, size), other.estimate(model, size)
        assert exp(after.log_mean) == pytest.approx(exp(before.log_mean), rel=0.01)
        assert after.log_sigma == pytest.approx(before.log_sigma, rel=0.1)


numbers = st.floats() | st.integers(-(2**70), 2**70) | st.booleans()


@given(st.lists(st.lists(numbers, max_size=8), max_size=4))
def test_damaged_records_are_passed_over(records: list[list[float]]) -> None:
    """Whatever a state file holds, what comes out is finite."""
    times = ServiceTimes()
    times.restore(records)
    assert 0.0 < times.estimate("m", 1).mean_s < 1e5


@given(st.binary(max_size=40) | st.binary(min_size=TICKET_BYTES - 1, max_size=TICKET_BYTES - 1).map(lambda b: b"S" + b))
def test_any_bytes_are_a_usable_ticket_or_none(data: bytes) -> None:
    """A ticket that opens can be learned from, and leaves the predictions finite."""
    ticket = open_service_ticket(data)
    if ticket is not None:
        times = ServiceTimes()
        times.learn(ticket, 1.0)
        assert 0.0 < times.estimate("m", 1).mean_s < 1e5
        assert 0.0 < ticket.mean_s <= 1.5e12


def test_a_ticket_keeps_what_was_predicted() -> None:
    """Mean and p90 come back as they were, to the precision of 32 bits."""
    estimate = ServiceTimes().estimate("m", 77)
    ticket = open_service_ticket(estimate.ticket(trust=0.25))
    assert isinstance(ticket, ServiceTicket)
    assert (ticket.key, ticket.size_class, ticket.trust) == (estimate.key, estimate.size_class, 0.25)
    assert ticket.mean_s == pytest.approx(estimate.mean_s, rel=1e-5)
    assert ticket.p90_s == pytest.approx(estimate.p90_s, rel=1e-5)
