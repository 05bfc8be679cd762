"""A temporary file whose content is encrypted under a key that only this process has."""

from __future__ import annotations

import os
import tempfile
from types import TracebackType
from typing import Self

from holdfast.sealing.cipher import KEY_BYTES, NONCE_BYTES, TAG_BYTES, decrypt, new_cipher
from holdfast.sealing.envelope import tampered_error

BLOCK = 64 * 1024


class SealedTemporaryFile:
    """A file that is written once, from its beginning, and then read at any place.

    Its blocks are sealed one by one: the number of a block is its nonce, and the key is used for this
    file alone.
    """

    def __init__(self) -> None:
        self._cipher = new_cipher(os.urandom(KEY_BYTES))
        self._file = tempfile.TemporaryFile(prefix="holdfast-")  # noqa: SIM115 - closed by `close`
        self._tail = bytearray()  # written, and not a whole block yet
        self._size = self._at = 0
        self._is_written = False

    def write(self, data: bytes) -> int:
        if self._is_written:
            raise OSError("a sealed temporary file is written once")
        self._tail += data
        while len(self._tail) >= BLOCK:
            self._put(bytes(self._tail[:BLOCK]))
            del self._tail[:BLOCK]
        return len(data)

    def _put(self, block: bytes) -> None:
        nonce = (self._size // BLOCK).to_bytes(NONCE_BYTES, "big")
        self._file.write(self._cipher.encrypt(nonce, block, b""))
        self._size += len(block)

    def flush(self) -> None:
        """Do nothing: what is written is read by this process alone."""

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a place, to read from there: the file is complete now."""
        if not self._is_written:
            self._put(bytes(self._tail))
            self._tail.clear()
            self._is_written = True
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = min(max(start + offset, 0), self._size)
        return self._at

    def read(self, count: int = -1) -> bytes:
        self.seek(0, os.SEEK_CUR)
        end = self._size if count < 0 else min(self._at + count, self._size)
        pieces = []
        while self._at < end:
            number, first = divmod(self._at, BLOCK)
            piece = self._block(number)[first : first + end - self._at]
            pieces.append(piece)
            self._at += len(piece)
        return b"".join(pieces)

    def _block(self, number: int) -> bytes:
        self._file.seek(number * (BLOCK + TAG_BYTES))
        sealed = self._file.read(min(BLOCK, self._size - number * BLOCK) + TAG_BYTES)
        block = decrypt(self._cipher, number.to_bytes(NONCE_BYTES, "big"), sealed, b"")
        if block is None:
            raise tampered_error("a temporary file")
        return block

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
