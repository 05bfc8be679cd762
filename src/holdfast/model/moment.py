"""Times of records and rows, which count microseconds, as dates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST_US = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
LATEST_US = (datetime(9999, 12, 31, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


def moment_of(us: int) -> datetime:
    """Return the date of a time; of one that no date can be, as in a stranger's store, the nearest."""
    return EPOCH + timedelta(microseconds=max(EARLIEST_US, min(us, LATEST_US)))
