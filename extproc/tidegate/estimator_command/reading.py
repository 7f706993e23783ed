"""Files of JSON lines, plain or gzipped, to answers in the order in which they are to be learned."""

import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import BinaryIO, cast

from tidegate.errors import FlagError
from tidegate.estimator_command.faults import Faults, UnusableLine
from tidegate.estimator_command.formats import Reading, read_line
from tidegate.seal import Seal
from tidegate_estimator.training import Answered, Ticketed

LINE_BYTES_MAX = 32 << 20
ROWS_MAX = 1_000_000
_SEED = 0


class Order(StrEnum):
    """In which order answers are learned; `auto` is by time where every line says it, else shuffled."""

    AUTO = "auto"
    TIME = "time"
    SHUFFLED = "shuffled"
    FILE = "file"


@dataclass(slots=True, kw_only=True)
class Answers:
    """What was read.

    Attributes:
        rows: answers in order; `order` is the one that was taken.
        faults: lines that were skipped.
        left_out: True where there were more answers than are kept.
    """

    rows: list[Answered | Ticketed] = field(default_factory=list)
    order: Order = Order.FILE
    faults: Faults = field(default_factory=Faults)
    left_out: bool = False


def read_answers(
    paths: Sequence[Path], *, order: Order, answers_max: int, seal: Seal | None, rows_max: int = ROWS_MAX
) -> Answers:
    """All answers of the files, up to `rows_max`.

    Raises:
        FlagError: a file cannot be read, or there is nothing usable in any of them; the message tells why.
    """
    answers = Answers()
    timed: list[tuple[float | None, Answered | Ticketed]] = []
    for reading in _readings(paths, answers.faults, answers_max, seal):
        timed += [(reading.time_s, row) for row in reading.rows]
        if len(timed) > rows_max:
            answers.left_out = True
            del timed[rows_max:]
            break
    if not timed:
        raise FlagError("\n  ".join(["--in: no usable answer in any file", *answers.faults.lines()]))
    answers.order, answers.rows = _ordered(timed, order)
    return answers


def _ordered(
    timed: list[tuple[float | None, Answered | Ticketed]], order: Order
) -> tuple[Order, list[Answered | Ticketed]]:
    known = all(time_s is not None for time_s, _ in timed)
    if order is Order.TIME and not known:
        raise FlagError("--order time: not every line has a `time`")
    if order is Order.AUTO:
        # Entries without a time stand in the order in which the requests ended.
        logged = all(isinstance(row, Ticketed) for _, row in timed)
        order = Order.TIME if known else Order.FILE if logged else Order.SHUFFLED
    if order is Order.TIME:
        timed.sort(key=lambda pair: pair[0] or 0.0)
    rows = [row for _, row in timed]
    if order is Order.SHUFFLED:
        Random(_SEED).shuffle(rows)  # noqa: S311  no secret: the same files give the same model
    return order, rows


def _readings(paths: Sequence[Path], faults: Faults, answers_max: int, seal: Seal | None) -> Iterator[Reading]:
    for path in paths:
        try:
            with _opened(path) as file:
                for number, line in _lines(file):
                    try:
                        if len(line) > LINE_BYTES_MAX:
                            raise UnusableLine(f"longer than {LINE_BYTES_MAX >> 20} MiB")
                        if line.strip():
                            yield read_line(line, answers_max=answers_max, seal=seal)
                    except UnusableLine as error:
                        faults.add(path, number, str(error))
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or error
            raise FlagError(f"--in: cannot read {str(path)!r}: {reason}") from error


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each line; one that is too long comes cut, and its rest is passed over."""
    number = 0
    while line := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        part = line
        while len(part) > LINE_BYTES_MAX and not part.endswith(b"\n"):
            part = file.readline(LINE_BYTES_MAX + 1)
        yield number, line


def _opened(path: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")
