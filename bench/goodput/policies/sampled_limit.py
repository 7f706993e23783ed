"""What the limits that follow response times share: reject above the limit, and know how many were in flight when a
request began, for a sample of a limit that was not in use says nothing about it.
"""

from collections.abc import Mapping
from typing import Any

from bench.goodput.policies.baseline import Baseline


class SampledLimit(Baseline):
    """Reject above the limit; who ends takes its count out of `at_start`."""

    status = 429

    def __init__(self, pool: Mapping[str, Any], limit: float) -> None:
        super().__init__(pool)
        self.limit = limit
        self.at_start: dict[str, int] = {}

    def allows(self, now_s: float) -> bool:
        """Whether the limit leaves room."""
        return self.in_flight < int(self.limit)

    def began(self, now_s: float, request_id: str) -> None:
        """A sample carries how many were in flight when it began."""
        self.at_start[request_id] = self.in_flight
