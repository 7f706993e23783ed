"""The command as an operator meets it: help, flags that cannot be used, sockets, the log."""

import asyncio
import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from envoy.service.accesslog.v3 import als_pb2, als_pb2_grpc
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as pb_grpc

import tidegate
from tests.integration.metrics_page import metrics

TIDEGATE = (sys.executable, "-m", "tidegate")
ANY_PORTS = ("--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0")
PIPE_BYTES_MIN = 60_000
"""A pipe holds 64 KiB, whole lines of it."""
ENTRIES = 1000
"""Finished requests whose lines in the log take several times as much."""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run((*TIDEGATE, *arguments), capture_output=True, text=True, timeout=20, check=False)


@dataclass(frozen=True, slots=True)
class Serving:
    """A service on ports of its own whose log goes into a pipe; `log` is the pipe's other end."""

    process: asyncio.subprocess.Process
    log: io.FileIO
    grpc_address: str
    ops_url: str

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; the exit status."""
        self.process.send_signal(number)
        return await asyncio.wait_for(self.process.wait(), 15.0)


@asynccontextmanager
async def serving(*arguments: str) -> AsyncIterator[Serving]:
    """Start it and read its log up to the line that tells the ports."""
    reader, writer = os.pipe()
    with io.FileIO(reader) as log:
        process = await asyncio.create_subprocess_exec(
            *TIDEGATE, "serve", *ANY_PORTS, *arguments, stdout=writer, stderr=subprocess.DEVNULL
        )
        os.close(writer)
        try:
            first = await asyncio.wait_for(asyncio.to_thread(listening, log), 10.0)
            ops_url = f"http://127.0.0.1:{first['ops_port']}"
            address = first["grpc"] if first["grpc"].startswith("unix:") else f"127.0.0.1:{first['grpc_port']}"
            yield Serving(process, log, address, ops_url)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


def listening(log: io.FileIO) -> dict[str, Any]:
    """The line of the log that tells the ports."""
    for line in log:
        fields: dict[str, Any] = json.loads(line)
        if fields["event"] == "listening":
            return fields
    raise AssertionError("it ended without listening")


async def admitted(address: str) -> bool:
    """Whether a chat is let through to its engine: headers and body, as Envoy sends them."""
    headers = pb.ProcessingRequest(request_headers=pb.HttpHeaders())
    for name, value in ((":method", "POST"), (":path", "/v1/chat/completions")):
        header = headers.request_headers.headers.headers.add()
        header.key, header.raw_value = name, value.encode()
    body = pb.ProcessingRequest(request_body=pb.HttpBody(body=b'{"model":"tiny","messages":[]}', end_of_stream=True))
    async with grpc.aio.insecure_channel(address) as channel:
        call = pb_grpc.ExternalProcessorStub(channel).Process()
        replies = []
        for message in (headers, body):
            await call.write(message)
            replies.append((await asyncio.wait_for(call.read(), 5.0)).WhichOneof("response"))
        call.cancel()
    return replies == ["request_headers", "request_body"]


def test_help_explains() -> None:
    """Help names the commands, every flag with its default, where pools are configured and the exit codes."""
    overview, serve = run("--help"), run("serve", "--help")
    assert (overview.returncode, serve.returncode) == (0, 0)
    assert "serve" in overview.stdout
    assert "sim" in overview.stdout
    for flag in ("--listen", "--ops-listen", "--state-dir", "--grace-s", "--body-mib-max", "--log-level"):
        assert flag in serve.stdout
    for words in ("127.0.0.1:9002", "unix:PATH", "envoy.yaml", "SIGTERM", "Exit codes"):
        assert words in serve.stdout


def test_version() -> None:
    """The version is that of the package."""
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"tidegate {tidegate.__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("serve", "--listen", "nonsense"), "--listen"),
        (("serve", "--listen", "127.0.0.1:99999"), "--listen"),
        (("serve", "--listen", "192.0.2.1:9002"), "--listen"),
        (("serve", "--listen", "unix:/no/such/directory/s"), "--listen"),
        (("serve", "--ops-listen", "localhost"), "HOST:PORT"),
        (("serve", "--ops-listen", "127.0.0.1:99999"), "HOST:PORT"),
        (("serve", "--ops-listen", "192.0.2.1:9003"), "--ops-listen"),
        (("serve", "--grace-s", "soon"), "'soon' is not a number from 0 to 3600"),
        (("serve", "--grace-s", "nan"), "'nan' is not a number from 0 to 3600"),
        (("serve", "--body-mib-max", "0"), "'0' is not a number from 1 to 512"),
        (("serve", "--log-level", "loud"), "'loud'"),
        (
            (
                "serve",
                "--frobnicate",
            ),
            "--frobnicate",
        ),
        (("admit",), "'admit'"),
        ((), "COMMAND"),
    ],
)
def test_what_cannot_be_used_is_one_clear_line(arguments: tuple[str, ...], told: str) -> None:
    """A flag or command that cannot be used ends the process with status 2 and one line that names it."""
    if arguments[:1] == ("serve",):
        arguments = ("serve", *ANY_PORTS, *arguments[1:])
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("tidegate")
    assert told in line


@pytest.mark.parametrize("flag", ["--listen", "--ops-listen"])
def test_a_port_in_use_is_one_clear_line(flag: str) -> None:
    """A port that somebody else has ends the process with status 2 and a line that names flag and address."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("serve", *ANY_PORTS, flag, address)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert flag in line
    assert address in line


def test_a_state_dir_that_cannot_be_used_is_one_clear_line(tmp_path: Path) -> None:
    """A state directory that cannot be made, or in which nothing can be written, is told at the start."""
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file" / "state", Path("/proc")):
        done = run("serve", *ANY_PORTS, "--state-dir", str(directory))
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert "--state-dir" in line
        assert str(directory) in line


async def test_a_state_dir_that_vanishes_does_not_spoil_the_exit(tmp_path: Path) -> None:
    """Where the state cannot be saved at the end, the log says so in a line, and the exit code is 0."""
    directory = tmp_path / "state"
    async with serving("--state-dir", str(directory)) as service:
        directory.rmdir()
        assert await service.end() == 0
        log = service.log.read().decode()
    assert "the state was not saved" in log
    assert "Traceback" not in log


async def test_a_unix_socket_is_listened_on_again_after_a_crash(tmp_path: Path) -> None:
    """The gRPC address may be a unix socket; one left over by a killed process is no obstacle."""
    flag = ("--listen", f"unix:{tmp_path / 's'}")
    async with serving(*flag) as first:
        assert await admitted(first.grpc_address)
        assert await first.end(signal.SIGKILL) == -signal.SIGKILL
    async with serving(*flag) as second:
        assert await admitted(second.grpc_address)
        assert await second.end() == 0


async def test_the_log_is_json_lines() -> None:
    """From the first line to the last, each line is an object with a time and an event."""
    async with serving("--log-level", "debug") as service:
        assert await admitted(service.grpc_address)
        assert await service.end(signal.SIGINT) == 0
        lines = [json.loads(line) for line in service.log.read().splitlines()]
    assert all({"time", "event"} <= line.keys() for line in lines)
    assert lines[-1]["message"] == "stopped"


async def test_a_log_that_nobody_reads_stops_nothing() -> None:
    """With the pipe full the service decides, takes in outcomes, answers scrapes, and ends with status 0 when asked."""
    async with serving() as service:
        async with grpc.aio.insecure_channel(service.grpc_address) as channel:
            call = als_pb2_grpc.AccessLogServiceStub(channel).StreamAccessLogs()
            await call.write(finished_requests(ENTRIES))
            await call.done_writing()
            await asyncio.wait_for(call, 5.0)
        assert (await metrics(service.ops_url)).value("outcomes_total") == ENTRIES
        assert await admitted(service.grpc_address)
        assert await service.end() == 0
        assert len(service.log.read()) >= PIPE_BYTES_MIN  # it was full


def finished_requests(count: int) -> Any:
    """A batch of access-log entries; each makes a line of more than a hundred bytes in tidegate's log."""
    message = als_pb2.StreamAccessLogsMessage()
    for number in range(count):
        entry = message.http_logs.log_entry.add()
        fields = {"id": f"other-{number}", "replica": "other", "tenant": "t" * 100, "decision": "admit"}
        entry.common_properties.metadata.filter_metadata["admission"].update(fields)
        entry.response.response_code.value = 200
    return message
