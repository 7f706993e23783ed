"""A running tidegate as tests watch it: its metrics page and its log."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.integration.metrics_page import metrics, until_metric
from tests.integration.stack import WAIT_S_MAX, eventually
from tidegate.sim.launch import start_tidegate
from tidegate.sim.processes import Child, Processes


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningService:
    """One tidegate process; `port` is its gRPC port, `ops_url` where its metrics are."""

    child: Child
    port: int
    ops_url: str

    async def metric(self, name: str, **labels: str) -> float:
        """Sum of the samples of `tidegate_NAME` that carry these labels."""
        return (await metrics(self.ops_url)).value(name, **labels)

    async def until(self, name: str, value: float, *, wait_s_max: float = WAIT_S_MAX, **labels: str) -> None:
        """Wait until `metric` is exactly `value`."""
        await until_metric(self.ops_url, name, value, wait_s_max=wait_s_max, **labels)

    def lines(self, event: str = "request") -> list[dict[str, Any]]:
        """Lines of its JSON log of one kind."""
        found = []
        for line in self.child.log_text().split("\n")[:-1]:  # splitlines knows more line ends than JSON does
            fields = json.loads(line)
            if fields["event"] == event:
                found.append(fields)
        return found

    async def requests(self, count: int) -> list[dict[str, Any]]:
        """The log lines of finished requests, once there are `count` of them, in the order they ended."""

        async def read() -> list[dict[str, Any]]:
            return await asyncio.to_thread(self.lines)

        lines: list[dict[str, Any]] = await eventually(
            read, lambda seen: len(seen) >= count, what=f"{count} requests in the log"
        )
        assert len(lines) == count
        return lines

    async def assert_sound(self) -> None:
        """Everything has been given back, nothing broke, and the log holds no traceback."""
        await self.until("pool_in_flight", 0)
        await self.until("pool_queue_len", 0)
        await self.until("open_streams", 0)
        assert await self.metric("internal_errors_total") == 0
        assert "Traceback" not in self.child.log_text()
        assert self.child.returncode is None


async def start_service(
    processes: Processes, *, port: int, ops_port: int, arguments: Sequence[str] = ()
) -> RunningService:
    """Start tidegate on these ports; `processes` ends it."""
    child = await start_tidegate(processes, port=port, ops_port=ops_port, arguments=arguments)
    return RunningService(child=child, port=port, ops_url=f"http://127.0.0.1:{ops_port}")
