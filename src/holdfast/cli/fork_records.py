"""The user's own records of the store and the checkpoint that the directories of forks were made from.

`holdfast fork REF DIR` writes one to `forks/` of the user's configuration (user_records.py). DIR
itself holds no trace of it: no snapshot includes it, and no directory that came from elsewhere can
name a store by it. A record is valid for the directory that was made, by its real path and inode,
and not for another one at the same path.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast.cli.user_records import NoHomeError, get_directory, get_file, read_record, write_fields

KIND = "forks"


@dataclass(frozen=True, slots=True)
class ForkRecord:
    """A directory made by `holdfast fork`, its checkpoint, and its store, as an absolute path or a URL."""

    directory: str
    device: int
    inode: int
    store: str
    checkpoint: str


def write_fork_record(directory: Path, store: str, checkpoint: str) -> None:
    """Record what a directory was made from; raise `HoldfastError` if that is not possible."""
    real = Path(os.path.realpath(directory))
    found = real.stat()
    write_fields(get_file(KIND, real), asdict(ForkRecord(str(real), found.st_dev, found.st_ino, store, checkpoint)))
    _remove_stale_records()


def find_fork_record(directory: Path) -> ForkRecord | None:
    """Return the record of a directory; None if it is no fork's."""
    try:
        real = Path(os.path.realpath(directory))
        record = read_record(ForkRecord, get_file(KIND, real))
        if record is None or record.directory != str(real):
            return None
        found = real.stat()
    except (OSError, NoHomeError):
        return None
    return record if (found.st_dev, found.st_ino) == (record.device, record.inode) else None


def _remove_stale_records() -> None:
    for file in get_directory(KIND).glob("*.json"):
        record = read_record(ForkRecord, file)
        if record is not None and not os.path.lexists(record.directory):
            with contextlib.suppress(OSError):  # the next one tries again
                file.unlink()
