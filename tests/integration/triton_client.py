"""NVIDIA's tritonclient: fetched once, by the lock in tests/data/tritonclient, and run as a process of its own.

It takes no protobuf as new as ours, so it can be no dependency of these tests, and has an environment to itself.
"""

import asyncio
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

HOME = Path(__file__).parents[1] / "data" / "tritonclient"
UV = Path(sys.executable).with_name("uv")
INSTALL_S_MAX = 120.0
JOB_S_MAX = 30.0


def install_triton_client() -> Path:
    """Fetch what the lock names, unless it is there; the interpreter that has it. Fails with uv's own words."""
    command = [str(UV), "sync", "--quiet", "--locked", "--no-python-downloads", "--python", sys.executable]
    ended = subprocess.run(  # uv itself keeps two runs in one checkout apart
        [*command, "--project", str(HOME)],
        timeout=INSTALL_S_MAX,
        text=True,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout}"
    return HOME / ".venv" / "bin" / "python"


class TritonOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended, as its caller saw it; see tests/data/tritonclient/client.py."""

    number: float | None = None
    live: bool | None = None
    status: str = ""
    message: str = ""
    headers: dict[str, str] = {}


class TritonClient:
    """A running client; an async context manager. It does one job at a time.

    `address` is the gateway's, `HOST:PORT`.
    """

    def __init__(self, python: Path, address: str) -> None:
        self._command = [str(python), str(HOME / "client.py"), address]
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={},  # no proxy and no log level of whoever runs the tests
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._running()
        if process.returncode is None and kind is not None:
            process.kill()
        _, err = await asyncio.wait_for(process.communicate(b""), JOB_S_MAX)  # an input, or stdin would stay open
        assert kind is not None or process.returncode == 0, err.decode(errors="replace")

    async def ask(self, over: str, ask: str = "infer", number: float = 0.0) -> TritonOutcome:
        """Do one job; fails with the client's own words where it breaks."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        job: dict[str, Any] = {"over": over, "ask": ask, "number": number}
        process.stdin.write(msgspec.json.encode(job) + b"\n")
        line = await asyncio.wait_for(process.stdout.readline(), JOB_S_MAX)
        assert line, (await process.communicate())[1].decode(errors="replace")
        return msgspec.json.decode(line, type=TritonOutcome)

    def _running(self) -> asyncio.subprocess.Process:
        assert self._process is not None, "not started"
        return self._process
