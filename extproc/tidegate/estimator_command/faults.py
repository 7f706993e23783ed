"""Lines that could not be used: all are counted, the first few are told."""

from dataclasses import dataclass, field
from pathlib import Path

TOLD_MAX = 5
_WHY_CHARS_MAX = 160


class UnusableLine(ValueError):
    """One line of a file cannot be used; the message says why."""


@dataclass(slots=True)
class Faults:
    """What was skipped.

    Attributes:
        count: lines skipped.
        told: where and why, of the first few.
    """

    count: int = 0
    told: list[str] = field(default_factory=list)

    def add(self, path: Path, line: int, why: str) -> None:
        """Count one line; `line` starts at 1."""
        self.count += 1
        if len(self.told) < TOLD_MAX:
            self.told.append(f"{path}:{line}: {why[:_WHY_CHARS_MAX]}")

    def lines(self) -> list[str]:
        """What to say about them; nothing where there are none."""
        more = self.count - len(self.told)
        return [*self.told, f"and {more} more lines like these"] if more else list(self.told)
