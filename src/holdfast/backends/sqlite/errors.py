"""Errors of sqlite3, translated into ours."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from holdfast.errors import CorruptError, StoreBusyError, StoreError

# sqlite3 fails to decode its own message when the damaged part of a file is in it.
FAILURES = (sqlite3.Error, UnicodeDecodeError)


def translate(error: Exception, path: Path, doing: str, timeout: float) -> Exception:
    """Return the error that says what happened and what to do."""
    if not isinstance(error, FAILURES):
        return error
    text = str(error)
    if "interrupted" in text:  # by `CallLimit`, and nothing else
        return CorruptError(
            f"the file {path} is damaged: what was asked for would read more than the file can hold. Keep a copy, and "
            "restore a backup; don't use a file from a source that you don't trust"
        )
    if "locked" in text or "busy" in text:
        return StoreBusyError(
            f"the store {path} can't be {doing}: another process has held its write lock for "
            f"{timeout:g} s. Find it (`fuser {path.name}`), or open with a longer `timeout`"
        )
    if "full" in text:
        return StoreError(
            f"the store {path} can't be {doing}: the disk is full. Free some space and save again; "
            "nothing that was saved before is lost"
        )
    if "unable to open" in text or "readonly" in text:
        return StoreError(f"the store {path} can't be {doing}: {_why_not_opened(path, text)}")
    if isinstance(error, UnicodeDecodeError) or "malformed" in text or "not a database" in text:
        return CorruptError(
            f"the file {path} is damaged or not a SQLite database ({text}). Keep a copy; "
            "`sqlite3 FILE .recover` saves what can be read"
        )
    return StoreError(f"the store {path} can't be {doing}: {text}. Check the disk, then try again")


def _why_not_opened(path: Path, text: str) -> str:
    for place in (path, path.parent):
        if not os.access(place, os.W_OK):
            return (
                f"{place} is read-only, and SQLite must write even to read ({text}). Make the file and its directory "
                "writable, or copy the store (also its -wal and -shm files) to a writable directory"
            )
    return f"{text}. Too many files may be open (`ulimit -n`), or the disk may fail: check both, then try again"
