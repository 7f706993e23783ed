"""Counts the tokens of a streamed answer without decoding its JSON: a load driver must not be its own bottleneck.

One regular expression over whole lines finds the events with content; only the usage, which comes once, is read as a
number.
"""

import re

_CONTENT = re.compile(rb'"(?:content|text)":\s?"(?!")')
_USAGE = re.compile(rb'"completion_tokens":\s?(\d{1,9})')
_ERROR = re.compile(rb'^data:\s?\{\s?"error"', re.MULTILINE)
_DONE = re.compile(rb"^data:\s?\[DONE\]", re.MULTILINE)

LINE_BYTES_MAX = 1 << 20
"""A longer line is no event of ours: the stream counts as failed."""


class SseTally:
    """Fed with a stream's bytes as they come, in chunks cut anywhere."""

    __slots__ = ("_rest", "done", "failed", "tokens", "usage_tokens")

    def __init__(self) -> None:
        self._rest = b""
        self.tokens = 0
        self.usage_tokens: int | None = None
        self.done = False
        self.failed = False

    def feed(self, chunk: bytes) -> int:
        """Take in bytes; returns how many events with content they completed."""
        data = self._rest + chunk if self._rest else chunk
        cut = data.rfind(b"\n") + 1
        self._rest = data[cut:]
        if len(self._rest) > LINE_BYTES_MAX:
            self.failed, self._rest = True, b""
        lines = data[:cut]
        fresh = len(_CONTENT.findall(lines))
        self.tokens += fresh
        self._read_last_events(lines)
        return fresh

    def _read_last_events(self, lines: bytes) -> None:
        if b"completion_tokens" in lines and (usage := _USAGE.findall(lines)):
            self.usage_tokens = int(usage[-1])
        self.done = self.done or (b"[DONE]" in lines and _DONE.search(lines) is not None)
        self.failed = self.failed or (b'"error"' in lines and _ERROR.search(lines) is not None)
