"""Messages between a process and its workers (`workers.py`): MessagePack, each after its length, over pipes."""

from __future__ import annotations

import os
from typing import Any

import ormsgpack

from holdfast.errors import CorruptError, NewerVersionError, StoreError

READY, DONE, FAILED = "ready", "done", "failed"
LENGTH_BYTES = 8
KINDS = {kind.__name__: kind for kind in (CorruptError, NewerVersionError, StoreError)}


def packed(value: object) -> bytes:
    return ormsgpack.packb(value)


def write(target: int, message: bytes) -> None:
    left = memoryview(len(message).to_bytes(LENGTH_BYTES, "big") + message)
    while left:
        left = left[os.write(target, left) :]


def read(source: int) -> Any:
    """The next message; `EOFError` if the other end was closed."""
    size = int.from_bytes(_exactly(source, LENGTH_BYTES), "big")
    return ormsgpack.unpackb(_exactly(source, size))


def _exactly(source: int, size: int) -> bytearray:
    data = bytearray(size)
    left = memoryview(data)
    while left:
        count = os.readv(source, [left])
        if not count:
            raise EOFError
        left = left[count:]
    return data


def enlarge(pipe: int, size: int) -> None:
    """Makes room for that much in a pipe, where the system lets us: who writes need not wait for who reads."""
    import fcntl

    if hasattr(fcntl, "F_SETPIPE_SZ"):
        try:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, size)
        except OSError:
            return  # then it goes in smaller steps


def packed_error(error: Exception) -> tuple[str, str, int, str] | None:
    """What the system or the store said, for `error_of`; None for anything else."""
    if isinstance(error, OSError) and error.errno is not None:
        path = error.filename if isinstance(error.filename, str | bytes) else b""
        return "OSError", error.strerror or "", error.errno, os.fsencode(path).decode("utf-8", "backslashreplace")
    return (type(error).__name__, str(error), 0, "") if type(error) in KINDS.values() else None


def error_of(value: Any) -> Exception | None:
    if value is None:
        return None
    name, text, number, path = value
    return OSError(number, text, path or None) if name == "OSError" else KINDS[name](text)
