"""Keeps over a restart what is worth keeping: pools and their books, and what the estimators have learned.

Nothing in here may stop the service: what cannot be read starts afresh, what cannot be written is said in the log.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile

from tidegate.errors import FlagError, StateFileError
from tidegate.estimators import Estimators
from tidegate.pools import Pools
from tidegate.state_file import StateFile

log = logging.getLogger(__name__)


class Keeper:
    """Saves and restores.

    Args:
        directory: where to, or None to keep nothing; FlagError where it cannot be written to.
    """

    def __init__(self, directory: Path | None, pools: Pools, estimators: Estimators) -> None:
        self._pools = pools
        self._estimators = estimators
        self._file = None if directory is None else StateFile(_writable(directory))

    def restore(self, now_s: float) -> None:
        """Take over what an earlier process left, before the first request."""
        if self._file is None:
            return
        for fault in self._estimators.load():
            log.warning("a model file is left aside, its estimator starts afresh: %s", fault)
        try:
            saved = self._file.load()
        except StateFileError as error:
            log.warning("the saved state is left aside, the pools start afresh: %s", error)
            return
        if saved is not None:
            self._pools.restore(saved, now_s)
            log.info("took over the state of %d pools", len(self._pools))

    def save(self, now_s: float) -> None:
        """Save everything now; blocks on the disk."""
        _quietly(self._pools_of(now_s))
        _quietly(self._models())

    async def save_pools_aside(self, now_s: float) -> None:
        """Save pools and books; the disk is waited for in another thread."""
        await asyncio.to_thread(_quietly, self._pools_of(now_s))

    async def save_models_aside(self) -> None:
        """Save what the estimators learned; disk and arithmetic in another thread."""
        await asyncio.to_thread(_quietly, self._models())

    def _pools_of(self, now_s: float) -> Callable[[], object]:
        if self._file is None:
            return _nothing
        file, state = self._file, self._pools.dump(now_s)
        return lambda: file.save(state)

    def _models(self) -> Callable[[], object]:
        return _nothing if self._file is None else self._estimators.snapshot()


def _nothing() -> None:
    """Nothing is kept."""


def _quietly(save: Callable[[], object]) -> None:
    try:
        save()
    except StateFileError as error:
        log.error("the state was not saved: %s", error)


def _writable(directory: Path) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=directory):
            pass  # it can be written to: better known now than at the first save
    except OSError as error:
        raise FlagError(f"--state-dir: cannot use {str(directory)!r}: {error.strerror}") from error
    return directory
