"""Rows of the LangGraph adapter that stand beside checkpoints which are gone, and what has prolonged a time to live that is
over: gc removes them.

An entry of the index is left over once its checkpoint has expired for good. What tasks have written goes with the entry of its
thread, namespace and LangGraph id; without an entry, it may have come before its checkpoint, and stays if it names none.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.backends.port import STORE, Commit, CommitConflict, Row, RowKey, RowWrite
from holdfast.objects import holds, portable, record, rows
from holdfast.operations.services import Services

PAGE = 500
Rows = list[tuple[RowKey, Row]]


async def forget(services: Services) -> None:
    now, prolonged = services.now_us(), await services.backend.scan(holds.UNTIL)
    await _remove(services, [(key, row) for key, row in prolonged if holds.unpack_until(key, row) <= now])
    index = await services.backend.scan(portable.LANGGRAPH_INDEX)
    gone = await _gone(services, {_checkpoint(key, row) for key, row in index})
    dead = [(key, row) for key, row in index if _checkpoint(key, row) in gone]
    alive_keys = {key.key for key, row in index if _checkpoint(key, row) not in gone}
    dead_keys = {key.key for key, _ in dead} - alive_keys
    await _remove(services, dead)
    after: bytes | None = None
    while page := await services.backend.scan(portable.LANGGRAPH_WRITES, tree=STORE, after=after, limit=PAGE):
        await _remove(services, await _left_over(services, page, alive_keys, dead_keys))
        after = page[-1][0].key


async def _left_over(services: Services, page: Rows, alive: set[bytes], dead: set[bytes]) -> Rows:
    unknown: Rows = []
    found: Rows = []
    for key, row in page:
        entry = portable.index_key_of_writes(key.key)
        if entry in dead:
            found.append((key, row))
        elif entry not in alive and _checkpoint(key, row):
            unknown.append((key, row))
    gone = await _gone(services, {_checkpoint(key, row) for key, row in unknown})
    return found + [(key, row) for key, row in unknown if _checkpoint(key, row) in gone]


def _checkpoint(key: RowKey, row: Row) -> bytes:
    return portable.first_of(rows.content(key, row))


async def _gone(services: Services, checkpoints: Iterable[bytes]) -> set[bytes]:
    """Those that have expired for good: whose expiry could be undone is not among them."""
    wanted = [one for one in checkpoints if one]
    gone: set[bytes] = set()
    for start in range(0, len(wanted), PAGE):
        asked = wanted[start : start + PAGE]
        for id_, found in zip(asked, await services.backend.records(asked), strict=True):
            if found is None:
                gone.add(id_)
                continue
            stored = record.unpack(services.codec, found.data, expected_id=id_)
            if stored.is_tombstone:
                [undoable] = await services.backend.rows([RowKey(rows.EXPIRED, id_, stored.tree)])
                if undoable is None:
                    gone.add(id_)
    return gone


async def _remove(services: Services, found: Rows) -> None:
    """If they are still as they were found: whoever has put one again keeps it."""
    by_tree: dict[bytes, list[RowWrite]] = {}
    for key, row in found:
        by_tree.setdefault(key.tree, []).append(RowWrite(key, None, row.version))
    for tree, writes in by_tree.items():
        try:
            await services.backend.commit(Commit(tree=tree, rows=writes))
        except CommitConflict:
            for write in writes:
                try:
                    await services.backend.commit(Commit(tree=tree, rows=[write]))
                except CommitConflict:
                    continue
