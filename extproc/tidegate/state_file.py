"""What is kept over a restart: for each pool its policy, its books and what was learned of its engines.

The file is one line, `tidegate-state VERSION SHA-256 BYTES`, and that many bytes of JSON.
"""

import hashlib
import re
from pathlib import Path
from typing import Any

import msgspec

from tidegate.durable_file import read_file, replace_file
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
        pace: what was learned of the engines' pace.
        usage: what was learned of bytes and tokens, one record a kind of answers.
        service_times: what was learned of models without tokens, one record a model and size of input.
    """

    name: str
    policy: list[tuple[str, str]]
    books: list[dict[str, Any]] = []
    pace: dict[str, Any] = {}
    usage: list[UsageRecord] = []
    service_times: list[list[float]] = []


class SavedState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All pools at rest; `saved_at_s` is seconds since the Unix epoch."""

    saved_at_s: float
    pools: list[PoolState] = []


class StateFile:
    """The state file of one process in a directory of its own. Calls block on the disk: not for the event loop."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME

    def save(self, state: SavedState) -> int:
        """Replace the file; returns its bytes.

        Raises:
            StateFileError: the state is over 64 MiB or the disk refused it. The old file is then as it was.
        """
        content = pack(state)
        try:
            replace_file(self.path, content)
        except OSError as error:
            raise StateFileError(f"{self.path}: cannot be written: {error.strerror or error}") from error
        return len(content)

    def load(self) -> SavedState | None:
        """The state of the last save, or None where there has been none.

        Raises:
            StateFileError: the file is damaged, too large, of another version, or cannot be read.
        """
        try:
            content = read_file(self.path, STATE_BYTES_MAX + _HEAD_BYTES_MAX)
        except OSError as error:
            raise StateFileError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        if content is None:
            return None
        try:
            return unpack(content)
        except StateFileError as error:
            raise StateFileError(f"{self.path}: {error}") from error


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
