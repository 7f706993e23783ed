"""The n-gram estimator's saved state, its tickets and its table of tenants."""

import json
import os
import struct
from zlib import crc32

import pytest

from tests.unit.estimator.asking import request
from tidegate_estimator import CompletionRequest, NgramEstimator, WindowEstimator, features
from tidegate_estimator.keys import COUNT, KEYS_MAX, NOBODY, Keys
from tidegate_estimator.ngram_ticket import NGRAM_TICKET_BYTES_MAX


@pytest.fixture(scope="module")
def taught() -> NgramEstimator:
    estimator = NgramEstimator()
    for i in range(200):
        ticket = estimator.estimate(request(f"t{i % 7}", text="word " * (i % 50))).ticket
        estimator.learn(ticket, 20 + i, "abort" if i % 9 == 0 else "stop", prompt_tokens=12 + i % 50)
    return estimator


def test_saved_and_loaded_it_predicts_the_same(taught: NgramEstimator) -> None:
    """Weights lose digits in 16 bits, never a percent of an estimate; and a dump of what was loaded is the same."""
    again = NgramEstimator()
    again.load(taught.dump())
    for i in range(9):
        one, other = taught.estimate(request(f"t{i}")), again.estimate(request(f"t{i}"))
        assert other.p50 == pytest.approx(one.p50, rel=0.005)
        assert other.p90 == pytest.approx(one.p90, rel=0.005)
        assert other.source is one.source
        assert other.prompt_tokens == one.prompt_tokens
    assert again.dump() == taught.dump()


def test_it_learns_on_after_loading(taught: NgramEstimator) -> None:
    """Two that loaded the same state and are taught the same stay the same."""
    pair = NgramEstimator(), NgramEstimator()
    for estimator in pair:
        estimator.load(taught.dump())
        for _ in range(5):
            estimator.learn(estimator.estimate(request("t1")).ticket, 77, "abort")
    assert pair[0].dump() == pair[1].dump() != taught.dump()


def test_what_is_too_small_to_store_is_not_stored() -> None:
    """An answer cut almost before it began moves weights by less than 16 bits can say: saved again, nothing changes."""
    estimator = NgramEstimator()
    ticket = estimator.estimate(CompletionRequest(max_tokens=1, sequences=2867)).ticket
    assert estimator.learn(ticket, 1, "length")
    state = estimator.dump()
    estimator.load(state)
    assert estimator.dump() == state


def test_an_empty_state_loads(taught: NgramEstimator) -> None:
    """Before the first answer there is a state, too, and it is small."""
    estimator = NgramEstimator()
    estimator.load(taught.dump())
    estimator.load(NgramEstimator().dump())
    assert estimator.dump() == NgramEstimator().dump()
    assert len(estimator.dump()) < 3000


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: b"",
        lambda state: b"TGNG",
        lambda state: state[:-100],
        lambda state: state + b"\0",
        lambda state: b"XXXX" + state[4:],
        lambda state: state[:4] + b"\x63\x00\x00\x00" + state[8:],
        lambda state: state[:2000] + bytes([state[2000] ^ 1]) + state[2001:],
        lambda state: WindowEstimator().dump(),
    ],
    ids=["empty", "magic only", "short", "long", "magic", "version", "a bit", "another estimator's"],
)
def test_a_damaged_state_is_refused_and_nothing_changes(damage: object, taught: NgramEstimator) -> None:
    """Any damage is a ValueError, and what had been learned stays."""
    assert callable(damage)
    before = taught.dump()
    with pytest.raises(ValueError, match="estimator state"):
        taught.load(damage(before))
    assert taught.dump() == before


def rewritten(state: bytes, **changes: object) -> bytes:
    """A state whose description says something else, with a check that is right."""
    (size,) = struct.unpack_from("<I", state, 12)
    meta = json.dumps(json.loads(state[16 : 16 + size]) | changes).encode()
    body = struct.pack("<I", len(meta)) + meta + state[16 + size :]
    return state[:8] + struct.pack("<I", crc32(body)) + body


def test_a_state_of_other_features_is_refused(taught: NgramEstimator) -> None:
    """Weights mean nothing under other features, however well the file is kept."""
    state = taught.dump()
    assert rewritten(state) == state
    descriptions: tuple[dict[str, object], ...] = (
        {"features": features.VERSION + 1},
        {"features": None},
        {"arrays": []},
        {"arrays": 3},
    )
    for changes in descriptions:
        with pytest.raises(ValueError, match="estimator state"):
            taught.load(rewritten(state, **changes))


def test_figures_that_cannot_be_are_refused(taught: NgramEstimator) -> None:
    """A file that is whole but holds nonsense is not taken over."""
    other = NgramEstimator()
    other.load(taught.dump())
    other._state.mean_head.sum = float("nan")
    with pytest.raises(ValueError, match="out of range"):
        NgramEstimator().load(other.dump())


def test_no_name_is_in_a_ticket_or_a_state() -> None:
    """Tickets travel in access logs and states in files: they hold hashes, never who asked what."""
    estimator = NgramEstimator()
    ticket = estimator.estimate(request("very-secret-tenant", text="very secret prompt")).ticket
    estimator.learn(ticket, 10, "stop")
    assert b"secret" not in ticket + estimator.dump()
    assert len(ticket) <= NGRAM_TICKET_BYTES_MAX


@pytest.mark.parametrize("ticket", [b"", b"\x01", bytes(41), bytes(300), os.urandom(240), b"x" * 5000])
def test_garbage_is_no_ticket(ticket: bytes) -> None:
    """learn says False to bytes that are no ticket."""
    assert not NgramEstimator().learn(ticket, 10, "stop", 10)


def test_damaged_and_foreign_tickets_teach_nothing() -> None:
    """A changed bit anywhere, or the ticket of another estimator, is not learned from."""
    estimator = NgramEstimator()
    ticket, empty = estimator.estimate(request(text="Hello")).ticket, estimator.dump()
    for at in range(len(ticket)):
        assert not estimator.learn(ticket[:at] + bytes([ticket[at] ^ 4]) + ticket[at + 1 :], 10, "stop", 10)
    assert not estimator.learn(WindowEstimator().estimate(request()).ticket, 10, "stop", 10)
    assert not WindowEstimator().learn(ticket, 10, "stop", 10)
    assert estimator.dump() == empty


def test_keys_beyond_the_bound_displace_the_idlest() -> None:
    """Three rows for five keys: the ones taught last stay, and a new one starts from zeros."""
    keys = Keys(3)
    for key in (1, 2, 3, 1, 4, 5):
        keys.touch(key)[COUNT] += 1.0
    assert len(keys) == 3
    assert [key for key, _ in keys.items()] == [1, 4, 5]
    assert keys.find(1)[COUNT] == 2.0
    assert keys.find(5)[COUNT] == 1.0
    assert keys.find(2) is NOBODY


def test_a_hundred_thousand_tenants_take_the_memory_of_twenty_thousand() -> None:
    """Rows are allocated once."""
    keys = Keys()
    for key in range(100_000):
        keys.touch(key)
    assert len(keys) == KEYS_MAX
    assert keys.find(99_999) is not NOBODY
    assert keys.find(79_999) is NOBODY
