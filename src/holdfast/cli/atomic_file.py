"""Atomic replacement of a small file: readers see the old content or the new, never a part."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def replace_file(path: Path, content: str, *, new_mode: int = 0o644) -> None:
    """Write a file whole, or raise `OSError` and leave it as it was.

    A symbolic link stays one, and an existing file keeps its mode.
    """
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    mode = target.stat().st_mode & 0o7777 if target.exists() else new_mode
    try:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()  # of a process that died
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as opened:  # noqa: PTH123 - of a descriptor
            opened.write(content.encode("utf-8"))
            opened.flush()
            os.fsync(opened.fileno())
        temporary.chmod(mode)
        temporary.replace(target)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
