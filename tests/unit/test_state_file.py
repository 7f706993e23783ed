"""The state file: what is saved comes back, and nothing else is ever taken for it."""

import hashlib
import os
import stat
from pathlib import Path

import pytest

from tidegate import state_file
from tidegate.errors import StateFileError
from tidegate.state_file import FILE_NAME, PoolState, SavedState, StateFile, pack, unpack

STATE = SavedState(
    saved_at_s=1_700_000_000.5,
    pools=[
        PoolState(
            name="outbound|8000||vllm",
            policy=[("tidegate-slots-max", "8"), ("tidegate-shadow", "on")],
            books=[{"id": "a-1", "kv_tokens": 120, "age_s": 1.5}],
            pace={"tau_s": 0.03},
            usage=[("tiny", True, "openai_chat", [(2000, 10), (900, 3)])],
        ),
        PoolState(name="empty", policy=[]),
    ],
)


def content_of(body: bytes) -> bytes:
    """A file with a right head for any body."""
    return f"tidegate-state 1 {hashlib.sha256(body).hexdigest()} {len(body)}\n".encode() + body


def refusal(content: bytes) -> str:
    with pytest.raises(StateFileError) as caught:
        unpack(content)
    return str(caught.value)


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    """Saving and loading gives an equal state, and a second save replaces the first."""
    file = StateFile(tmp_path)
    assert file.save(SavedState(saved_at_s=0.0)) > 0
    file.save(STATE)
    assert file.load() == STATE
    assert [entry.name for entry in tmp_path.iterdir()] == [FILE_NAME]


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    """The books hold tenants' names: the file is its owner's alone, whatever lay there before."""
    file = StateFile(tmp_path)
    (tmp_path / f"{FILE_NAME}.new").write_bytes(b"left by a crash")
    file.save(STATE)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


def test_no_file_is_no_state(tmp_path: Path) -> None:
    """The first start finds nothing and that is no error."""
    assert StateFile(tmp_path).load() is None
    assert StateFile(tmp_path / "missing").load() is None


def test_any_flipped_byte_is_noticed() -> None:
    """Damage anywhere, the head included, is refused in a sentence."""
    content = pack(STATE)
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 0x01
        assert refusal(bytes(damaged))


def test_any_cut_is_noticed() -> None:
    """A file that ends early or goes on too long is refused."""
    content = pack(STATE)
    for size in range(0, len(content), 7):
        assert refusal(content[:size])
    assert "announced" in refusal(content + b" ")


def test_another_version_is_named() -> None:
    """A file of a later program says which version it is."""
    content = pack(STATE).replace(b"tidegate-state 1 ", b"tidegate-state 2 ")
    assert "version 2" in refusal(content)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[" * 100_000,
        b"\xff",
        b'{"saved_at_s": "now"}',
        b'{"saved_at_s": 1, "pools": [{"name": "a"}]}',
        b'{"saved_at_s": 1, "pools": [{"name": "a", "policy": [], "usage": "!"}]}',
        b'{"saved_at_s": 1, "more": 1}',
        b'{"saved_at_s": 1, "pools": [' + b",".join([b'{"name": "a", "policy": []}'] * 1025) + b"]}",
    ],
)
def test_a_right_checksum_is_not_enough(body: bytes) -> None:
    """A body of another shape, or with more pools than there can be, is refused however well it is sealed."""
    assert "damaged" in refusal(content_of(body))


def test_the_error_names_the_file(tmp_path: Path) -> None:
    """An operator reads which file is damaged, and a later save mends it."""
    file = StateFile(tmp_path)
    file.path.write_bytes(b"not ours")
    with pytest.raises(StateFileError, match=FILE_NAME):
        file.load()
    file.save(STATE)
    assert file.load() == STATE


def test_a_failed_save_leaves_the_old_state(tmp_path: Path) -> None:
    """Where the disk refuses the new file, the old one is still there."""
    file = StateFile(tmp_path)
    file.save(STATE)
    (tmp_path / f"{FILE_NAME}.new").mkdir()
    with pytest.raises(StateFileError, match="cannot be written"):
        file.save(SavedState(saved_at_s=0.0))
    assert file.load() == STATE
    with pytest.raises(StateFileError, match="cannot be written"):
        StateFile(tmp_path / "missing").save(STATE)


def test_what_is_no_file_cannot_be_read(tmp_path: Path) -> None:
    """A directory in the file's place is an operator's error, not a crash."""
    os.mkdir(tmp_path / FILE_NAME)
    with pytest.raises(StateFileError, match="cannot be read"):
        StateFile(tmp_path).load()


def test_the_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither side handles more than the bound: a larger state is not written, a larger file is not read."""
    content = pack(STATE)
    monkeypatch.setattr(state_file, "STATE_BYTES_MAX", 100)
    with pytest.raises(StateFileError, match="at most 100"):
        pack(STATE)
    assert "at most 100" in refusal(content)
