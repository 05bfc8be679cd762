"""Hidden names: keyed hashes in place of the names of sessions, agents, tools and tags in row keys.

A key is hidden part by part, so that scans by prefix and in the order of ids work as they do on plain
stores. What is an id, a time or a number stays clear. Rows of a space that is not listed are hidden
as a whole; a scan by prefix then reads all of them.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.backends.port import RowKey
from holdfast.format.rows import approval, contract, delegation, head, hold, inbox, ledger, operation_log, run, topic
from holdfast.format.rows import imported_snapshot as imported
from holdfast.format.rows import restore_journal as restore
from holdfast.sealing import envelope
from holdfast.sealing.cipher import keyed_hash

HIDDEN_BYTES = 16
MAX_KNOWN = 16_384
_END = b"\xff" * 18  # after all items of a namespace


class BlindKey(bytes):
    """A text in place of the clear key of a row that can't be opened; `hidden` is the stored key."""

    hidden: bytes

    @classmethod
    def of(cls, hidden: bytes) -> BlindKey:
        made = cls(b"hidden " + hidden.hex().encode())
        made.hidden = hidden
        return made


class StoredName(NamedTuple):
    """The stored form of the key of a row, and what the envelope of the row is bound to and says."""

    key: RowKey
    place: bytes
    name: bytes  # the clear one


class Part(NamedTuple):
    """A part of a key: `size` bytes, or as many as the number in its first `size` bytes says, or the rest."""

    is_hidden: bool
    size: int = 0
    is_measured: bool = False


CLEAR, NAME = Part(False), Part(True)


def _name(width: int) -> Part:
    return Part(True, width, True)


_SIZED4, _ID = _name(4), Part(True, 16)
SPACES: dict[str, tuple[Part, ...]] = {
    **dict.fromkeys((head.EXPIRED, head.LOGS, head.GRAVES, hold.PIN, hold.UNTIL, operation_log.SPACE), (CLEAR,)),
    **dict.fromkeys((head.HEAD, head.SESSION, run.RUN, run.CALL, run.PROGRESS, hold.TAG, topic.TOPIC), (NAME,)),
    **dict.fromkeys((contract.CONTRACT, delegation.DELEGATION, delegation.WAIT), (NAME,)),
    ledger.LEDGER: (_ID,),  # of effects and approvals: hashes of names and arguments
    **dict.fromkeys((imported.SPACE, restore.SPACE), (NAME,)),
    inbox.INBOX: (_SIZED4, Part(False, 1), CLEAR),
    approval.APPROVAL: (Part(False, 1), _ID),
    run.DUE: (Part(False, 8), NAME),
    run.AWAITS: (_name(2), NAME),
    topic.GROUP: (_name(2), NAME),
    topic.DEAD: (_name(2), NAME),
    topic.TAKEN: (_ID, CLEAR),
    topic.CONSUMED: (Part(False, 16), _name(2), NAME),
    "lgindex": (_SIZED4, _SIZED4, CLEAR),
    "lgwrites": (_SIZED4, _SIZED4, Part(False, 4, True), NAME),
}
_NAME_FOLLOWS = b"\xff" * 4
_ITEMS = ("lgitem", "lgvectors")  # sized labels, four bytes ff, a name
ALL_SPACES = (*SPACES, *_ITEMS, "lgserver")  # of all rows that holdfast writes, but those of keys
_NAMED_TREES = (topic.GROUP, topic.DEAD)  # their trees are hashes of names that anybody can guess


class RowNames:
    """Hides the names of a store under a key of its own, and remembers what it has hidden."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._known: dict[tuple[str, bytes], bytes] = {}
        self._keys: dict[RowKey, StoredName] = {}

    def hide(self, purpose: str, name: bytes) -> bytes:
        """Return what stands for a name."""
        known = self._known.get((purpose, name))
        if known is None:
            known = keyed_hash(self._key, b"%c%b%b" % (len(purpose), purpose.encode(), name))[:HIDDEN_BYTES]
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[purpose, name] = known
        return known

    def key(self, key: RowKey) -> RowKey:
        """Return the key under which a row is stored."""
        return self.stored(key).key

    def stored(self, key: RowKey) -> StoredName:
        """Return the stored form of a key."""
        known = self._keys.get(key)
        if known is None:
            space, name, tree = key
            if isinstance(name, BlindKey):  # its tree is the stored one, too
                return _stored_name(RowKey(space, name.hidden, tree), key)
            known = _stored_name(RowKey(space, self.whole(space, name), self.tree(space, tree)), key)
            if len(self._keys) >= MAX_KNOWN:
                self._keys.clear()
            self._keys[key] = known
        return known

    def tree(self, space: str, tree: bytes) -> bytes:
        return self.hide("tree", tree) if space in _NAMED_TREES and tree else tree

    def is_hidden_tree(self, space: str) -> bool:
        """Return whether the trees of these rows are hidden: then the clear name ends with the tree."""
        return space in _NAMED_TREES

    def whole(self, space: str, key: bytes) -> bytes:
        """Return the stored key of a row."""
        if isinstance(key, BlindKey):
            return key.hidden
        if space in _ITEMS:
            hidden, left = self._item(space, key)
        else:
            hidden, left = self._parts(space, key, is_whole=True)
        return hidden if not left else b"\xff" + self.hide(space, key)

    def cursor(self, space: str, key: bytes) -> bytes:
        """Return the stored form of a key that a scan begins after, which may be no row's."""
        if isinstance(key, BlindKey):
            return key.hidden
        hidden, left = self._item(space, key) if space in _ITEMS else self._parts(space, key, is_whole=True)
        return self.hide_prefix(space, key)[0] if left else hidden

    def hide_prefix(self, space: str, key: bytes) -> tuple[bytes, bool]:
        """Return the stored form of the beginning of a key, and whether it says all that the beginning says."""
        hidden, left = self._item(space, key) if space in _ITEMS else self._parts(space, key, is_whole=False)
        return hidden, not left

    def _parts(self, space: str, key: bytes, *, is_whole: bool) -> tuple[bytes, bytes]:
        """Return the stored form of the parts of a key, and what is left: a part that may not be whole."""
        stored: list[bytes] = []
        at = 0
        for part in SPACES.get(space, (NAME,)):
            if part.size == 0:  # the rest
                if part.is_hidden and not is_whole:
                    return b"".join(stored), key[at:]
                end = len(key)
            else:
                end = at + part.size
                if part.is_measured and end <= len(key):
                    end += int.from_bytes(key[at:end], "big")
                if end > len(key):  # it is cut off
                    if is_whole:
                        return b"", key
                    if part.is_hidden:
                        return b"".join(stored), key[at:]
                    end = len(key)
            stored.append(self.hide(space, key[at:end]) if part.is_hidden else key[at:end])
            at = end
        return b"".join(stored), key[at:]

    def _item(self, space: str, key: bytes) -> tuple[bytes, bytes]:
        """Do the same for the key of an item: its labels, and its name behind a mark."""
        stored: list[bytes] = []
        at = 0
        while at + 4 <= len(key):
            if key[at : at + 4] == _NAME_FOLLOWS:
                name = key[at + 4 :]
                stored.append(_END if name == b"\xff" else b"\xff" + self.hide(space, name))
                return b"".join(stored), b""
            end = at + 4 + int.from_bytes(key[at : at + 4], "big")
            if end > len(key):
                break
            stored.append(b"\0" + self.hide(space, key[at:end]))
            at = end
        return b"".join(stored), key[at:]


def _stored_name(hidden: RowKey, clear: RowKey) -> StoredName:
    name = clear.key if hidden.tree == clear.tree else clear.key + clear.tree
    return StoredName(hidden, envelope.row_place(*hidden), name)
