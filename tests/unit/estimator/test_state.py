"""The window estimator's saved state and its tickets."""

import os
import subprocess
import sys

import pytest

from tidegate_estimator import CompletionRequest, Message, WindowEstimator
from tidegate_estimator.ticket import open_ticket


def request(tenant: str, text: str = "hello there, how are you?") -> CompletionRequest:
    return CompletionRequest(
        tenant=tenant, model="m", messages=(Message(role="user", text=text),), prompt_chars=len(text)
    )


def taught() -> WindowEstimator:
    estimator = WindowEstimator()
    for i in range(300):
        ticket = estimator.estimate(request(f"t{i % 7}", "word " * (i % 50))).ticket
        estimator.learn(ticket, 20 + i, "abort" if i % 9 == 0 else "stop", prompt_tokens=12 + i % 50)
    return estimator


def test_saved_and_loaded_it_predicts_the_same() -> None:
    """A dump holds all that was learned, and dumps to the same bytes again."""
    first, second = taught(), WindowEstimator()
    second.load(first.dump())
    for i in range(9):
        assert first.estimate(request(f"t{i}")) == second.estimate(request(f"t{i}"))
    assert first.dump() == second.dump()


def test_it_learns_on_after_loading() -> None:
    """Both continue alike: nothing of the state is left behind."""
    first, second = taught(), WindowEstimator()
    second.load(first.dump())
    for estimator in (first, second):
        for _ in range(5):
            estimator.learn(estimator.estimate(request("t1")).ticket, 77, "abort")
    assert first.dump() == second.dump()


def test_an_empty_state_loads() -> None:
    """Before the first answer there is a state, too."""
    estimator = taught()
    estimator.load(WindowEstimator().dump())
    assert estimator.dump() == WindowEstimator().dump()


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: b"",
        lambda state: b"TGWE",
        lambda state: state[:-1],
        lambda state: state + b"\0",
        lambda state: b"XXXX" + state[4:],
        lambda state: state[:4] + b"\x63\x00" + state[6:],
        lambda state: state[:200] + bytes([state[200] ^ 1]) + state[201:],
    ],
    ids=["empty", "magic only", "short", "long", "magic", "version", "a bit"],
)
def test_a_damaged_state_is_refused_and_nothing_changes(damage: object) -> None:
    """Any damage is a ValueError, and what had been learned stays."""
    assert callable(damage)
    estimator = taught()
    before = estimator.dump()
    with pytest.raises(ValueError, match="estimator state"):
        estimator.load(damage(before))
    assert estimator.dump() == before


def test_no_name_is_in_a_ticket_or_a_state() -> None:
    """Tickets travel in access logs and states in files: they hold hashes, never who asked what."""
    estimator = WindowEstimator()
    ticket = estimator.estimate(request("very-secret-tenant", "very secret prompt")).ticket
    estimator.learn(ticket, 10, "stop")
    assert b"secret" not in ticket + estimator.dump()
    assert len(ticket) <= 300


@pytest.mark.parametrize("ticket", [b"", b"\x01", bytes(41), b"\x01" + bytes(40), os.urandom(41), b"x" * 5000])
def test_garbage_is_no_ticket(ticket: bytes) -> None:
    """learn says False to bytes that are no ticket."""
    assert not WindowEstimator().learn(ticket, 10, "stop", 10)


def test_a_damaged_ticket_does_not_open() -> None:
    """One flipped bit anywhere is noticed."""
    ticket = WindowEstimator().estimate(request("t")).ticket
    assert open_ticket(ticket) is not None
    for i in range(len(ticket)):
        assert open_ticket(ticket[:i] + bytes([ticket[i] ^ 4]) + ticket[i + 1 :]) is None


def test_tickets_do_not_depend_on_the_hash_seed() -> None:
    """Replicas with other hash seeds write the same ticket."""
    code = (
        "from tidegate_estimator import *;"
        "print(WindowEstimator().estimate(CompletionRequest(tenant='a', model='b', prompt_chars=9)).ticket.hex())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1
