"""The envelope's schema version, and the chain that brings old envelopes up to it.

The *envelope* is the header that holdfast writes around a state (docs/format.md). A change to it raises
`ENVELOPE_VERSION` and adds one function to `MIGRATIONS`, keyed by the version it starts from, which turns a header of
that version into one of the next. Stored bytes are never rewritten: a header is migrated each time it is read, after
its checksum was verified.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.errors import NewerVersionError

ENVELOPE_VERSION = "1"  # as stored
SCHEMA_VERSION = f"{ENVELOPE_VERSION}.0"  # as a checkpoint shows it: other tools write it so

Header = dict[str, Any]
MIGRATIONS: Mapping[str, tuple[str, Callable[[Header], Header]]] = {}


def migrate(
    header: Header,
    version: str,
    *,
    current: str = ENVELOPE_VERSION,
    migrations: Mapping[str, tuple[str, Callable[[Header], Header]]] = MIGRATIONS,
) -> Header:
    """Return the header as the current version writes it.

    A version without a path to the current one is a newer one.
    """
    while version != current:
        if version not in migrations:
            raise NewerVersionError(
                f"this checkpoint has envelope version {version!r}, and this holdfast reads up to {current!r}: it was "
                "written by a newer holdfast. Upgrade to read it; nothing was changed"
            )
        version, step = migrations[version]
        header = step(dict(header))
    return header
