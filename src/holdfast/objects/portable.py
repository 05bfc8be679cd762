"""Which rows go with a checkpoint to another store. All that is named here, and nothing else.

Heads and sessions are not here: a bundle has them in a form of its own, without leases. Rows that keep expired records,
and log numbers, are a store's own business.
"""

from __future__ import annotations

from collections.abc import Callable

import ormsgpack

from holdfast.backends.port import STORE, RowKey
from holdfast.objects import holds, inbox
from holdfast.objects.bundle import RowEntry

# Of the LangGraph adapter: which checkpoint holds which of LangGraph's, and what tasks have written since.
LANGGRAPH_INDEX, LANGGRAPH_WRITES = "lgindex", "lgwrites"

# Rows of a tree.
OF_TREE: dict[str, Callable[[bytes, bytes], bytes]] = {
    holds.PIN: lambda key, _: key,
    inbox.INBOX: lambda key, _: key[-16:],
    LANGGRAPH_INDEX: lambda _, content: _first(content),
}
# Rows of the store.
OF_STORE: dict[str, Callable[[bytes, bytes], bytes]] = {
    holds.TAG: lambda _, content: _first(content),
    LANGGRAPH_WRITES: lambda _, content: _first(content),
}


def checkpoint_of(entry: RowEntry) -> bytes | None:
    """The checkpoint that a row is about; None if the row is of no kind that may be carried elsewhere."""
    about = (OF_STORE if entry.of_store else OF_TREE).get(entry.space)
    return about(entry.key, entry.content) if about else None


def takes_place_of(entry: RowEntry) -> bytes | None:
    """The key of the row that was there before, and that this one says the end of: a handoff that has been gone on from
    does not wait any more."""
    if entry.space != inbox.INBOX or entry.key[-17:-16] != inbox.DONE:
        return None
    return entry.key[:-17] + inbox.WAITING + entry.key[-16:]


def key_of(entry: RowEntry, tree: bytes) -> RowKey:
    return RowKey(entry.space, entry.key, STORE if entry.of_store else tree)


def _first(content: bytes) -> bytes:
    try:
        first = ormsgpack.unpackb(content)[0]
    except (ValueError, TypeError, IndexError, KeyError):
        return b""
    return first if type(first) is bytes else b""
