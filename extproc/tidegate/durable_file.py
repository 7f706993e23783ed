"""Files that are replaced whole: a crash leaves the old content or the new one, never half of one."""

import contextlib
import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write beside the file, flush to disk, rename over it; OSError where the disk refuses, the old file then stays.

    Blocks on the disk: not for an event loop.
    """
    beside = path.with_name(f"{path.name}.new")  # one fixed name: a crash loop leaves one stray file, not many
    try:
        beside.unlink(missing_ok=True)
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)  # the rename itself must survive a power cut
    finally:
        os.close(directory)


def read_file(path: Path, bytes_max: int) -> bytes | None:
    """The content, at most one byte more than `bytes_max`; None where there is no such file, OSError as usual."""
    try:
        with path.open("rb") as file:
            return file.read(bytes_max + 1)
    except FileNotFoundError:
        return None
