"""The estimators of the process: one a kind, shared by all pools.

Tenant and model are what an estimator tells requests apart by, so that pools need none of their own; and its memory,
some 16 MB for the n-grams, is spent once and not 256 times. What was learned lies in one model file a kind, in
`--state-dir`; that of the n-grams says also for whom the wider source speaks, so that a restart does not give a tenant
back to predictions that had drifted off.
"""

from collections.abc import Callable
from pathlib import Path

from tidegate.durable_file import read_file, replace_file
from tidegate.errors import StateFileError
from tidegate_estimator import Estimator, GuardedEstimator, WindowEstimator
from tidegate_estimator.prior import from_prior

MODEL_BYTES_MAX = 64 << 20
WINDOW, NGRAM = "window", "ngram"


def new_estimator(kind: str) -> Estimator:
    """An estimator that has seen no answer; the n-grams start from the prior that ships with the package."""
    if kind == WINDOW:
        return WindowEstimator()
    assert kind == NGRAM, kind
    return from_prior(GuardedEstimator())


class Estimators:
    """Makes, keeps, saves and loads them.

    Args:
        directory: of the model files, or None where nothing is to be kept.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._by_kind: dict[str, Estimator] = {}

    def of(self, kind: str) -> Estimator:
        """The estimator of a kind, made when it is first wanted."""
        estimator = self._by_kind.get(kind)
        if estimator is None:
            estimator = self._by_kind[kind] = new_estimator(kind)
        return estimator

    def load(self) -> list[str]:
        """Take over the model files there are, before the first request.

        Returns:
            One sentence for each file that could not be used; its estimator starts afresh.
        """
        faults = []
        for kind in (WINDOW, NGRAM):
            path = self._path(kind)
            if path is None:
                continue
            try:
                content = read_file(path, MODEL_BYTES_MAX)
                if content is not None:
                    self.of(kind).load(content)
            except (OSError, ValueError) as error:
                faults.append(f"{path}: {error}")
        return faults

    def snapshot(self) -> Callable[[], None]:
        """A copy of what was learned; the function saves it, in any thread.

        It raises StateFileError where the disk refuses.
        """
        frozen = [(self._path(kind), estimator.snapshot()) for kind, estimator in self._by_kind.items()]

        def save() -> None:
            for path, content in frozen:
                if path is None:
                    continue
                try:
                    replace_file(path, content())
                except OSError as error:
                    raise StateFileError(f"{path}: cannot be written: {error.strerror or error}") from error

        return save

    def _path(self, kind: str) -> Path | None:
        return None if self._directory is None else self._directory / f"{kind}.model"
