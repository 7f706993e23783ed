"""What a model tells of itself."""

from math import log1p

import pytest

from tidegate_estimator import CompletionRequest, Message, NgramEstimator, model_file
from tidegate_estimator.categorical import asking_message, categorical_features
from tidegate_estimator.feature_names import kind_name, probed_rows
from tidegate_estimator.inspection import inspect, key_figures, named_weights
from tidegate_estimator.ngram_state import NgramState
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
