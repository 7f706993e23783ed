"""JSON logs that can never hold up a request: lines go through a bounded queue to a thread that writes them.

A full pipe (a log collector that has stopped) would block a plain write, and with it every stream. Here it only
fills the queue; what does not fit is dropped and counted.
"""

import logging
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from io import FileIO
from typing import BinaryIO

import msgspec

LINES_MAX = 10_000
LINES_AT_ONCE = 64
_STOP = b""


class LineWriter:
    """Writes JSON lines to a binary stream from a thread of its own."""

    def __init__(self, on_drop: Callable[[], None], stream: BinaryIO | None = None) -> None:
        self._on_drop = on_drop
        # Unbuffered: a line is one write, and a thread stuck in a buffer's lock would keep the process from ending.
        self._stream = FileIO(sys.stdout.fileno(), "wb", closefd=False) if stream is None else stream
        self._queue: queue.SimpleQueue[bytes] = queue.SimpleQueue()  # `write` bounds it
        self._encode = msgspec.json.Encoder().encode
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def write(self, fields: Mapping[str, object], *, wall_s: float) -> None:
        """Queue one line; drops it where the queue is full."""
        if self._queue.qsize() >= LINES_MAX:
            self._on_drop()
            return
        line = self._encode({"time": datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="milliseconds"), **fields})
        self._queue.put(line + b"\n")

    def close(self, timeout_s: float = 2.0) -> None:
        """Write what is queued, for at most `timeout_s`."""
        self._queue.put(_STOP)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        stopped = False
        while not stopped:
            lines = [self._queue.get()]
            while len(lines) < LINES_AT_ONCE and not self._queue.empty():
                lines.append(self._queue.get())  # one write for many: each hands the interpreter to and fro
            stopped = lines[-1] is _STOP
            try:
                rest = memoryview(b"".join(lines))
                while rest:  # a signal may cut a write short
                    rest = rest[self._stream.write(rest) :]
            except (OSError, ValueError):  # nobody reads any more: there is nowhere to say so
                self._on_drop()


class LineHandler(logging.Handler):
    """Sends the standard library's log records to a LineWriter."""

    def __init__(self, writer: LineWriter) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, object] = {
            "event": "log",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[1] is not None:
            fields["exception"] = logging.Formatter().formatException(record.exc_info)
        self._writer.write(fields, wall_s=record.created)


def configure(writer: LineWriter, level: str) -> None:
    """Route all logging through the writer."""
    root = logging.getLogger()
    root.handlers[:] = [LineHandler(writer)]
    root.setLevel(level.upper())
