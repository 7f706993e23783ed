"""Counts of polls and lookups of one pool; every label there can be is there from the start."""

from enum import StrEnum

from tidegate.signals.causes import Cause

READ = "read"


class LookupEnd(StrEnum):
    """How a DNS lookup ended; a metric label."""

    ANSWERED = "answered"
    EMPTY = "empty"  # no such name, or no address
    FAILED = "failed"  # no answer: the last one stays
    FAULT = "fault"  # a fault of this program, caught


class PollTally:
    """Plain integers, rendered when somebody scrapes.

    Attributes:
        polls: by end: `read`, or the cause of the failure.
        lookups: by end.
    """

    __slots__ = ("lookups", "polls")

    def __init__(self) -> None:
        self.polls: dict[str, int] = {READ: 0, **{str(cause): 0 for cause in Cause}}
        self.lookups: dict[LookupEnd, int] = dict.fromkeys(LookupEnd, 0)
