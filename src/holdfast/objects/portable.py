"""Which rows go with a checkpoint to another store. All that is named here, and nothing else.

Heads and sessions are not here: a bundle has them in a form of its own, without leases. Rows that keep expired records,
and log numbers, are a store's own business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import ormsgpack

from holdfast.backends.port import STORE, RowKey
from holdfast.codec.codec import Codec
from holdfast.objects import approvals, holds, inbox, ledger, rows
from holdfast.objects.bundle import RowEntry

# Of the LangGraph adapter: which checkpoint holds which of LangGraph's, and what tasks have written since.
LANGGRAPH_INDEX, LANGGRAPH_WRITES = "lgindex", "lgwrites"
TURNED, END = bytes(range(255, -1, -1)), b"\xff"  # how the index has an id, so that the newest comes first

# What the ledger says is about the world: it goes with its tree, whichever checkpoints of that are alive. An approval goes
# with its session in the same way (`session_of`).
OF_THE_WHOLE_TREE = b"tree"

# Rows of a tree.
OF_TREE: dict[str, Callable[[bytes, bytes], bytes]] = {
    ledger.LEDGER: lambda _key, _content: OF_THE_WHOLE_TREE,
    approvals.APPROVAL: lambda _key, _content: OF_THE_WHOLE_TREE,
    holds.PIN: lambda key, _: key,
    holds.UNTIL: lambda key, _: key,
    inbox.INBOX: lambda key, _: key[-16:],
    LANGGRAPH_INDEX: lambda _, content: first_of(content),
}
# Rows of the store.
OF_STORE: dict[str, Callable[[bytes, bytes], bytes]] = {
    holds.TAG: lambda _, content: first_of(content),
    LANGGRAPH_WRITES: lambda _, content: first_of(content),
}


def checkpoint_of(entry: RowEntry) -> bytes | None:
    """The checkpoint that a row is about; None if the row is of no kind that may be carried elsewhere."""
    about = (OF_STORE if entry.of_store else OF_TREE).get(entry.space)
    return about(entry.key, entry.content) if about else None


def session_of(codec: Codec, entry: RowEntry) -> bytes | None:
    """The session without which a row goes nowhere; None if there is no such."""
    if entry.space != approvals.APPROVAL:
        return None
    return rows.session_key(approvals.session_of(codec, entry.content))


def owned(of_tree: Iterable[RowEntry], early: Mapping[bytes, Sequence[RowEntry]]) -> list[RowEntry]:
    """The rows of `early` that are about checkpoints of this tree, saying so. What a LangGraph task writes before its
    checkpoint is there can't name it: the index, which has the same thread, namespace and LangGraph id, does."""
    found = []
    for entry in of_tree:
        if entry.space == LANGGRAPH_INDEX:
            for row in early.get(entry.key, ()):
                content = [first_of(entry.content), *ormsgpack.unpackb(row.content)[1:]]
                found.append(row._replace(content=ormsgpack.packb(content)))
    return found


def index_key_of_writes(key: bytes) -> bytes:
    """Where the index has the checkpoint that these writes of a task belong to. A key of theirs begins with thread,
    namespace and id, each after its length; the index has the id's bytes turned around, and an end."""
    at = 0
    for _ in range(2):
        at += 4 + int.from_bytes(key[at : at + 4], "big")
    id_ = key[at + 4 : at + 4 + int.from_bytes(key[at : at + 4], "big")]
    return key[:at] + id_.translate(TURNED) + END


def takes_place_of(entry: RowEntry) -> bytes | None:
    """The key of the row that was there before, and that this one says the end of: a handoff that has been gone on from
    does not wait any more."""
    if entry.space != inbox.INBOX or entry.key[-17:-16] != inbox.DONE:
        return None
    return entry.key[:-17] + inbox.WAITING + entry.key[-16:]


def key_of(entry: RowEntry, tree: bytes) -> RowKey:
    return RowKey(entry.space, entry.key, STORE if entry.of_store else tree)


def first_of(content: bytes) -> bytes:
    """The checkpoint that a row names first; empty if it names none."""
    try:
        first = ormsgpack.unpackb(content)[0]
    except (ValueError, TypeError, IndexError, KeyError):
        return b""
    return first if type(first) is bytes else b""
