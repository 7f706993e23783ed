"""The estimators of a process and their model files."""

from pathlib import Path

import pytest

from tidegate.errors import StateFileError
from tidegate.estimators import NGRAM, WINDOW, Estimators
from tidegate_estimator import CompletionRequest, CostEstimate, Estimator, Source

REQUEST = CompletionRequest(tenant="t", model="m", prompt_chars=400)


def taught(estimator: Estimator, tokens: int = 7) -> Estimator:
    for _ in range(30):
        assert estimator.learn(estimator.estimate(REQUEST).ticket, tokens, "stop")
    return estimator


@pytest.mark.parametrize("kind", [NGRAM, WINDOW])
def test_what_was_learned_survives_a_restart(kind: str, tmp_path: Path) -> None:
    """The next process predicts what this one would."""
    before = Estimators(tmp_path)
    estimate = taught(before.of(kind)).estimate(REQUEST)
    before.snapshot()()
    after = Estimators(tmp_path)
    assert after.load() == []
    assert after.of(kind).estimate(REQUEST).p50 == pytest.approx(estimate.p50, rel=0.01)
    assert estimate.p50 < 20


def test_a_snapshot_is_of_its_moment(tmp_path: Path) -> None:
    """What is learned while the file is being written does not get into it."""
    estimators = Estimators(tmp_path)
    expected = taught(estimators.of(NGRAM)).estimate(REQUEST).p50
    save = estimators.snapshot()
    taught(estimators.of(NGRAM), 4000)
    save()
    after = Estimators(tmp_path)
    after.load()
    assert after.of(NGRAM).estimate(REQUEST).p50 == pytest.approx(expected, rel=0.01)


def test_a_damaged_model_file_is_left_aside(tmp_path: Path) -> None:
    """It is named, with what is wrong, and the estimator starts afresh."""
    (tmp_path / "ngram.model").write_bytes(b"TGNG damaged")
    estimators = Estimators(tmp_path)
    (fault,) = estimators.load()
    assert "ngram.model" in fault
    assert estimators.of(NGRAM).estimate(REQUEST).source in (Source.PRIOR, Source.GLOBAL)


def set_adrift(estimator: Estimator) -> CostEstimate:
    """Its tenant answers 20 tokens instead of 400, which thirty requests under way were not predicted to."""
    other = CompletionRequest(tenant="other", model="m", prompt_chars=400)
    for _ in range(30):
        for request, tokens in ((REQUEST, 400), (other, 20), (other, 20)):
            assert estimator.learn(estimator.estimate(request).ticket, tokens, "stop")
    for ticket in [estimator.estimate(REQUEST).ticket for _ in range(30)]:
        assert estimator.learn(ticket, 20, "stop")
    return estimator.estimate(REQUEST)


def test_a_tenant_adrift_stays_on_the_wider_source_over_a_restart(tmp_path: Path) -> None:
    """The model file says who had drifted off; damaged, it is left aside as a whole and the guard begins anew."""
    before = Estimators(tmp_path)
    estimate = set_adrift(before.of(NGRAM))
    assert estimate.source is Source.WIDER
    before.snapshot()()
    after = Estimators(tmp_path)
    assert after.load() == []
    assert after.of(NGRAM).estimate(REQUEST).p50 == estimate.p50
    assert after.of(NGRAM).estimate(REQUEST).source is Source.WIDER

    file = tmp_path / "ngram.model"
    content = bytearray(file.read_bytes())
    content[40] ^= 1
    file.write_bytes(content)
    afresh = Estimators(tmp_path)
    assert afresh.load() == [f"{file}: not an estimator state of this version, or damaged"]
    assert afresh.of(NGRAM).estimate(REQUEST).source is Source.PRIOR


def test_a_disk_that_refuses_is_said(tmp_path: Path) -> None:
    """Saving fails with the file's name and the reason."""
    estimators = Estimators(tmp_path / "gone")
    estimators.of(WINDOW)
    with pytest.raises(StateFileError, match=r"window\.model: cannot be written"):
        estimators.snapshot()()


def test_without_a_directory_nothing_is_kept() -> None:
    """Neither loading nor saving touches a disk."""
    estimators = Estimators(None)
    estimators.of(WINDOW)
    assert estimators.load() == []
    estimators.snapshot()()
