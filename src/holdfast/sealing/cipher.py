"""The cryptography that sealed stores use: AES-256-GCM, HMAC, HKDF and Argon2id, of `cryptography`."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16


def new_cipher(key: bytes) -> AESGCM:
    """Return AES-256-GCM under this key."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise _package_error() from error
    if len(key) != KEY_BYTES:
        raise UsageError(f"a key has {KEY_BYTES} bytes, and this one has {len(key)}: `holdfast keys new` makes one")
    return AESGCM(key)


def decrypt(cipher: AESGCM, nonce: bytes, data: bytes, bound_to: bytes) -> bytes | None:
    """Return the plaintext; None if it is not what was encrypted under this key for this place."""
    try:
        return cipher.decrypt(nonce, data, bound_to)
    except Exception as error:
        from cryptography.exceptions import InvalidTag  # here: an import for each call would cost as much as the rest

        if not isinstance(error, InvalidTag):
            raise
        return None


def derive_key(root: bytes, purpose: bytes) -> bytes:
    """Return the key of a purpose: HKDF-Expand (RFC 5869) with SHA-256, one block."""
    return hmac.digest(root, b"holdfast " + purpose + b"\x01", "sha256")


def keyed_hash(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def stretch(passphrase: bytes, salt: bytes, *, iterations: int, memory_kib: int, lanes: int, length: int) -> bytes:
    """Return a key that a passphrase leads to, by Argon2id."""
    try:
        from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
    except ImportError as error:
        raise _package_error() from error
    derived: bytes = Argon2id(
        salt=salt, length=length, iterations=iterations, lanes=lanes, memory_cost=memory_kib
    ).derive(passphrase)
    return derived


def _package_error() -> UsageError:
    return UsageError("sealed stores need the package cryptography: pip install 'holdfast[crypto]'")
