"""The sessions and row keys of threads, namespaces and LangGraph's checkpoint ids.

Names are any text. In a key each is preceded by its length, so that no name can run into the next
part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import ormsgpack

from holdfast.backends.port import STORE, Row, RowKey
from holdfast.errors import CorruptError
from holdfast.format.rows import head

# The index of LangGraph's checkpoints; the pending writes of tasks; the lists of a dev server.
INDEX, WRITES, SERVER = "lgindex", "lgwrites", "lgserver"
_NAME_FOLLOWS = b"\xff" * 4
_END, _COMPLEMENT = b"\xff", bytes(range(255, -1, -1))


class ThreadNamespace(NamedTuple):
    """A thread's namespace: one session."""

    thread: str
    ns: str

    @property
    def session(self) -> str:
        """Return `lg/thread` or, for a subgraph, `lg/thread/namespace`; a slash in a thread's name is %2F."""
        thread = self.thread.replace("%", "%25").replace("/", "%2F")
        return f"lg/{thread}/{self.ns}" if self.ns else f"lg/{thread}"


class IndexEntry(NamedTuple):
    """The index entry of one of LangGraph's checkpoints: its holdfast id."""

    key: RowKey
    place: ThreadNamespace
    id: str
    checkpoint: bytes
    parent: str | None
    run: str | None


def thread_prefix(thread: str) -> bytes:
    return _prefix_length(thread)


def place_prefix(place: ThreadNamespace) -> bytes:
    return _prefix_length(place.thread) + _prefix_length(place.ns)


def index_key(place: ThreadNamespace, id_: str) -> bytes:
    """Return the index key of a checkpoint.

    Keys are read in ascending order, and the newest is wanted first: so the bytes of the id are
    inverted, and an id comes after those that it is a prefix of.
    """
    return place_prefix(place) + head.session_key(id_).translate(_COMPLEMENT) + _END


def index_key_of_writes(key: bytes) -> bytes:
    """Return the index key of the checkpoint that these writes of a task belong to."""
    at = 0
    for _ in range(2):
        at += 4 + int.from_bytes(key[at : at + 4], "big")
    id_ = key[at + 4 : at + 4 + int.from_bytes(key[at : at + 4], "big")]
    return key[:at] + id_.translate(_COMPLEMENT) + _END


def checkpoint_prefix(place: ThreadNamespace, id_: str) -> bytes:
    return place_prefix(place) + _prefix_length(id_)


def writes_prefix(key: bytes) -> bytes:
    """Return the part of a key that the writes of one checkpoint share: `checkpoint_prefix` of it."""
    end = 0
    for _ in range(3):
        end += 4 + int.from_bytes(key[end : end + 4], "big")
    return key[:end]


def writes_key(place: ThreadNamespace, id_: str, task_id: str) -> RowKey:
    """Return the key of a task's writes, in the store's tree: they may precede the first checkpoint."""
    return RowKey(WRITES, checkpoint_prefix(place, id_) + head.session_key(task_id), STORE)


def task_of(key: bytes) -> tuple[ThreadNamespace, str, str]:
    """Return the place, the checkpoint and the task of the writes at this key."""
    thread, rest = _first(key)
    ns, rest = _first(rest)
    id_, task = _first(rest)
    return ThreadNamespace(thread, ns), id_, head.session_name(task)


def namespace_prefix(labels: Sequence[str]) -> bytes:
    """Return the part of a key that the items of a namespace share with those of the namespaces below it."""
    return b"".join(map(_prefix_length, labels))


def item_key(labels: Sequence[str], name: str) -> bytes:
    """Return the key of an item of `HoldfastStore`.

    No label is as long as the mark before the item's name says. So the items of a namespace come
    after all those of the namespaces below it.
    """
    return namespace_prefix(labels) + _NAME_FOLLOWS + head.session_key(name)


def end_of_items(labels: Sequence[str]) -> bytes:
    """Return a key after all items of a namespace, and before what follows.

    No text has its last byte.
    """
    return namespace_prefix(labels) + _NAME_FOLLOWS + _END


def item_of(key: bytes) -> tuple[tuple[str, ...], str]:
    """Return the namespace and the name of the item at this key."""
    labels: list[str] = []
    while not key.startswith(_NAME_FOLLOWS):
        label, key = _first(key)
        labels.append(label)
        if not key:
            raise CorruptError("the key of an item of a LangGraph store has no name: the store is damaged")
    return tuple(labels), head.session_name(key[4:])


def pack_entry(key: RowKey, checkpoint: bytes, parent: str | None, run: str | None) -> bytes:
    content = [checkpoint, *(None if name is None else head.session_key(name) for name in (parent, run))]
    return head.protect(key, ormsgpack.packb(content))


def unpack_entry(key: RowKey, row: Row) -> IndexEntry:
    try:
        thread, rest = _first(key.key)
        ns, rest = _first(rest)
        checkpoint, parent, run = ormsgpack.unpackb(head.content(key, row))
        names = [None if name is None else head.session_name(name) for name in (parent, run)]
        return IndexEntry(
            key, ThreadNamespace(thread, ns), head.session_name(rest[:-1].translate(_COMPLEMENT)), checkpoint, *names
        )
    except (ValueError, TypeError) as error:
        raise CorruptError(f"an entry of the LangGraph index can't be read ({error}): the store is damaged") from error


def _prefix_length(name: str) -> bytes:
    encoded = head.session_key(name)
    return len(encoded).to_bytes(4, "big") + encoded


def _first(key: bytes) -> tuple[str, bytes]:
    end = 4 + int.from_bytes(key[:4], "big")
    return head.session_name(key[4:end]), key[end:]
