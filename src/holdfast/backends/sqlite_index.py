"""How SQLite finds a record by its id, and by its session and sequence number: by two tables that are filled later.

An index of SQLite's own is written with every save: two pages of the five that a save wrote. So records are put into
`record_by_id` and `record_by_place` many at a time, and the few that are not there yet (those with an `n` above `indexed`) are
looked through. A query does both in one statement, so that it sees one state of the store. That no two records have one id, or one
place, is for whoever writes to see to: `Newest` says when there is no need to look.
"""

from __future__ import annotations

import sqlite3
from typing import TypeVar

from holdfast.backends.port import RecordWrite

T = TypeVar("T")
AT_ONCE = 32  # put into the tables together. Until then, a query looks through them

_INDEXED = "(SELECT n FROM indexed)"
# `?1` is the id. An entry that leads to another record is none.
NUMBER_OF_ID = (
    f"SELECT n FROM record WHERE n = (SELECT n FROM record_by_id WHERE id = ?1 AND n <= {_INDEXED}) AND id = ?1 "
    f"UNION ALL SELECT n FROM record WHERE n > {_INDEXED} AND id = ?1"
)
_NUMBER_OF_PLACE = (
    f"SELECT n FROM record_by_place WHERE session = ?1 AND sequence = ?2 AND n <= {_INDEXED} "
    f"UNION ALL SELECT n FROM record WHERE n > {_INDEXED} AND session = ?1 AND sequence = ?2"
)
RECORD_OF_ID = (
    "SELECT record.id, session.id, sequence, data FROM record JOIN session ON session.n = record.session "
    f"WHERE record.n IN ({NUMBER_OF_ID})"
)
# Where an entry leads to another record, or to none, there are NULLs: the caller takes these for damage.
RECORDS_OF_SESSION = (
    "SELECT record.id, session.id, place.sequence, data FROM record_by_place AS place "
    "LEFT JOIN record ON record.n = place.n AND record.session = place.session AND record.sequence = place.sequence "
    "LEFT JOIN session ON session.n = place.session WHERE place.session = (SELECT n FROM session WHERE id = ?1) "
    f"AND place.sequence < ?2 AND place.n <= {_INDEXED} "
    "UNION ALL SELECT record.id, session.id, sequence, data FROM record JOIN session ON session.n = record.session "
    f"WHERE record.n > {_INDEXED} AND session = (SELECT n FROM session WHERE id = ?1) AND sequence < ?2 "
    "ORDER BY 3 DESC LIMIT ?3"
)
RECORDS_BY_ID = (
    "SELECT entry.id, session.id, sequence, data FROM record_by_id AS entry "
    "LEFT JOIN record ON record.n = entry.n AND record.id = entry.id LEFT JOIN session ON session.n = record.session "
    f"WHERE entry.id > ?1 AND entry.n <= {_INDEXED} "
    "UNION ALL SELECT record.id, session.id, sequence, data FROM record JOIN session ON session.n = record.session "
    f"WHERE record.n > {_INDEXED} AND record.id > ?1 ORDER BY 1 LIMIT ?2"
)
_ENDS = "substr(id, ?1) = ?2 AND lower(hex(id)) LIKE '%' || ?3"
IDS = (
    f"SELECT id FROM record_by_id WHERE n <= {_INDEXED} AND {_ENDS} "
    f"UNION ALL SELECT id FROM record WHERE n > {_INDEXED} AND {_ENDS} LIMIT ?4"
)


_ENTER = (
    f"INSERT INTO record_by_id SELECT id, n FROM record WHERE n > {_INDEXED} ORDER BY id",
    f"INSERT INTO record_by_place SELECT session, sequence, n FROM record WHERE n > {_INDEXED} ORDER BY session, sequence",
)


_HIGHEST = "SELECT max(sequence) FROM record_by_place WHERE session = ?"


def prepare(connection: sqlite3.Connection) -> None:
    """Has the connection prepare what `Newest` asks at the first save."""
    Newest().look(connection)
    connection.execute(_HIGHEST, (0,)).fetchone()


def number_of(connection: sqlite3.Connection, id_: bytes) -> int | None:
    """The `n` of a record, None if there is none of that id."""
    found = connection.execute(NUMBER_OF_ID, (id_,)).fetchone()
    return found[0] if found else None


def is_taken(connection: sqlite3.Connection, record: RecordWrite, session: int | None) -> bool:
    """Whether there is a record of that id, or one of that number in the session, if there is such a session."""
    if number_of(connection, record.id) is not None:
        return True
    if session is None:
        return False
    return connection.execute(_NUMBER_OF_PLACE, (session, record.sequence)).fetchone() is not None


class Newest:
    """The highest id, and the highest sequence number of each session, as far as they were asked for: a record above both is a
    new one, and need not be looked for. And up to where records are in the tables."""

    def __init__(self) -> None:
        self._indexed: int | None = None  # None: nothing is known
        self._id = b""
        self._sequences: dict[int, int] = {}
        self._above: dict[int, int] = {}  # the highest number of each session that has records above `indexed`

    def forget(self) -> None:
        self._indexed = None
        self._sequences.clear()

    def is_above_all(self, connection: sqlite3.Connection, record: RecordWrite, session: int | None) -> bool:
        """Whether the record is above all others; `session` is None if it is the first of its session. `look` must have been
        called."""
        if session is None:
            return record.id > self._id
        highest = self._sequences.get(session)
        if highest is None:  # asked for even if the id is not above: `add` goes on from it
            found = connection.execute(_HIGHEST, (session,)).fetchone()[0]
            highest = max(_checked(found, int, 0), self._above.get(session, 0))
            self._sequences[session] = highest
        return record.id > self._id and record.sequence > highest

    def add(self, record: RecordWrite, session: int) -> None:
        """A record is written, about which `is_above_all` was asked."""
        self._id = max(self._id, record.id)
        self._sequences[session] = max(self._sequences.get(session, 0), record.sequence)

    def takes(self, record: RecordWrite, session: int) -> bool:
        """`is_above_all` and `add` in one, where nothing has to be asked for; else False, and nothing is added."""
        highest = self._sequences.get(session)
        if self._indexed is None or highest is None or record.id <= self._id or record.sequence <= highest:
            return False
        self._id = record.id
        self._sequences[session] = record.sequence
        return True

    def is_due(self, last: int) -> bool:
        """Whether there are many records, up to the last one, that are not in the tables: or that is not known."""
        return self._indexed is None or last - self._indexed >= AT_ONCE

    def enter(self, connection: sqlite3.Connection, last: int) -> None:
        """Puts the records up to the last one into the tables, once there are many."""
        if self._indexed is None and last - _indexed(connection) < AT_ONCE:
            return
        for statement in _ENTER:
            connection.execute(statement)
        connection.execute("UPDATE indexed SET n = ?", (last,))
        if self._indexed is not None:
            self._indexed = last

    @property
    def is_known(self) -> bool:
        return self._indexed is not None

    def look(self, connection: sqlite3.Connection) -> None:
        """Looks what there is. What was gathered must be written before."""
        indexed = _indexed(connection)
        self._id = _checked(connection.execute("SELECT max(id) FROM record_by_id").fetchone()[0], bytes, b"")
        self._above = {}
        above = connection.execute("SELECT id, session, sequence FROM record WHERE n > ?", (indexed,))
        for id_, session, sequence in above:
            self._id = max(self._id, _checked(id_, bytes, b""))
            self._above[session] = max(self._above.get(session, 0), _checked(sequence, int, 0))
        self._indexed = indexed


def _indexed(connection: sqlite3.Connection) -> int:
    found = connection.execute("SELECT n FROM indexed").fetchone()
    if found is None:
        raise sqlite3.DatabaseError("malformed: the table of what is indexed is empty")
    return _checked(found[0], int, 0)


def _checked(found: object, kind: type[T], of_none: T) -> T:
    """What was found, if it is what was stored: a damaged page may give something else."""
    if found is None:
        return of_none
    if not isinstance(found, kind):
        raise sqlite3.DatabaseError("malformed row: a value is not of the type that was stored")
    return found
