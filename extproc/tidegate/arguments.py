"""Types of command-line values: they say what would be right. Lower case, for argparse shows their names to users."""

import argparse


def add_log_level(parser: argparse.ArgumentParser) -> None:
    """The flag `--log-level`, `info` unless given."""
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")


class number:  # noqa: N801
    """A number within bounds."""

    def __init__(self, low: float, high: float) -> None:
        self._low = low
        self._high = high

    def __call__(self, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not self._low <= value <= self._high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {self._low:g} to {self._high:g}")
        return value


class whole:  # noqa: N801
    """A whole number within bounds."""

    def __init__(self, low: int, high: int) -> None:
        self._low = low
        self._high = high

    def __call__(self, text: str) -> int:
        if not text.isdecimal() or len(text) > 9 or not self._low <= int(text) <= self._high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {self._low} to {self._high}")
        return int(text)
