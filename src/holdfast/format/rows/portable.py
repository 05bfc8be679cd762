"""The rows that accompany a checkpoint to another store: those named here, and no others.

Heads and sessions are not here: a bundle has them in a form of its own, without leases. Rows that
keep expired records, and log numbers, are internal to a store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import ormsgpack

from holdfast.backends.port import STORE, RowKey
from holdfast.codec.codec import Codec
from holdfast.format.bundle.sections import RowEntry
from holdfast.format.rows import approval, head, hold, inbox, ledger, topic
from holdfast.format.rows.adapter import AdapterRows

# The ledger is about the world: it accompanies its tree, whichever checkpoints are alive. An
# approval accompanies its session in the same way (`session_of`).
OF_THE_WHOLE_TREE = b"tree"

# Rows of a tree.
OF_TREE: dict[str, Callable[[bytes, bytes], bytes]] = {
    ledger.LEDGER: lambda _key, _content: OF_THE_WHOLE_TREE,
    approval.APPROVAL: lambda _key, _content: OF_THE_WHOLE_TREE,
    hold.PIN: lambda key, _: key,
    hold.UNTIL: lambda key, _: key,
    inbox.INBOX: lambda key, _: key[-16:],
    topic.CONSUMED: lambda key, _: key[:16],
}
# Rows of the store.
OF_STORE: dict[str, Callable[[bytes, bytes], bytes]] = {
    hold.TAG: lambda _, content: first_of(content),
}


class PortableRows:
    """The portable rows: those of the core, and those that adapters have registered."""

    def __init__(self, adapters: Iterable[AdapterRows] = ()) -> None:
        indexed = [item for rows in adapters for item in rows.indexed]
        self._indexed = {item.space: item for item in indexed}
        self._of_index = {item.index_space for item in indexed}
        self._of_tree = OF_TREE | dict.fromkeys((item.index_space for item in indexed), _first_named)
        self._of_store = OF_STORE | dict.fromkeys((item.space for item in indexed), _first_named)
        self.spaces_of_tree, self.spaces_of_store = sorted(self._of_tree), sorted(self._of_store)

    def checkpoint_of(self, entry: RowEntry) -> bytes | None:
        """Return the checkpoint that a row is about; None if the row is not portable."""
        about = (self._of_store if entry.of_store else self._of_tree).get(entry.space)
        return about(entry.key, entry.content) if about else None

    def index_key_of(self, entry: RowEntry) -> bytes | None:
        """Return the key in an index for a row that does not name its checkpoint."""
        indexed = self._indexed.get(entry.space)
        return None if indexed is None else indexed.index_key(entry.key)

    def select_owned(self, of_tree: Iterable[RowEntry], early: Mapping[bytes, Sequence[RowEntry]]) -> list[RowEntry]:
        """Return the rows of `early` that belong to checkpoints of this tree, each with its checkpoint's id.

        `early` has the rows by their keys in an index.
        """
        found = []
        for entry in of_tree:
            if entry.space in self._of_index:
                for row in early.get(entry.key, ()):
                    content = [first_of(entry.content), *ormsgpack.unpackb(row.content)[1:]]
                    found.append(row._replace(content=ormsgpack.packb(content)))
        return found


def session_of(codec: Codec, entry: RowEntry) -> bytes | None:
    """Return the session that a row requires; None if it requires none."""
    if entry.space != approval.APPROVAL:
        return None
    return head.session_key(approval.session_of(codec, entry.content))


def takes_place_of(entry: RowEntry) -> bytes | None:
    """Return the key of the earlier row that this one ends.

    A handoff that an agent has continued from no longer waits.
    """
    if entry.space != inbox.INBOX or entry.key[-17:-16] != inbox.DONE:
        return None
    return entry.key[:-17] + inbox.WAITING + entry.key[-16:]


def key_of(entry: RowEntry, tree: bytes) -> RowKey:
    return RowKey(entry.space, entry.key, STORE if entry.of_store else tree)


def first_of(content: bytes) -> bytes:
    """Return the checkpoint that a row names first; empty if it names none."""
    try:
        first = ormsgpack.unpackb(content)[0]
    except (ValueError, TypeError, IndexError, KeyError):
        return b""
    return first if type(first) is bytes else b""


def _first_named(_key: bytes, content: bytes) -> bytes:
    return first_of(content)
