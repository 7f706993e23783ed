"""The estimators of a process and their model files."""

from pathlib import Path

import pytest

from tidegate.errors import StateFileError
from tidegate.estimators import NGRAM, WINDOW, Estimators
from tidegate_estimator import CompletionRequest, Estimator, Source

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
