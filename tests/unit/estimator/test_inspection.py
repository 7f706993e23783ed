"""What a model tells of itself."""

from math import log1p

import pytest

from tidegate_estimator import CompletionRequest, Message, NgramEstimator, model_file
from tidegate_estimator.categorical import asking_message, categorical_features
from tidegate_estimator.feature_names import kind_name, probed_rows
from tidegate_estimator.guarded import Drift
from tidegate_estimator.inspection import inspect, key_figures, named_weights
from tidegate_estimator.ngram_state import NgramState
from tidegate_estimator.window import key_of
from tidegate_estimator.words import read_words


def taught(tokens: int, count: int = 30) -> NgramState:
    estimator = NgramEstimator()
    ask = CompletionRequest(
        tenant="acme", model="llama", messages=(Message(role="user", text="Say hello"),), prompt_chars=9
    )
    for _ in range(count):
        assert estimator.learn(estimator.estimate(ask).ticket, tokens, "stop")
    return model_file.unpack(estimator.dump())


def test_every_kind_of_feature_has_a_name() -> None:
    """A feature that is added needs a line in the table of names."""
    request = CompletionRequest(messages=(Message(role="user", text="Say hello"),))
    message = asking_message(request.messages)
    kinds = {kind for kind, _, _ in categorical_features(request, message, read_words(message.text))}
    assert not [kind for kind in kinds if kind_name(kind) == f"kind {kind}"]


def test_counts_and_the_key_are_those_that_were_taught() -> None:
    """One key, its answers, its calibration; a stranger has none."""
    state = taught(20)
    found, key = inspect(state), key_figures(state, "acme", "llama")
    assert found.keys == 1
    assert found.answers == pytest.approx(30, rel=0.05)
    assert found.mean_rows > 0 < found.distribution_rows
    assert key is not None
    assert key.log_mean is not None
    assert key.answers == pytest.approx(30, rel=0.05)
    weights = sum(each.weight for each in named_weights(state, tenant="acme", model="llama", most=1000))
    assert key.log_mean + weights == pytest.approx(log1p(20), abs=0.7)
    assert key_figures(state, "nobody", "llama") is None


def test_weights_have_names_and_come_largest_first() -> None:
    """Short answers pull the named weights down; those of a tenant are only named where it is given."""
    state = taught(2)
    weights = named_weights(state, tenant="acme", model="llama", most=10)
    sizes = [abs(each.weight) for each in weights]
    assert len(weights) == 10
    assert sizes == sorted(sizes, reverse=True)
    assert sum(each.weight for each in weights) < 0.0
    assert not any("tenant" in name or "of the model" in name for name, _ in probed_rows("", ""))
    assert any(name == "tenant and model" for name, _ in probed_rows("acme", "llama"))


def test_a_fresh_state_has_nothing_to_tell() -> None:
    """No weights, no keys, no running mean."""
    found = inspect(NgramState())
    assert (found.keys, found.mean_rows, found.distribution_rows, found.log_mean) == (0, 0, 0, None)
    assert named_weights(NgramState()) == []


def drifting(z: float, answers: int = 30) -> Drift:
    drift = Drift()
    for _ in range(answers):
        drift.take(z, 2.0, 0.5)
    return drift


def test_those_on_the_wider_source_come_most_biased_first() -> None:
    """Who is within bounds is counted as watched, and not listed."""
    found = inspect(NgramState(), {1: drifting(1.5), 2: drifting(-3.0), 3: drifting(0.1)})
    assert found.watched == 3
    assert [(each.key, each.answers) for each in found.adrift] == [(2, 30), (1, 30)]
    assert found.adrift[0].bias == pytest.approx(-3.0)
    assert (found.adrift[0].log_miss, found.adrift[0].wider_log_miss) == pytest.approx((2.0, 0.5))
    assert (inspect(NgramState()).watched, inspect(NgramState()).adrift) == (0, [])


def test_a_key_tells_its_drift_where_it_is_watched() -> None:
    """The drift is that of this tenant and model, and None in a file without a guard."""
    state = taught(20)
    drifts = {key_of("acme", "llama"): drifting(1.5), key_of("other", "llama"): drifting(0.0)}
    key = key_figures(state, "acme", "llama", drifts)
    assert key is not None
    assert key.drift is not None
    assert key.drift.adrift
    assert key.drift.bias == pytest.approx(1.5)
    alone = key_figures(state, "acme", "llama")
    assert alone is not None
    assert alone.drift is None
