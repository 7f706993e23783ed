"""The agent as a process, against a pretended driver: its pages, a driver that hangs or is missing, its end."""

import argparse
import json
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.stack import eventually
from tests.unit.agent.fake_nvml import Node, gpu, mig_slice
from tidegate.agent import commands
from tidegate.errors import FlagError, HalfPage
from tidegate.signals.gpu_agent import GpuAgentReader
from tidegate.sim.processes import Child, Processes, free_ports, http_ready


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A running agent and a client of its pages."""

    child: Child
    url: str
    http: aiohttp.ClientSession

    async def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of one page."""
        async with self.http.get(f"{self.url}{path}", timeout=aiohttp.ClientTimeout(total=5.0)) as response:
            return response.status, await response.read()

    async def page(self, query: str = "") -> dict[str, Any]:
        """`/gpus.json`."""
        status, body = await self.get(f"/gpus.json{query}")
        assert status == 200, body
        found: dict[str, Any] = json.loads(body)
        return found

    async def until(self, holds: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """The first page of which it holds."""
        found: dict[str, Any] = await eventually(self.page, holds, what=what)
        return found

    async def metric(self, name: str, **labels: str) -> Sequence[float]:
        """Values of the samples of this name and these labels."""
        _, body = await self.get("/metrics")
        return [
            sample.value
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]


async def start(processes: Processes, node: Node, http: aiohttp.ClientSession, *flags: str) -> Agent:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "tests.unit.agent.agent_command", "--listen", f"127.0.0.1:{port}", *flags]
    child = await processes.start("agent", command, ready=http_ready(f"{url}/healthz"), env=node.environment)
    return Agent(child=child, url=url, http=http)


def looked(page: dict[str, Any]) -> bool:
    return bool(page["state"] == "ok")


async def test_pages_of_a_node_with_gpus(tmp_path: Path, node: Node) -> None:
    """The same look for people, for Prometheus and for the service, whole or of some GPUs; it ends as asked."""
    slices = mig_slice(1, 0, total_mib=20_000, free_mib=9_000)
    node.says("count 2", gpu(0, free_mib=50_000), gpu(1, mig=1), slices)
    async with Processes(tmp_path / "logs") as processes, aiohttp.ClientSession() as http:
        agent = await start(processes, node, http, "--interval-ms", "20", "--window-s", "10")
        page = await agent.until(looked, "a look")
        assert (page["interval_s"], page["window_s"], page["driver"]) == (0.02, 10.0, "580.82")
        assert page["headroom"] == {
            "largest_mib": 50_000,
            "least_mib": 9_000,
            "sum_mib": 59_000,
            "fragmentation": pytest.approx(1 - 50 / 59),
        }
        reader = GpuAgentReader()
        for query, free_mib in (("", 9_000), ("?gpus=0", 50_000), ("?gpus=0&gpus=1:0", 9_000), ("?gpus=0%2C1", 9_000)):
            status, body = await agent.get(f"/gpus.json{query}")
            assert (status, reader.read(body).memory_free_mib) == (200, free_mib)
        assert (await agent.get("/gpus.json?gpus=7"))[0] == 404
        assert (await agent.get("/gpus.json?gpus="))[0] == 400
        assert await agent.get("/healthz") == (200, b"ok: the GPUs are read\n")
        assert await agent.metric("tidegate_gpu_memory_free_bytes", gpu="0") == [50_000 * 2**20]
        assert await agent.metric("tidegate_gpu_utilisation_ratio", gpu="0", quantile="0.95") == [0.33]
        assert (await agent.metric("tidegate_gpu_agent_looks_total"))[0] >= 1
        node.says("count 2", gpu(0, free_mib=40_000), gpu(1, mig=1), slices)
        await agent.until(lambda page: page["gpus"][0]["memory_free_mib"] == 40_000, "the new figure")
        assert await agent.child.stop() == 0
    assert "Traceback" not in agent.child.log_text()


async def test_a_driver_that_hangs_holds_up_no_page(tmp_path: Path, node: Node) -> None:
    """Pages answer with the last look, which ages; the node is stuck after five seconds; then it is well, or ends."""
    async with Processes(tmp_path / "logs") as processes, aiohttp.ClientSession() as http:
        agent = await start(processes, node, http)
        await agent.until(looked, "a look")
        node.says("hang 1", "count 1", gpu(0))
        page = await agent.until(lambda page: page["age_s"] > 0.6, "an old look")
        assert (page["state"], page["gpus"][0]["memory_free_mib"]) == ("ok", 61_440)
        page = await agent.until(lambda page: bool(page["state"] == "stuck"), "a stuck node")
        with pytest.raises(HalfPage, match="stuck"):
            GpuAgentReader().read(json.dumps(page).encode())
        assert (await agent.get("/healthz"))[0] == 503
        assert await agent.metric("tidegate_gpu_memory_free_bytes") == []
        assert await agent.metric("tidegate_gpu_agent_state", state="stuck") == [1]
        node.says("count 1", gpu(0, free_mib=5))
        page = await agent.until(lambda page: bool(page["age_s"] < 0.5), "a new look")
        assert (page["state"], page["gpus"][0]["memory_free_mib"]) == ("ok", 5)
        node.says("hang 1", "count 1", gpu(0))
        await agent.until(lambda page: page["age_s"] > 0.5, "an old look")
        assert await agent.child.stop() == 0, "it ends though the driver does not answer"
    assert "Traceback" not in agent.child.log_text()


async def test_a_node_without_driver_is_told_and_comes_back(tmp_path: Path, node: Node) -> None:
    """It runs, is healthy for it cannot help it, and reads GPUs once there are any."""
    node.says("init_error 9")
    async with Processes(tmp_path / "logs") as processes, aiohttp.ClientSession() as http:
        agent = await start(processes, node, http)
        page = await agent.until(lambda page: bool(page["state"] != "starting"), "a look")
        assert (page["state"], page["meaning"]) == ("driver_missing", "the kernel module is not loaded")
        assert (await agent.get("/healthz"))[0] == 200
        with pytest.raises(HalfPage, match="driver_missing"):
            GpuAgentReader().read((await agent.get("/gpus.json?gpus=0"))[1])
        node.says("count 1", gpu(0))
        await agent.until(looked, "a driver")
    assert "node is driver_missing" in agent.child.log_text()


def test_an_address_that_is_taken() -> None:
    """The error names the flag and the address."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(FlagError, match=r"--listen: cannot bind 127\.0\.0\.1:\d+"):
            commands.run(flags("--listen", f"127.0.0.1:{taken.getsockname()[1]}"))


@pytest.mark.parametrize("address", ["9004", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:-1", "a:123456"])
def test_an_address_that_is_none(address: str) -> None:
    """It is refused before anything is started."""
    with pytest.raises(FlagError, match="expected HOST:PORT"):
        commands.run(flags("--listen", address))


@pytest.mark.parametrize("wrong", [("--interval-ms", "5"), ("--interval-ms", "2000"), ("--window-s", "61")])
def test_flags_have_bounds(wrong: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong one is told with what would be right."""
    with pytest.raises(SystemExit):
        flags(*wrong)
    assert "from" in capsys.readouterr().err


def flags(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    commands.add_to(parser)
    return parser.parse_args(words)
