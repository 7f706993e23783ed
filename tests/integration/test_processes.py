"""Child processes: ready or an error that shows why, stopped in reverse order, gone when their parent is gone."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.integration.stack import eventually
from tidegate.sim.processes import ProcessError, Processes, Ready, free_ports, http_ready

SERVER = ("-m", "http.server", "--bind", "127.0.0.1")


async def always() -> bool:
    return True


def exists(path: Path) -> Ready:
    async def ready() -> bool:
        return await asyncio.to_thread(path.exists)

    return ready


def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]


def test_free_ports_are_distinct() -> None:
    """Ports asked for together never repeat."""
    assert len(set(free_ports(50))) == 50


async def test_a_started_child_is_ready(tmp_path: Path) -> None:
    """`start` returns once the readiness page answers, and the child's CPU time and log are at hand."""
    (port,) = free_ports(1)
    ready = http_ready(f"http://127.0.0.1:{port}/")
    async with Processes(tmp_path) as processes:
        child = await processes.start("server", python("-u", *SERVER, str(port)), ready=ready)
        assert await ready()
        assert child.cpu_s > 0.0
        assert "Serving HTTP" in child.log_text()
    assert child.returncode is not None
    assert child.cpu_s > 0.0
    assert not await ready()


async def test_a_child_that_dies_shows_its_log(tmp_path: Path) -> None:
    """The error holds the exit status and the last lines, and does not wait for the deadline."""

    async def never() -> bool:
        return False

    async with Processes(tmp_path) as processes:
        with pytest.raises(ProcessError, match=r"(?s)broken ended with status 3.*no such engine"):
            await processes.start(
                "broken", python("-c", "import sys; print('no such engine'); sys.exit(3)"), ready=never
            )


async def test_a_child_that_never_gets_ready_is_stopped(tmp_path: Path) -> None:
    """Past its deadline a child is an error, and gone."""
    (port,) = free_ports(1)
    code = "import signal; signal.pause()"
    async with Processes(tmp_path, stop_deadline_s=1.0) as processes:
        with pytest.raises(ProcessError, match=r"mute was not ready within 0\.3 s"):
            await processes.start(
                "mute", python("-c", code), ready=http_ready(f"http://127.0.0.1:{port}"), ready_s_max=0.3
            )
        assert not [each for each in psutil.Process().children() if code in each.cmdline()]


async def test_children_stop_in_reverse_order(tmp_path: Path) -> None:
    """The last one started ends first; one that ignores SIGTERM is killed at the deadline."""
    code = (
        "import signal, sys, pathlib\n"
        "def end(*_):\n"
        "    with open(sys.argv[2], 'a') as file: file.write(sys.argv[1])\n"
        "    if sys.argv[1] != 'b': sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "pathlib.Path(sys.argv[2] + sys.argv[1]).touch()\n"
        "while True: signal.pause()\n"
    )
    order = tmp_path / "order"
    async with Processes(tmp_path, stop_deadline_s=0.3) as processes:
        children = []
        for name in "abc":
            command = python("-c", code, name, str(order))
            children.append(await processes.start(name, command, ready=exists(Path(f"{order}{name}"))))
    assert order.read_text() == "cba"
    assert [child.returncode for child in children] == [0, -signal.SIGKILL, 0]


async def test_children_die_with_their_parent(tmp_path: Path) -> None:
    """A parent that is killed takes its children along."""
    code = (
        "import asyncio, pathlib, signal, sys\n"
        "from tidegate.sim.processes import Processes\n"
        "async def ready(): return True\n"
        "async def main():\n"
        "    async with Processes(pathlib.Path(sys.argv[1])) as processes:\n"
        "        command = [sys.executable, '-c', 'import signal; signal.pause()']\n"
        "        child = await processes.start('child', command, ready=ready)\n"
        "        pathlib.Path(sys.argv[1], 'pid').write_text(f'{child.pid}\\n')\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    pid_file = tmp_path / "pid"

    async def child_pid() -> str:
        return pid_file.read_text() if pid_file.exists() else ""

    async with Processes(tmp_path) as processes:
        parent = await processes.start("parent", python("-c", code, str(tmp_path)), ready=always)
        pid = int(await eventually(child_pid, lambda text: text.endswith("\n"), what="the child's id"))
        assert psutil.pid_exists(pid)
        os.kill(parent.pid, signal.SIGKILL)
        await asyncio.wait_for(parent.wait(), 5.0)

        async def alive() -> bool:
            return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE

        await eventually(alive, lambda value: value is False, what="the child's end")
