"""The window estimator: what it has learned after given answers, and what bounds its word."""

from math import exp, log

import pytest

from tidegate_estimator import CompletionRequest, CostEstimate, Message, Source, WindowEstimator

PROMPT = "Summarise the attached report for a busy reader. " * 8
LENGTHS = [50 + 10 * ((i * 7) % 11 - 5) / 5 for i in range(500)]  # 40 to 60, evenly spread


def request(
    tenant: str = "acme",
    *,
    max_tokens: int | None = None,
    sequences: int = 1,
    min_tokens: int = 0,
    ignore_eos: bool = False,
    text: str = PROMPT,
) -> CompletionRequest:
    return CompletionRequest(
        tenant=tenant,
        model="llama",
        messages=(Message(role="user", text=text),),
        prompt_chars=len(text),
        max_tokens=max_tokens,
        sequences=sequences,
        min_tokens=min_tokens,
        ignore_eos=ignore_eos,
    )


def taught(lengths: list[float], **facts: int) -> WindowEstimator:
    estimator = WindowEstimator()
    for length in lengths:
        ticket = estimator.estimate(request(**facts)).ticket  # type: ignore[arg-type]
        assert estimator.learn(ticket, round(length), "stop")
    return estimator


def quantiles(estimate: CostEstimate) -> list[float]:
    return [estimate.p50, estimate.p80, estimate.p90, estimate.p95]


def test_cold_start_is_the_prior() -> None:
    """Nothing seen: 150 tokens at the median, 500 at p90, and the log-normal says the same."""
    estimate = WindowEstimator().estimate(request())
    assert estimate.source is Source.PRIOR
    assert estimate.p50 == pytest.approx(150)
    assert estimate.p90 == pytest.approx(500)
    assert exp(estimate.log_mean) == pytest.approx(150)
    assert exp(estimate.log_mean + 1.2816 * estimate.log_sigma) == pytest.approx(500)


@pytest.mark.parametrize("max_tokens", [16384, None])
def test_a_generous_cap_is_not_the_estimate(max_tokens: int | None) -> None:
    """After 500 answers of 50 +- 10 the estimate is near 50, whether or not the caller allows 16,384."""
    estimator = WindowEstimator()
    for length in LENGTHS:
        estimator.learn(estimator.estimate(request(max_tokens=max_tokens)).ticket, round(length), "stop")
    for cap in (16384, None):
        estimate = estimator.estimate(request(max_tokens=cap))
        assert estimate.source is Source.TENANT_MODEL
        assert 47 <= estimate.p50 <= 53
        assert 47 <= estimate.mean <= 55
        assert estimate.p95 <= 65
        assert exp(estimate.log_mean) == pytest.approx(50, rel=0.06)
        assert 0.1 <= estimate.log_sigma <= 0.25


def test_the_log_normal_matches_the_window() -> None:
    """Answers of 50, 100, 200 and 400 have a log-mean and log-sigma; the estimate names them, 4 prior answers apart."""
    estimator = taught([50.0, 100.0, 200.0, 400.0] * 100)
    estimate = estimator.estimate(request())
    assert estimate.log_mean == pytest.approx(log(200 / 2**0.5), abs=0.1)
    assert estimate.log_sigma == pytest.approx(log(2) * 1.25**0.5, abs=0.06)


def test_a_first_answer_moves_the_estimate_a_little() -> None:
    """One answer of 10 tokens does not make 10 the estimate, nor does it go unheard."""
    estimate = taught([10.0]).estimate(request())
    assert 50 < estimate.p50 < 130


def test_a_new_tenant_starts_from_all_tenants() -> None:
    """What others asked of the engines stands before the constant prior."""
    estimate = taught(LENGTHS).estimate(request("stranger"))
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
    estimator = taught([400.0] * 300 + [30.0] * 64)
    assert estimator.estimate(request()).p50 == pytest.approx(30, rel=0.25)


def test_the_prompts_size_counts() -> None:
    """Where long prompts get long answers, the estimate follows the size of the prompt."""
    estimator = WindowEstimator()
    for i in range(400):
        text, length = (("word " * 2000), 800) if i % 2 else ("word " * 20, 40)
        estimator.learn(estimator.estimate(request(text=text)).ticket, length, "stop")
    assert estimator.estimate(request(text="word " * 20)).p50 == pytest.approx(40, rel=0.3)
    assert estimator.estimate(request(text="word " * 2000)).p50 == pytest.approx(800, rel=0.3)


def test_caps_bound_quantiles_and_mean_but_not_the_log_normal() -> None:
    """A cap of 20 bounds every figure in tokens; log_mean stays what the answer would have been."""
    estimate = taught(LENGTHS).estimate(request(max_tokens=20))
    assert max(*quantiles(estimate), estimate.mean) <= 20
    assert exp(estimate.log_mean) > 40


def test_sequences_multiply() -> None:
    """n = 4 costs four answers, and its cap is four caps."""
    estimator = taught(LENGTHS)
    one, four = estimator.estimate(request()), estimator.estimate(request(sequences=4))
    assert four.p50 == pytest.approx(4 * one.p50)
    assert four.mean == pytest.approx(4 * one.mean)
    assert estimator.estimate(request(sequences=4, max_tokens=30)).p95 == 120


def test_answers_of_several_sequences_teach_one() -> None:
    """400 tokens in 8 sequences are answers of 50."""
    estimate = taught([400.0] * 300, sequences=8).estimate(request())
    assert estimate.p50 == pytest.approx(50, rel=0.1)


def test_min_tokens_raises() -> None:
    """An answer that must have 200 tokens is not expected to have 50."""
    estimate = taught(LENGTHS).estimate(request(min_tokens=200))
    assert min(*quantiles(estimate), estimate.mean) >= 200


@pytest.mark.parametrize("facts", [{"ignore_eos": True}, {"min_tokens": 700}, {"min_tokens": 9000}])
def test_a_forced_length_is_the_cap(facts: dict[str, int]) -> None:
    """ignore_eos, or a minimum at the cap, means the cap exactly; and the answer teaches nothing about the model."""
    estimator = taught(LENGTHS)
    before = estimator.estimate(request()).p50
    estimate = estimator.estimate(request(max_tokens=700, **facts))  # type: ignore[arg-type]
    assert estimate.source is Source.CAP
    assert [*quantiles(estimate), estimate.mean] == [pytest.approx(700)] * 5
    assert exp(estimate.log_mean) == pytest.approx(700)
    assert estimate.log_sigma < 0.05
    assert not estimator.learn(estimate.ticket, 700, "length")
    assert estimator.estimate(request()).p50 == before


@pytest.mark.parametrize(("reason", "cap"), [("length", 60), ("", 60), ("abort", None)])
def test_answers_cut_short_do_not_teach_the_cut(reason: str, cap: int | None) -> None:
    """Half of the answers are cut at 60 of about 200 tokens: the estimate stays near 200."""
    estimator = taught([150.0, 200.0, 260.0] * 30)
    for i in range(120):
        ticket = estimator.estimate(request(max_tokens=cap)).ticket
        if i % 2:
            estimator.learn(ticket, 60, reason)
        else:
            estimator.learn(estimator.estimate(request()).ticket, (150, 200, 260)[i % 3], "stop")
    assert 150 <= estimator.estimate(request()).p50 <= 270


def test_cuts_above_what_was_expected_raise_the_estimate() -> None:
    """Answers cut at 4,000 where 50 were expected show that 50 is wrong."""
    estimator = taught(LENGTHS[:64])
    for _ in range(64):
        estimator.learn(estimator.estimate(request(max_tokens=4000)).ticket, 4000, "length")
    assert estimator.estimate(request()).p50 > 3500


def test_an_engines_own_bound_is_a_length() -> None:
    """An engine that cuts at its default of 16 where the caller stated no bound will do so again."""
    estimator = WindowEstimator()
    for _ in range(200):
        estimator.learn(estimator.estimate(request()).ticket, 16, "length")
    assert estimator.estimate(request()).p50 == pytest.approx(16, rel=0.15)


@pytest.mark.parametrize(("tokens", "reason"), [(0, "abort"), (0, "stop"), (-5, "stop"), (2**40, "stop"), (10**30, "")])
def test_what_says_nothing_teaches_nothing(tokens: int, reason: str) -> None:
    """An abort before the first token, or a count that cannot be, changes no estimate."""
    estimator = taught(LENGTHS)
    before = estimator.estimate(request())
    assert not estimator.learn(before.ticket, tokens, reason)
    assert estimator.estimate(request()) == before


def test_remaining_falls_to_the_cap_and_grows_in_the_tail() -> None:
    """An answer that has outlived its expectation is expected to go on, never past the caller's cap."""
    estimator = taught(LENGTHS)
    ticket = estimator.estimate(request()).ticket
    assert estimator.remaining(ticket, 0) == pytest.approx(50, rel=0.1)
    assert 5 < estimator.remaining(ticket, 45) < 15
    assert estimator.remaining(ticket, 5000) > estimator.remaining(ticket, 500) > 0
    capped = estimator.estimate(request(max_tokens=300)).ticket
    assert estimator.remaining(capped, 299) <= 1
    assert estimator.remaining(capped, 300) == 0
    assert estimator.remaining(b"not a ticket", 0) > 0


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
    estimator = taught(LENGTHS)
    spliced = CompletionRequest(tenant="acmell", model="ama")
    assert estimator.estimate(spliced).source is Source.GLOBAL
