"""The demo as a newcomer runs it: real Envoy, real service; here with less than a second of load a run."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.envoy


async def start_demo(directory: Path, *flags: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tidegate", "sim", "demo", *flags),
        cwd=directory,
        env={**os.environ, "TMPDIR": str(directory)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_a_short_demo_ends_well_and_both_sides_count_the_same(tmp_path: Path) -> None:
    """Exit 0, six runs in demo.json, the table and Envoy's own lines on the screen, clients and Envoy in agreement."""
    demo = await start_demo(tmp_path, "--seconds", "0.6")
    output, errors = await asyncio.wait_for(demo.communicate(), 120.0)
    assert (demo.returncode, errors.decode()) == (0, "")
    assert "goodput" in output.decode()
    assert 'envoy_admission_requests{tenant="acme"' in output.decode()
    data: dict[str, Any] = json.loads((tmp_path / "demo.json").read_text())
    assert [(run["phase"], run["control"]) for run in data["runs"]] == [
        (phase, control) for phase in ("normal", "overload", "flood") for control in ("without", "with")
    ]
    for without, with_tidegate in zip(data["runs"][::2], data["runs"][1::2], strict=True):
        assert without["figures"]["requests"] == with_tidegate["figures"]["requests"] > 0
        assert without["envoy_requests"] == {}
        figures, decided = with_tidegate["figures"], with_tidegate["envoy_requests"]
        assert figures["admitted"] == decided.get("admit", 0) + decided.get("delay", 0)
        assert figures["refused_429"] + figures["refused_503"] == decided.get("reject", 0)
    assert os.listdir(tmp_path) == ["demo.json"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C in the middle of a run: exit 130, no child, no file."""
    demo = await start_demo(tmp_path, "--seconds", "1")
    assert demo.stdout is not None
    async for line in demo.stdout:
        if line.startswith(b"normal load, without"):
            break
    children = psutil.Process(demo.pid).children(recursive=True)
    assert {child.name() for child in children} >= {"envoy"}
    demo.send_signal(number)
    _, errors = await asyncio.wait_for(demo.communicate(), 20.0)
    assert (demo.returncode, errors.decode()) == (130, "interrupted: everything is stopped\n")
    assert not [child for child in children if child.is_running()]
    assert os.listdir(tmp_path) == []
