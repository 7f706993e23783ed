"""What the n-gram estimator has learned after given answers."""

from math import exp

import numpy as np
import pytest

from tests.unit.estimator.asking import LENGTHS, PROMPT, quantiles, request, taught, taught_two_tasks
from tidegate_estimator import CompletionRequest, Message, NgramEstimator, Source


def test_cold_start_is_the_prior() -> None:
    """Nothing seen: about 150 tokens at the median and 500 at p90."""
    estimate = NgramEstimator().estimate(request())
    assert estimate.source is Source.PRIOR
    assert estimate.p50 == pytest.approx(150, rel=0.03)
    assert estimate.p90 == pytest.approx(500, rel=0.15)
    assert exp(estimate.log_mean + 1.2816 * estimate.log_sigma) == pytest.approx(estimate.p90)


def test_it_reads_the_prompt() -> None:
    """One tenant's stories are long and its translations short, also where the subject is a new one."""
    estimator = taught_two_tasks()
    assert estimator.estimate(request(text="Write a long story about cats")).p50 > 500
    assert estimator.estimate(request(text="Translate the word tree")).p50 < 30


def test_words_say_something_about_a_new_tenant() -> None:
    """What translations cost the others is where a stranger's start."""
    estimator = taught_two_tasks()
    story = estimator.estimate(request("stranger", text="Write a long story about cats"))
    translation = estimator.estimate(request("stranger", text="Translate the word tree"))
    assert story.source is translation.source is Source.GLOBAL
    assert story.p50 > 10 * translation.p50


def test_tenants_are_learned_apart() -> None:
    """One tenant's essays do not lengthen another's labels, though their prompts are the same."""
    estimator = NgramEstimator()
    for _ in range(150):
        for tenant, length in (("essays", 900), ("labels", 5)):
            estimator.learn(estimator.estimate(request(tenant)).ticket, length, "stop")
    assert estimator.estimate(request("labels")).p50 == pytest.approx(5, rel=0.25)
    assert estimator.estimate(request("essays")).p50 == pytest.approx(900, rel=0.25)


def test_models_are_learned_apart() -> None:
    """A terse model and a wordy one, asked the same."""
    estimator = NgramEstimator()
    for _ in range(150):
        for model, length in (("terse", 30), ("wordy", 300)):
            estimator.learn(estimator.estimate(request(model=model)).ticket, length, "stop")
    assert estimator.estimate(request(model="terse")).p50 == pytest.approx(30, rel=0.25)
    assert estimator.estimate(request(model="wordy")).p50 == pytest.approx(300, rel=0.25)


def test_the_prompts_size_counts() -> None:
    """Where long prompts get long answers, the estimate follows the size of the prompt."""
    estimator = NgramEstimator()
    for i in range(300):
        text, length = (("word " * 2000), 800) if i % 2 else ("word " * 20, 40)
        estimator.learn(estimator.estimate(request(text=text)).ticket, length, "stop")
    assert estimator.estimate(request(text="word " * 20)).p50 == pytest.approx(40, rel=0.3)
    assert estimator.estimate(request(text="word " * 2000)).p50 == pytest.approx(800, rel=0.3)


def test_earlier_answers_of_the_conversation_count() -> None:
    """The same question after a short answer and after a long one, answered in kind."""

    def follow_up(answer_chars: int) -> CompletionRequest:
        turns = ("user", "Go on."), ("assistant", "x" * answer_chars), ("user", "And then?")
        messages = tuple(Message(role=role, text=text) for role, text in turns)
        return CompletionRequest(tenant="acme", model="llama", messages=messages, prompt_chars=400)

    estimator = NgramEstimator()
    for _ in range(150):
        for chars, length in ((40, 10), (3000, 700)):
            estimator.learn(estimator.estimate(follow_up(chars)).ticket, length, "stop")
    assert estimator.estimate(follow_up(3000)).p50 > 10 * estimator.estimate(follow_up(40)).p50


def test_a_model_that_changes_silently_is_learned_in_64_answers() -> None:
    """After answers of 400, 64 of 30 are enough."""
    assert taught(NgramEstimator(), [400.0] * 300 + [30.0] * 64).estimate(request()).p50 == pytest.approx(30, rel=0.25)


def test_a_change_is_learned_as_well_after_a_million_answers() -> None:
    """With sums of squares as large as any number of answers can make them, a switch takes 300 answers at most."""
    estimator = taught(NgramEstimator(), [400.0] * 300)
    heads = estimator._state
    heads.mean_head.squares[:] = 1.5**2 / (1 - 0.9999)
    heads.distribution_head.squares[heads.distribution_head.weights.any(axis=1)] = 1.0 / (1 - 0.9999)
    for _ in range(300):
        estimator.learn(estimator.estimate(request()).ticket, 30, "stop")
    assert estimator.estimate(request()).p50 == pytest.approx(30, rel=0.4)


def test_nine_of_ten_answers_stay_below_p90_for_each_tenant() -> None:
    """A tenant of nearly equal answers and one of wildly spread ones, with 16 requests under way."""
    noise = np.random.default_rng(0)
    estimator, waiting, covered = NgramEstimator(), [], {0.1: [], 1.2: []}  # type: ignore[var-annotated]
    for i in range(1600):
        spread = (0.1, 1.2)[i % 2]
        length = max(round(200 * exp(noise.normal(0.0, spread))), 1)
        estimate = estimator.estimate(request(f"tenant-{spread}"))
        covered[spread].append(length <= estimate.p90)
        waiting.append((estimate.ticket, length))
        if len(waiting) > 16:
            estimator.learn(*waiting.pop(0), "stop")
    for hits in covered.values():
        assert 0.86 <= np.mean(hits[100:]) <= 0.94


def test_answers_to_old_tickets_do_not_wind_up_the_calibration() -> None:
    """600 answers to tickets of the cold start, thrice as long as promised, leave p90 within reach of them."""
    estimator = NgramEstimator()
    tickets = [estimator.estimate(request()).ticket for _ in range(600)]
    for ticket in tickets:
        estimator.learn(ticket, 1500, "stop")
    assert 1400 <= estimator.estimate(request()).p90 <= 7000


@pytest.mark.parametrize(("tokens", "reason"), [(0, "abort"), (0, "stop"), (-5, "stop"), (2**40, "stop"), (10**30, "")])
def test_what_says_nothing_teaches_nothing(tokens: int, reason: str) -> None:
    """An abort before the first token, or a count that cannot be, changes no estimate."""
    estimator = taught(NgramEstimator(), LENGTHS[:50])
    before = estimator.estimate(request())
    assert not estimator.learn(before.ticket, tokens, reason)
    assert estimator.estimate(request()) == before


def test_the_engines_count_corrects_prompt_tokens() -> None:
    """A tokenizer that makes twice as many tokens is followed."""
    estimator = NgramEstimator()
    first = estimator.estimate(request()).prompt_tokens
    for _ in range(60):
        estimator.learn(estimator.estimate(request()).ticket, 50, "stop", prompt_tokens=2 * first)
    assert estimator.estimate(request()).prompt_tokens == pytest.approx(2 * first, rel=0.05)


def test_only_the_ends_of_a_long_prompt_are_read() -> None:
    """Two prompts of a megabyte that differ in their middles only are one and the same."""
    estimator = taught_two_tasks(60)
    ends = "Write a long story. " * 30
    one, other = (estimator.estimate(request(text=ends + middle * 500_000 + ends)) for middle in ("ab", "xy"))
    assert quantiles(one) == quantiles(other)
    assert one.ticket == other.ticket


def test_a_golden_history() -> None:
    """A fixed history of three tenants leads to the same figures on every machine and in every version of numpy."""
    estimator = NgramEstimator()
    texts = [PROMPT, "Write a poem of 4 lines.", "Is 7919 a prime number?", "Erkläre mir 重力 in 100 words"]
    for i in range(400):
        asked = request(f"t{i % 3}", model=f"m{i % 2}", text=texts[(i * 7) % 4] + str(i % 5))
        length = 20 + 60 * ((i * 7) % 4) + 15 * (i % 3) + i % 13
        cap = 100 if i % 11 == 0 else None
        ticket = estimator.estimate(
            request(asked.tenant, model=asked.model, text=asked.messages[0].text, max_tokens=cap)
        ).ticket
        cut = cap is not None and length >= cap
        estimator.learn(ticket, min(length, cap or length), "length" if cut else "stop", prompt_tokens=40)
    golden = {
        ("t0", "m0", 0): (27.848, 31.273),
        ("t1", "m1", 1): (104.754, 105.283),
        ("t2", "m0", 2): (177.111, 189.030),
        ("new", "m1", 3): (184.780, 210.520),
    }
    found = {}
    for tenant, model, text in golden:
        estimate = estimator.estimate(request(tenant, model=model, text=texts[text]))
        found[tenant, model, text] = (estimate.p50, estimate.p90)
    assert found == {key: pytest.approx(value, rel=0.01) for key, value in golden.items()}
