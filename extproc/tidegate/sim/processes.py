"""Child processes that are never left behind: ready or not started, stopped in reverse, killed with their parent."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import psutil

from tidegate.errors import TidegateError

Ready = Callable[[], Awaitable[bool]]
"""Tells whether a process serves. It is asked again and again, and must not raise."""

DIE_WITH_PARENT = Path(__file__).with_name("die_with_parent.py")
POLL_S_MIN = 0.01
POLL_S_MAX = 0.25
LOG_TAIL_BYTES = 4096


class ProcessError(TidegateError):
    """A child did not become ready, or died before it was; the message holds the end of its log."""


def free_ports(count: int) -> list[int]:
    """Distinct TCP ports on 127.0.0.1 that were free a moment ago, chosen by the kernel."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def http_ready(url: str) -> Ready:
    """Ready once a GET of `url` answers 200."""

    async def ready() -> bool:
        timeout = aiohttp.ClientTimeout(total=1.0)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    return ready


@dataclass(slots=True, kw_only=True, eq=False)
class Child:
    """One running child.

    Attributes:
        name: for people, and the name of its log file.
        log_path: where its stdout and stderr go, appended over restarts.
    """

    name: str
    log_path: Path
    _process: asyncio.subprocess.Process
    _cpu_s: float = field(default=0.0)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        return self._process.returncode

    @property
    def cpu_s(self) -> float:
        """User and system CPU seconds used so far; what was last seen once it has ended."""
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(self.pid).cpu_times()
            self._cpu_s = max(self._cpu_s, times.user + times.system)
        return self._cpu_s

    def log_text(self) -> str:
        """Everything it has written so far."""
        return self.log_path.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and to the children it has started; nothing where it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    async def wait(self) -> int:
        """Wait for its end; the exit status."""
        return await self._process.wait()

    async def stop(self, *, deadline_s: float = 5.0) -> int:
        """SIGTERM, then SIGKILL to what still runs after the deadline; the exit status. Safe to repeat."""
        _ = self.cpu_s
        self.signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(self._process.wait(), deadline_s)
        except TimeoutError:
            self.signal(signal.SIGKILL)
            return await self._process.wait()


class Processes:
    """The children of a demo, test or benchmark: an async context manager that ends them all.

    Args:
        log_dir: directory for their logs, one file a name; made if missing.
        stop_deadline_s: how long a child may take to end after SIGTERM.
    """

    def __init__(self, log_dir: Path, *, stop_deadline_s: float = 5.0) -> None:
        self.log_dir = log_dir
        self._stop_deadline_s = stop_deadline_s
        self._children: list[Child] = []

    async def __aenter__(self) -> Self:
        self.log_dir.mkdir(parents=True, exist_ok=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop_all()

    async def stop_all(self) -> None:
        """Stop every child, the last one first."""
        while self._children:
            await self._children.pop().stop(deadline_s=self._stop_deadline_s)

    async def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        ready: Ready,
        env: Mapping[str, str] | None = None,
        ready_s_max: float = 20.0,
    ) -> Child:
        """Start a child in a session of its own and wait until it is ready.

        Args:
            env: variables to set on top of this process's own.

        Raises:
            ProcessError: it ended, or was not ready in time; it has been stopped.
        """
        log_path = self.log_dir / f"{name}.log"
        shim = [sys.executable, "-I", "-S", str(DIE_WITH_PARENT), str(os.getpid())]
        with log_path.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *shim,
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        child = Child(name=name, log_path=log_path, _process=process)
        self._children.append(child)
        await self._until_ready(child, ready, ready_s_max)
        return child

    async def _until_ready(self, child: Child, ready: Ready, ready_s_max: float) -> None:
        deadline_s = asyncio.get_running_loop().time() + ready_s_max
        pause_s = POLL_S_MIN
        while child.returncode is None:
            if await ready():
                return
            if asyncio.get_running_loop().time() > deadline_s:
                await child.stop(deadline_s=self._stop_deadline_s)
                raise ProcessError(f"{child.name} was not ready within {ready_s_max:g} s\n{_tail(child.log_path)}")
            with contextlib.suppress(TimeoutError):  # wakes at once where the child dies
                await asyncio.wait_for(child.wait(), pause_s)
            pause_s = min(pause_s * 1.5, POLL_S_MAX)
        raise ProcessError(f"{child.name} ended with status {child.returncode}\n{_tail(child.log_path)}")


def _tail(path: Path) -> str:
    """The last few kilobytes of a log."""
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
        return log.read().decode(errors="replace")
