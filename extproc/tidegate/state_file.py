"""What is kept over a restart: for each pool its policy, its books and what was learned.

The file is one line, `tidegate-state VERSION SHA-256 BYTES`, and that many bytes of JSON. It is written beside the old
one, flushed to disk and then renamed over it, so that a crash leaves the old state or the new one, never half of one.
"""

import contextlib
import hashlib
import os
import re
from pathlib import Path
from typing import Any

import msgspec

from tidegate.errors import StateFileError
from tidegate_estimator.usage import UsageRecord

VERSION = 1
FILE_NAME = "tidegate.state"
STATE_BYTES_MAX = 64 << 20
POOLS_MAX = 1024
"""Pools a file may hold; more is damage."""

_HEAD = re.compile(rb"tidegate-state (\d{1,9}) ([0-9a-f]{64}) (\d{1,9})\n")
_HEAD_BYTES_MAX = 128


class PoolState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One pool at rest.

    Attributes:
        name: of the pool.
        policy: the pairs in force, pool-scoped and request-scoped.
        books: the admission controller's, one entry a request in flight.
        estimator: its dump; base64 in the file.
        pace: what was learned of the engines' pace.
        usage: what was learned of bytes and tokens, one record a kind of answers.
    """

    name: str
    policy: list[tuple[str, str]]
    books: list[dict[str, Any]] = []
    estimator: bytes = b""
    pace: dict[str, Any] = {}
    usage: list[UsageRecord] = []


class SavedState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All pools at rest; `saved_at_s` is seconds since the Unix epoch."""

    saved_at_s: float
    pools: list[PoolState] = []


class StateFile:
    """The state file of one process in a directory of its own. Calls block on the disk: not for the event loop."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._beside = directory / f"{FILE_NAME}.new"

    def save(self, state: SavedState) -> int:
        """Replace the file; returns its bytes.

        Raises:
            StateFileError: the state is over 64 MiB or the disk refused it. The old file is then as it was.
        """
        content = pack(state)
        try:
            self._write(content)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._beside.unlink()
            raise StateFileError(f"{self.path}: cannot be written: {error.strerror or error}") from error
        return len(content)

    def load(self) -> SavedState | None:
        """The state of the last save, or None where there has been none.

        Raises:
            StateFileError: the file is damaged, too large, of another version, or cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                content = file.read(STATE_BYTES_MAX + _HEAD_BYTES_MAX + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateFileError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        try:
            return unpack(content)
        except StateFileError as error:
            raise StateFileError(f"{self.path}: {error}") from error

    def _write(self, content: bytes) -> None:
        # one fixed name beside the file: a crash loop leaves one stray file, not many
        self._beside.unlink(missing_ok=True)
        with open(os.open(self._beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self._beside, self.path)
        directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)  # the rename itself must survive a power cut
        finally:
            os.close(directory)


def pack(state: SavedState) -> bytes:
    """The file's bytes.

    Raises:
        StateFileError: they would be more than 64 MiB.
    """
    body = msgspec.json.encode(state)
    if len(body) > STATE_BYTES_MAX:
        raise StateFileError(f"the state takes {len(body)} bytes; at most {STATE_BYTES_MAX} are kept")
    head = f"tidegate-state {VERSION} {hashlib.sha256(body).hexdigest()} {len(body)}\n"
    return head.encode() + body


def unpack(content: bytes) -> SavedState:
    """The state in a file's bytes; raises StateFileError and nothing else, whatever the bytes."""
    head = _HEAD.match(content[:_HEAD_BYTES_MAX])
    if head is None:
        raise StateFileError("not a state file of Tidegate")
    version, digest, size = int(head[1]), head[2].decode(), int(head[3])
    if version != VERSION:
        raise StateFileError(f"written in version {version} of the format; this program reads version {VERSION}")
    body = content[head.end() :]
    if size > STATE_BYTES_MAX:
        raise StateFileError(f"holds {size} bytes; at most {STATE_BYTES_MAX} are read")
    if len(body) != size:
        raise StateFileError(f"damaged: {size} bytes announced, {len(body)} found")
    if hashlib.sha256(body).hexdigest() != digest:
        raise StateFileError("damaged: its checksum does not match")
    try:
        state = msgspec.json.decode(body, type=SavedState)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise StateFileError(f"damaged: {error}") from error
    if len(state.pools) > POOLS_MAX:
        raise StateFileError(f"damaged: {len(state.pools)} pools; at most {POOLS_MAX} are possible")
    return state
