"""The window estimator: what it has learned after given answers, and what bounds its word."""

from math import exp, log

import pytest

from tests.unit.estimator.asking import LENGTHS, request, taught
from tidegate_estimator import CompletionRequest, Source, WindowEstimator


def test_cold_start_is_the_prior() -> None:
    """Nothing seen: 150 tokens at the median, 500 at p90, and the log-normal says the same."""
    estimate = WindowEstimator().estimate(request())
    assert estimate.source is Source.PRIOR
    assert estimate.p50 == pytest.approx(150)
    assert estimate.p90 == pytest.approx(500)
    assert exp(estimate.log_mean) == pytest.approx(150)
    assert exp(estimate.log_mean + 1.2816 * estimate.log_sigma) == pytest.approx(500)


def test_the_log_normal_matches_the_window() -> None:
    """Answers of 50, 100, 200 and 400 have a log-mean and log-sigma; the estimate names them, 4 prior answers apart."""
    estimator = taught(WindowEstimator(), [50.0, 100.0, 200.0, 400.0] * 100)
    estimate = estimator.estimate(request())
    assert estimate.log_mean == pytest.approx(log(200 / 2**0.5), abs=0.1)
    assert estimate.log_sigma == pytest.approx(log(2) * 1.25**0.5, abs=0.06)


def test_a_first_answer_moves_the_estimate_a_little() -> None:
    """One answer of 10 tokens does not make 10 the estimate, nor does it go unheard."""
    estimate = taught(WindowEstimator(), [10.0]).estimate(request())
    assert 50 < estimate.p50 < 130


def test_a_new_tenant_starts_from_all_tenants() -> None:
    """What others asked of the engines stands before the constant prior."""
    estimate = taught(WindowEstimator(), LENGTHS).estimate(request("stranger"))
    assert estimate.source is Source.GLOBAL
    assert 45 <= estimate.p50 <= 58


def test_tenants_are_learned_apart() -> None:
    """One tenant's essays do not lengthen another's labels."""
    estimator = WindowEstimator()
    for _ in range(200):
        for tenant, length in (("essays", 900), ("labels", 5)):
            estimator.learn(estimator.estimate(request(tenant)).ticket, length, "stop")
    assert estimator.estimate(request("labels")).p50 == pytest.approx(5, rel=0.25)
    assert estimator.estimate(request("essays")).p50 == pytest.approx(900, rel=0.25)


def test_a_model_that_changes_is_forgotten_in_one_window() -> None:
    """64 answers after a silent switch the estimate is the new one."""
    estimator = taught(WindowEstimator(), [400.0] * 300 + [30.0] * 64)
    assert estimator.estimate(request()).p50 == pytest.approx(30, rel=0.25)


def test_the_prompts_size_counts() -> None:
    """Where long prompts get long answers, the estimate follows the size of the prompt."""
    estimator = WindowEstimator()
    for i in range(400):
        text, length = (("word " * 2000), 800) if i % 2 else ("word " * 20, 40)
        estimator.learn(estimator.estimate(request(text=text)).ticket, length, "stop")
    assert estimator.estimate(request(text="word " * 20)).p50 == pytest.approx(40, rel=0.3)
    assert estimator.estimate(request(text="word " * 2000)).p50 == pytest.approx(800, rel=0.3)


def test_tenants_beyond_the_bound_displace_the_idlest() -> None:
    """22,000 tenants leave 20,000 behind; the first are gone and the state stays small."""
    estimator = WindowEstimator()
    text = "hi"
    for i in range(22_000):
        estimator.learn(estimator.estimate(request(f"t{i}", text=text)).ticket, 100, "stop")
    assert estimator.estimate(request("t0", text=text)).source is Source.GLOBAL
    assert estimator.estimate(request("t21999", text=text)).source is Source.TENANT_MODEL
    assert len(estimator.dump()) < 20_001 * 200


def test_tenant_and_model_are_told_apart() -> None:
    """No spelling of a tenant's name reaches into another tenant's history."""
    estimator = taught(WindowEstimator(), LENGTHS)
    spliced = CompletionRequest(tenant="acmell", model="ama")
    assert estimator.estimate(spliced).source is Source.GLOBAL
