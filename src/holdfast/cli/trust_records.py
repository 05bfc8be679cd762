"""The user's records of trusted directories: small files in `trust/` of the user's configuration.

See user_records.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from holdfast.cli.user_records import NoHomeError, get_directory, get_file, read_record, write_fields
from holdfast.errors import HoldfastError

KIND = "trust"


@dataclass(frozen=True, slots=True)
class TrustRecord:
    """A directory that the user has trusted, with the digest of its configuration then."""

    directory: str
    digest: str
    trusted_at: str


def read_trust_record(directory: Path) -> TrustRecord | None:
    """Return the record of a directory, by its real path; None if there is no reliable one."""
    try:
        record = read_record(TrustRecord, get_file(KIND, directory))
    except NoHomeError:
        return None
    return record if record is not None and record.directory == str(directory) else None


def read_records() -> Iterator[TrustRecord]:
    """Return all records, in the order of the directories' names."""
    try:
        files = sorted(get_directory(KIND).iterdir())
    except (FileNotFoundError, NotADirectoryError, NoHomeError):
        return
    found = (read_record(TrustRecord, file) for file in files if file.suffix == ".json")
    yield from sorted((record for record in found if record is not None), key=lambda record: record.directory)


def write_record(directory: Path, digest: str) -> TrustRecord:
    """Record that the user trusts a directory (by its real path) while its configuration has this digest."""
    record = TrustRecord(str(directory), digest, datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"))
    write_fields(get_file(KIND, directory), asdict(record))
    return record


def remove_record(directory: Path) -> bool:
    """Remove the record of a directory, given by its real path; return whether there was one."""
    file = get_file(KIND, directory)
    try:
        file.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise HoldfastError(
            f"{file} can't be removed ({error.strerror}): the directory is still trusted. Remove the file"
        ) from error
    return True
