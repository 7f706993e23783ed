"""Tickets travel through other people's access logs: sealed, so that they reveal nothing and nobody can forge one.

    text    = base64(version 1 | salt 8 | count 6 | AES-256-GCM(subkey, nonce = 6 zero bytes | count, ticket, id))
    subkey  = HKDF-SHA256(key, salt)

The key is shared by the replicas (a file) or drawn by each process. A process seals under a subkey of its own, for
which it draws the salt when it starts, so that a plain counter is a nonce that never repeats: random nonces under
one shared key would be used up within weeks at a few thousand requests a second. The request's id is authenticated
with the ticket: a ticket copied into another request's entry does not open.
"""

import os
from base64 import b64decode, b64encode
from collections import OrderedDict
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tidegate.errors import FlagError

KEY_BYTES = 32
SUBKEYS_MAX = 256
_VERSION = b"\x01"
_SALT_BYTES = 8
_COUNT_BYTES = 6
_HEAD_BYTES = 1 + _SALT_BYTES + _COUNT_BYTES
_TEXT_CHARS_MAX = 2048


class Seal:
    """Seals and opens tickets.

    Args:
        key: 32 secret bytes; whoever has them can read tickets and teach the estimator.
        salt: 8 bytes that no other process with this key has used.
    """

    def __init__(self, key: bytes, salt: bytes) -> None:
        assert len(key) == KEY_BYTES, len(key)
        assert len(salt) == _SALT_BYTES, len(salt)
        self._key = key
        self._head = _VERSION + salt
        self._count = 0
        self._own = AESGCM(_subkey(key, salt))
        self._subkeys: OrderedDict[bytes, AESGCM] = OrderedDict({salt: self._own})

    def close(self, ticket: bytes, identity: str) -> str:
        """The ticket as text, good for the request of that id only."""
        self._count += 1
        count = self._count.to_bytes(_COUNT_BYTES, "big")
        box = self._own.encrypt(_nonce(count), ticket, identity.encode())
        return b64encode(self._head + count + box).decode("ascii")

    def open(self, text: str, identity: str) -> bytes | None:
        """The ticket, or None where the text was not sealed under this key for this id."""
        if len(text) > _TEXT_CHARS_MAX:
            return None
        try:
            data = b64decode(text, validate=True)
        except ValueError:
            return None
        if len(data) < _HEAD_BYTES or data[:1] != _VERSION:
            return None
        salt, count = data[1 : 1 + _SALT_BYTES], data[1 + _SALT_BYTES : _HEAD_BYTES]
        try:
            return self._cipher(salt).decrypt(_nonce(count), data[_HEAD_BYTES:], identity.encode("utf-8", "replace"))
        except InvalidTag:
            return None

    def _cipher(self, salt: bytes) -> AESGCM:
        """Of the process that drew the salt; forged salts only push each other out."""
        cipher = self._subkeys.get(salt)
        if cipher is None:
            cipher = AESGCM(_subkey(self._key, salt))
            self._subkeys[salt] = cipher
            if len(self._subkeys) > SUBKEYS_MAX:
                self._subkeys.popitem(last=False)
        self._subkeys.move_to_end(salt)
        return cipher


def new_seal(key_file: Path | None) -> Seal:
    """A seal with the key in a file, or with one of its own; FlagError where the file holds no key."""
    key = os.urandom(KEY_BYTES) if key_file is None else read_key(key_file)
    return Seal(key, os.urandom(_SALT_BYTES))


def read_key(path: Path) -> bytes:
    """32 bytes from a file that holds them as base64; FlagError where it does not."""
    try:
        key = b64decode(path.read_text("ascii").strip(), validate=True)
    except OSError as error:
        raise FlagError(f"--key-file: cannot read {str(path)!r}: {error.strerror}") from error
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise FlagError(f"--key-file: {str(path)!r} holds no key; make one with: openssl rand -base64 32 > {path}")
    return key


def _subkey(key: bytes, salt: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=b"tidegate ticket").derive(key)


def _nonce(count: bytes) -> bytes:
    return bytes(12 - _COUNT_BYTES) + count
