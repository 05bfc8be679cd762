"""SQL that finds records.

A damaged index may lead to another record, which SQLite does not notice. So a query finds the
number of a record in an index, and compares the record of that number (`+` keeps SQLite from using
the index again). In a list, an entry that leads elsewhere has NULLs.
"""

from __future__ import annotations

_OF_ID = "FROM record WHERE record.n = (SELECT n FROM record WHERE id = ?1) AND +record.id = ?1"
DATA_OF_ID = f"SELECT data {_OF_ID}"
BEGINNING_OF_ID = f"SELECT substr(data, 1, ?2) {_OF_ID}"
RECORD_OF_ID = (
    "SELECT record.id, (SELECT id FROM session WHERE session.n = record.session), record.sequence, record.data "
    f"{_OF_ID}"
)
IS_TAKEN = "SELECT 1 FROM record WHERE id = ?1 OR (session = ?2 AND sequence = ?3)"
OF_SESSION = (
    "SELECT record.id, session.id, place.sequence, record.data FROM record AS place "
    "JOIN session ON session.n = place.session "
    "LEFT JOIN record ON record.n = place.n AND +record.session = place.session AND +record.sequence = place.sequence "
    "WHERE place.session = (SELECT n FROM session WHERE id = ?1) AND place.sequence < ?2 "
    "ORDER BY place.sequence DESC LIMIT ?3"
)
BY_ID = (
    "SELECT entry.id, session.id, record.sequence, record.data FROM record AS entry "
    "LEFT JOIN record ON record.n = entry.n AND +record.id = entry.id LEFT JOIN session ON session.n = record.session "
    "WHERE entry.id > ?1 ORDER BY entry.id LIMIT ?2"
)
CHANGES = (
    "SELECT record.n, record.id, session.id, sequence, data FROM record JOIN session ON session.n = record.session"
)
OF_FEED = (
    "SELECT record.n, record.id, session.id, record.sequence, record.data FROM record AS entry "
    "LEFT JOIN record ON record.n = entry.n AND +record.feed = entry.feed "
    "LEFT JOIN session ON session.n = record.session WHERE entry.feed = ?1 AND entry.n > ?2 ORDER BY entry.n LIMIT ?3"
)
# ?1: from which byte on, ?2: these bytes, ?3: all the digits. Four bytes or more are found through an index.
IDS_BY_SHORT_ENDING = "SELECT id FROM record WHERE substr(id, ?1) = ?2 AND lower(hex(id)) LIKE '%' || ?3 LIMIT ?4"
IDS_BY_ENDING = IDS_BY_SHORT_ENDING.replace("WHERE", "WHERE substr(id, 13) = substr(?2, -4) AND")
