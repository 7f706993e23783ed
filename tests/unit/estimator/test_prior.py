"""The shipped prior: it opens, says sensible things of strangers, and does not stand in the way of learning."""

import pytest

from tidegate_estimator import CompletionRequest, Message, NgramEstimator, Source, model_file
from tidegate_estimator.prior import pack_prior, prior_state, unpack_prior

SIZE_BYTES_MAX = 1_000_000


def request(text: str, *, tenant: str = "stranger", model: str = "unheard-of") -> CompletionRequest:
    return CompletionRequest(
        tenant=tenant, model=model, messages=(Message(role="user", text=text),), prompt_chars=len(text)
    )


def started() -> NgramEstimator:
    state = prior_state()
    assert state is not None, "made for other features: run python -m bench.estimator.make_prior"
    estimator = NgramEstimator()
    estimator.load(state)
    return estimator


def test_the_shipped_prior_fits_this_version_and_is_small() -> None:
    """It opens under the current features and is well below a megabyte."""
    state = prior_state()
    assert state is not None, "made for other features: run python -m bench.estimator.make_prior"
    assert len(pack_prior(state)) < SIZE_BYTES_MAX


def test_it_knows_nobody() -> None:
    """No tenants, no models, no counts: only weights of sizes and wordings."""
    state = prior_state()
    assert state is not None
    prior = model_file.unpack(state)
    assert len(prior.keys) == 0
    assert prior.prompts.rows() == []
    assert prior.mean_head.count == 0.0
    names = (("acme", "gpt-4-0613"), ("tau-airline", "gpt-4o-2024"), ("gsm", "Qwen2-1.5B-Instruct"))
    answers = {round(started().estimate(request("Say hello", tenant=t, model=m)).p50, 1) for t, m in names}
    stranger = started().estimate(request("Say hello")).p50
    assert all(answer == pytest.approx(stranger, rel=0.5) for answer in answers)  # a shared row may move it a little


def test_a_stranger_gets_an_answer_by_the_wording() -> None:
    """An essay is expected to be longer than a choice, and both within reason; the source says prior."""
    estimator = started()
    essay = estimator.estimate(request("Write a detailed story about a lighthouse keeper and her brother."))
    choice = estimator.estimate(request("Is 17077 a prime number? Answer only yes or no."))
    assert essay.source is Source.PRIOR
    assert 10 < choice.p50 < essay.p50 < 2000
    assert essay.p50 < essay.p90 < 10_000


def test_a_tenant_is_learned_as_fast_as_from_nothing() -> None:
    """After 40 answers of 12 tokens the estimate is near 12, from the prior as from a cold start."""
    cold, warm = NgramEstimator(), started()
    ask = request("Write a detailed story about a lighthouse keeper and her brother.")
    for estimator in (cold, warm):
        for _ in range(40):
            assert estimator.learn(estimator.estimate(ask).ticket, 12, "stop")
    assert warm.estimate(ask).p50 == pytest.approx(12, rel=0.25)
    assert abs(warm.estimate(ask).p50 - 12) <= abs(cold.estimate(ask).p50 - 12) + 2


@pytest.mark.parametrize(
    "damage",
    [lambda data: b"", lambda data: data[:-10], lambda data: b"x" + data, lambda data: data + b"x"],
    ids=["empty", "cut", "no zlib", "more behind it"],
)
def test_a_damaged_file_is_refused(damage: object) -> None:
    """ValueError, and nothing else, whatever has become of the bytes."""
    packed = pack_prior(NgramEstimator().dump())
    assert unpack_prior(packed)
    assert callable(damage)
    with pytest.raises(ValueError, match=r"prior|estimator state"):
        unpack_prior(damage(packed))


def test_whole_zlib_around_something_else_is_refused() -> None:
    """What is inside has to be a state of this version."""
    with pytest.raises(ValueError, match="estimator state"):
        unpack_prior(pack_prior(b"hello"))
