"""DNS lookups: what an answer means, and how many there are at a time."""

import asyncio
import socket
import subprocess
import sys
from contextlib import suppress
from ipaddress import ip_address
from queue import Queue
from threading import Event
from typing import Any

import pytest

from tests.unit.signals_polling.harness import PATIENCE_S, let_run, soon
from tidegate.signals.resolve import LOOKUPS_IN_FLIGHT_MAX, LookupFailed, SystemResolver

Found = list[tuple[Any, ...]]


def found(*addresses: str) -> Found:
    """An answer in the form of getaddrinfo."""
    return [(socket.AF_UNSPEC, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]


def resolver(answer: Found | Exception) -> SystemResolver:
    """A resolver whose system answers so."""

    def look_up(_name: str, _port: None, *, type: int) -> Found:  # noqa: A002  getaddrinfo's name
        assert type == socket.SOCK_STREAM
        if isinstance(answer, Exception):
            raise answer
        return answer

    return SystemResolver(look_up)


@pytest.mark.parametrize(
    ("answer", "addresses"),
    [
        (("10.0.0.10", "10.0.0.9", "10.0.0.10"), ["10.0.0.9", "10.0.0.10"]),
        (("fd00::2", "10.0.0.1", "fd00::1"), ["10.0.0.1"]),
        (("fd00::2", "fd00::1"), ["fd00::1", "fd00::2"]),
        (("fe80::1%eth0",), []),
        ((), []),
    ],
)
async def test_the_addresses_of_a_name(answer: tuple[str, ...], addresses: list[str]) -> None:
    """Each address once, in order, of one family, IPv4 first: an engine with both must not count twice."""
    assert await soon(resolver(found(*answer))("vllm")) == tuple(map(ip_address, addresses))


@pytest.mark.parametrize("number", [socket.EAI_NONAME, socket.EAI_NODATA])
async def test_no_such_name_is_an_answer(number: int) -> None:
    """A name that does not exist has no addresses: that is known, not unknown."""
    assert await soon(resolver(socket.gaierror(number, "no such name"))("vllm")) == ()


@pytest.mark.parametrize(
    "error",
    [
        socket.gaierror(socket.EAI_AGAIN, "temporary failure"),
        socket.gaierror(socket.EAI_FAIL, "failure"),
        OSError("no files left"),
        UnicodeError("label too long"),
        RuntimeError("anything"),
    ],
)
async def test_everything_else_is_no_answer(error: Exception) -> None:
    """A lookup that fails in any other way says that nothing is known, and why."""
    with pytest.raises(LookupFailed, match=str(error.args[-1])):
        await soon(resolver(error)("vllm"))


async def test_the_systems_own_resolver() -> None:
    """Without a stand-in, the system is asked."""
    assert await soon(SystemResolver()("127.0.0.1")) == (ip_address("127.0.0.1"),)


async def test_hung_lookups_hold_up_only_a_few_threads() -> None:
    """Lookups beyond the limit wait; one that was given up holds its place until it really ends."""
    begun: Queue[str] = Queue()
    end = Event()

    def hang(name: str, _port: None, *, type: int) -> Found:  # noqa: A002
        begun.put(name)
        end.wait()
        return found("10.0.0.1")

    resolve = SystemResolver(hang)
    try:
        given_up = [asyncio.ensure_future(resolve(f"hung-{i}")) for i in range(LOOKUPS_IN_FLIGHT_MAX)]
        await let_run()
        for task in given_up:
            task.cancel()
        waiting = asyncio.ensure_future(resolve("waiting"))
        await let_run()
        assert not waiting.done()
    finally:
        end.set()
    assert await soon(waiting) == (ip_address("10.0.0.1"),)
    assert [begun.get_nowait() for _ in range(begun.qsize())] == [f"hung-{i}" for i in range(4)] + ["waiting"]
    for task in given_up:
        with suppress(asyncio.CancelledError):
            await task


def test_a_lookup_that_outlives_its_loop_is_let_go() -> None:
    """A lookup that ends after the event loop has closed ends without a word, and did not hold up the end."""
    begun, end, ended = Event(), Event(), Event()

    class Late:
        def __call__(self, _name: str, _port: None, *, type: int) -> Found:  # noqa: A002
            begun.set()
            end.wait()
            ended.set()
            return found("10.0.0.1")

    async def give_up() -> None:
        task = asyncio.ensure_future(SystemResolver(Late())("vllm"))
        await let_run()
        task.cancel()

    asyncio.run(give_up())
    assert begun.wait(5)
    end.set()
    assert ended.wait(5)


def test_a_hung_lookup_does_not_hold_up_the_end_of_the_process() -> None:
    """A process whose name servers are gone ends when it wants to."""
    program = """
import asyncio, threading
from tidegate.signals.resolve import SystemResolver
begun = threading.Event()
def hang(*name, **kind):
    begun.set()
    threading.Event().wait()
async def main():
    task = asyncio.ensure_future(SystemResolver(hang)("vllm"))
    while not begun.is_set():
        await asyncio.sleep(0)
    print("asked", flush=True)
asyncio.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert ended.stdout == "asked\n"
