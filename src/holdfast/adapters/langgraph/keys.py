"""How threads, namespaces and LangGraph's checkpoint ids become sessions and keys of rows.

Names are any text. In a key each is preceded by its length, so that no name can reach into another's place.
"""

from __future__ import annotations

from typing import NamedTuple

import ormsgpack

from holdfast.backends.port import STORE, Row, RowKey
from holdfast.errors import CorruptError
from holdfast.objects import portable, rows

INDEX, WRITES = portable.LANGGRAPH_INDEX, portable.LANGGRAPH_WRITES
_END, _COMPLEMENT = portable.END, portable.TURNED


class Place(NamedTuple):
    """A thread's namespace: what one session holds."""

    thread: str
    ns: str

    @property
    def session(self) -> str:
        """`lg/thread` and, of a subgraph, `lg/thread/namespace`. A slash in a thread's name is written %2F."""
        thread = self.thread.replace("%", "%25").replace("/", "%2F")
        return f"lg/{thread}/{self.ns}" if self.ns else f"lg/{thread}"


class Entry(NamedTuple):
    """What the index says of one of LangGraph's checkpoints: under which id holdfast keeps it."""

    key: RowKey
    place: Place
    id: str
    checkpoint: bytes
    parent: str | None
    run: str | None


def of_thread(thread: str) -> bytes:
    return _measured(thread)


def of_place(place: Place) -> bytes:
    return _measured(place.thread) + _measured(place.ns)


def index_key(place: Place, id_: str) -> bytes:
    """Where the index has a checkpoint. Keys are read in ascending order, and the newest is wanted first: so the bytes
    of the id are turned around, and an id comes after those that begin with it."""
    return of_place(place) + rows.session_key(id_).translate(_COMPLEMENT) + _END


def of_writes(place: Place, id_: str) -> bytes:
    return of_place(place) + _measured(id_)


def writes_prefix(key: bytes) -> bytes:
    """The part of a key that the writes of one checkpoint share: `of_writes` of it."""
    end = 0
    for _ in range(3):
        end += 4 + int.from_bytes(key[end : end + 4], "big")
    return key[:end]


def writes_key(place: Place, id_: str, task_id: str) -> RowKey:
    """Where the writes of a task are. In the store's tree: they may come before the first checkpoint does."""
    return RowKey(WRITES, of_writes(place, id_) + rows.session_key(task_id), STORE)


def task_of(key: bytes) -> tuple[Place, str, str]:
    """The place, the checkpoint and the task of the writes at this key."""
    thread, rest = _first(key)
    ns, rest = _first(rest)
    id_, task = _first(rest)
    return Place(thread, ns), id_, rows.session_name(task)


def pack_entry(key: RowKey, checkpoint: bytes, parent: str | None, run: str | None) -> bytes:
    content = [checkpoint, *(None if name is None else rows.session_key(name) for name in (parent, run))]
    return rows.protect(key, ormsgpack.packb(content))


def unpack_entry(key: RowKey, row: Row) -> Entry:
    try:
        thread, rest = _first(key.key)
        ns, rest = _first(rest)
        checkpoint, parent, run = ormsgpack.unpackb(rows.content(key, row))
        names = [None if name is None else rows.session_name(name) for name in (parent, run)]
        return Entry(key, Place(thread, ns), rows.session_name(rest[:-1].translate(_COMPLEMENT)), checkpoint, *names)
    except (ValueError, TypeError) as error:
        raise CorruptError(f"an entry of the LangGraph index can't be read ({error}): the store is damaged") from error


def _measured(name: str) -> bytes:
    encoded = rows.session_key(name)
    return len(encoded).to_bytes(4, "big") + encoded


def _first(key: bytes) -> tuple[str, bytes]:
    end = 4 + int.from_bytes(key[:4], "big")
    return rows.session_name(key[4:end]), key[end:]
