"""The keys of a sealed store: one row that the key ring protects, and a row for each tree.

    keys  "store"  [1, store id, [[name of a ring's key, wrapped], …], epochs, is_resealing] and a CRC-32
    keys  kid      [1, tree, epoch, nonce and wrapped key] and a CRC-32

The wrapped content of the first row is `[1, names, addresses, {epoch: root}, {epoch: key of blobs}]`: 32
random bytes each. The key that hides names and the one for addresses of blobs last as long as the store.
From the root of an epoch come the key that wraps the keys of trees, the key of the store's own rows, and
the one that keys of blobs derive from. Of an epoch whose root was destroyed, only the last one is left.

`holdfast rekey` wraps the first row again. `holdfast rekey --data` begins an epoch; the newest one is
the current one. What a store of one epoch does not need is left out of its rows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import ormsgpack

from holdfast.backends.port import STORE, Row, RowKey, RowWrite
from holdfast.errors import CorruptError, KeyMissingError, NewerVersionError, TamperedError
from holdfast.format.rows import head
from holdfast.sealing.cipher import KEY_BYTES, NONCE_BYTES, decrypt, derive_key, keyed_hash, new_cipher
from holdfast.sealing.envelope import (
    BLOB,
    KID_BYTES,
    RECORD,
    ROW,
    SEGMENT,
    SUITE,
    TREE_KEY,
    SealScope,
    tampered_error,
)
from holdfast.sealing.row_names import RowNames

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from holdfast.sealing.key_ring import KeyRing

SPACE = "keys"
MARKER = RowKey(SPACE, b"store", STORE)
VERSION = 1
PURPOSE = "store key"
BLOBS = b"blobs"
_OF_STORE = bytes(4)  # begins the id of an epoch's own key; those of trees begin with a bit that is set


class SealingKey(NamedTuple):
    """A key that data is sealed under, and its id in envelopes."""

    kid: bytes
    cipher: AESGCM


@dataclass(frozen=True, slots=True)
class Marker:
    """The row that says that a store is sealed."""

    store: bytes
    wrapped: tuple[tuple[str, bytes], ...]
    epochs: tuple[int, ...] = (1,)  # that have a root
    is_resealing: bool = False  # data is being sealed again, under the newest epoch

    def pack(self) -> bytes:
        fields: list[object] = [VERSION, self.store, [list(entry) for entry in self.wrapped]]
        if self.epochs != (1,) or self.is_resealing:
            fields += [list(self.epochs), self.is_resealing]
        return head.protect(MARKER, ormsgpack.packb(fields))

    @classmethod
    def unpack(cls, row: Row) -> Marker:
        try:
            version, store, wrapped, *more = ormsgpack.unpackb(head.content(MARKER, row))
            epochs, is_resealing = more[:2] if len(more) > 1 else ([1], False)
            entries = tuple((str(name), bytes(data)) for name, data in wrapped)
            found = cls(store, entries, tuple(map(int, epochs)), bool(is_resealing))
        except (ValueError, TypeError) as error:
            raise CorruptError(
                "the row with the store's key is damaged: put it back from `holdfast keys export`"
            ) from error
        if version > VERSION:
            raise NewerVersionError("the store was sealed by a newer holdfast: upgrade to read it")
        return found

    @property
    def context(self) -> dict[str, str]:
        """What the wrapped key is bound to."""
        return {"store": self.store.hex(), "tenant": bytes(16).hex(), "purpose": PURPOSE}


@dataclass(frozen=True, slots=True)
class Secrets:
    """What the ring protects."""

    names: bytes
    addresses: bytes
    roots: dict[int, bytes]
    blobs: dict[int, bytes] = field(default_factory=dict)  # of epochs without a root

    @classmethod
    def new(cls) -> Secrets:
        return cls(os.urandom(KEY_BYTES), os.urandom(KEY_BYTES), {1: os.urandom(KEY_BYTES)})

    def with_new_epoch(self) -> Secrets:
        epoch = max(*self.roots, *self.blobs, 0) + 1
        return replace(self, roots=self.roots | {epoch: os.urandom(KEY_BYTES)})

    def without_old_epochs(self) -> Secrets:
        """Return these without the roots of older epochs. The keys of their blobs stay."""
        newest = max(self.roots)
        blobs = {epoch: derive_key(root, BLOBS) for epoch, root in self.roots.items() if epoch != newest}
        return replace(self, roots={newest: self.roots[newest]}, blobs=self.blobs | blobs)

    def merged_with(self, other: Secrets) -> Secrets:
        """Return these with the roots of other secrets of the same store."""
        roots = other.roots | self.roots
        blobs = {epoch: key for epoch, key in (other.blobs | self.blobs).items() if epoch not in roots}
        return replace(self, roots=roots, blobs=blobs)

    def pack(self) -> bytes:
        fields = [VERSION, self.names, self.addresses, self.roots, *([self.blobs] if self.blobs else [])]
        return ormsgpack.packb(fields, option=ormsgpack.OPT_NON_STR_KEYS)

    @classmethod
    def unpack(cls, content: bytes) -> Secrets:
        try:
            version, names, addresses, roots, *more = ormsgpack.unpackb(content, option=ormsgpack.OPT_NON_STR_KEYS)
            blobs = more[0] if more else {}
            keys = (names, addresses, *roots.values(), *blobs.values())
            is_sound = bool(roots) and all(len(key) == KEY_BYTES for key in keys)
        except (ValueError, TypeError, AttributeError):
            version, is_sound = VERSION, False
        if version > VERSION:
            raise NewerVersionError("the store's key was written by a newer holdfast: upgrade to read the store")
        if not is_sound:
            raise TamperedError("what the key ring unwrapped is not the key of a store: it is another key's, or forged")
        return cls(names, addresses, roots, blobs)

    def __repr__(self) -> str:
        return f"<Secrets of {len(self.roots)} epochs>"


def wrap(secrets: Secrets, store: bytes, ring: KeyRing, *, is_resealing: bool = False) -> Marker:
    """Return the row of the store's key, wrapped by the primary key of the ring alone."""
    empty = Marker(store, (), tuple(sorted(secrets.roots)), is_resealing)
    return replace(empty, wrapped=((ring.primary, ring.wrap(secrets.pack(), empty.context)),))


def unwrap(marker: Marker, ring: KeyRing) -> Secrets:
    """Return the keys of the store. The ring must have one of the keys that wrapped them."""
    for name, wrapped in marker.wrapped:
        if name in ring.names:
            return Secrets.unpack(ring.unwrap(name, wrapped, marker.context))
    names = ", ".join(repr(name) for name, _ in marker.wrapped) or "no key at all"
    raise KeyMissingError(
        f"the store's key is protected by {names:.300}, and the key ring has {', '.join(ring.names)}. Add the key to "
        "the ring: without it the store can't be read"
    )


class EpochKeys:
    """The keys that come from the root of an epoch."""

    def __init__(self, epoch: int, root: bytes) -> None:
        self.epoch = epoch
        kid = _OF_STORE + epoch.to_bytes(4, "big")
        self.wrapping = new_cipher(derive_key(root, b"tree keys"))
        self.rows = SealingKey(kid, new_cipher(derive_key(root, b"rows")))
        self.kid = kid
        self.blobs = derive_key(root, BLOBS)

    def blob_cipher(self, hash_: bytes) -> AESGCM:
        """Return the key of a blob: it follows from its content, which only its readers know."""
        return new_cipher(keyed_hash(self.blobs, hash_))


class StoreKeys:
    """All keys of an open store. Threads may share one."""

    def __init__(self, marker: Marker, version: int, secrets: Secrets) -> None:
        self.marker = marker
        self.version = version  # of its row
        self.secrets = secrets
        self.prefix = SealScope(marker.store).prefix
        self.record_scope, self.row_scope = self.prefix + RECORD, self.prefix + ROW
        self.segment_scope, self.blob_scope = self.prefix + SEGMENT, self.prefix + BLOB
        self.names = RowNames(derive_key(secrets.names, b"names"))
        self._trees = derive_key(secrets.names, b"trees")
        self._addresses = derive_key(secrets.addresses, b"addresses")
        self.epochs = {epoch: EpochKeys(epoch, root) for epoch, root in secrets.roots.items()}
        self.current = self.epochs[max(self.epochs)]

    def address(self, hash_: bytes) -> bytes:
        """Return the address of a blob: that of another store is another one."""
        return keyed_hash(self._addresses, hash_)

    def of_store(self, kid: bytes) -> EpochKeys | None:
        """Return the keys of the epoch that a key id names; None if it is not known here."""
        return self.epochs.get(int.from_bytes(kid[4:], "big"))

    def blob_cipher(self, kid: bytes, hash_: bytes) -> AESGCM | None:
        """Return the key of a blob that is sealed under a key of this id; None if it is not known here."""
        epoch = int.from_bytes(kid[4:], "big") if is_of_store(kid) else 0
        blobs = self.epochs[epoch].blobs if epoch in self.epochs else self.secrets.blobs.get(epoch)
        return None if blobs is None else new_cipher(keyed_hash(blobs, hash_))

    def kid(self, tree: bytes, epoch: int) -> bytes:
        """Return the id of the key of a tree in an epoch."""
        hashed = keyed_hash(self._trees, epoch.to_bytes(4, "big") + tree)[:KID_BYTES]
        return bytes((hashed[0] | 0x80,)) + hashed[1:]

    def kids(self, tree: bytes) -> list[bytes]:
        """Return the ids that the key of a tree may have, that of the current epoch first."""
        return [self.kid(tree, epoch) for epoch in sorted(self.epochs, reverse=True)]

    def new_tree_key(self, tree: bytes) -> tuple[SealingKey, RowWrite]:
        """Return a new key for a tree in the current epoch, and the write of its row."""
        epoch = self.current
        kid, raw, nonce = self.kid(tree, epoch.epoch), os.urandom(KEY_BYTES), os.urandom(NONCE_BYTES)
        wrapped = nonce + epoch.wrapping.encrypt(nonce, raw, self._bind(kid, tree, epoch.epoch))
        key = tree_key(kid)
        value = head.protect(key, ormsgpack.packb([VERSION, tree, epoch.epoch, wrapped]))
        return SealingKey(kid, new_cipher(raw)), RowWrite(key, value, 0)

    def open_tree_key(self, kid: bytes, row: Row) -> tuple[SealingKey, bytes, int] | None:
        """Return a key, its tree and its epoch, of its row; None if the epoch is not known here."""
        key = tree_key(kid)
        subject = f"the row of key {kid.hex()}"
        try:
            version, tree, epoch, wrapped, *_ = ormsgpack.unpackb(head.content(key, row))
            is_sound = isinstance(tree, bytes) and isinstance(epoch, int) and isinstance(wrapped, bytes)
        except (ValueError, TypeError) as error:
            raise CorruptError(f"{subject} is damaged: put it back from `holdfast keys export`") from error
        if version > VERSION:
            raise NewerVersionError(f"{subject} was written by a newer holdfast: upgrade to read it")
        if not is_sound or len(wrapped) != NONCE_BYTES + KEY_BYTES + 16:
            raise tampered_error(subject)
        of_epoch = self.epochs.get(epoch)
        if of_epoch is None:
            return None
        raw = decrypt(of_epoch.wrapping, wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], self._bind(kid, tree, epoch))
        if raw is None or kid != self.kid(tree, epoch):
            raise tampered_error(subject)
        return SealingKey(kid, new_cipher(raw)), tree, epoch

    def _bind(self, kid: bytes, tree: bytes, epoch: int) -> bytes:
        return self.prefix + TREE_KEY + SUITE + kid + epoch.to_bytes(4, "big") + bytes((len(tree),)) + tree


def tree_key(kid: bytes) -> RowKey:
    """Return the key of the row of a tree's key."""
    return RowKey(SPACE, kid, STORE)


def stated_tree(row: Row) -> tuple[bytes, int]:
    """Return the tree and the epoch that the row of a tree's key states, unchecked: for people to read."""
    try:
        _, tree, epoch, *_ = ormsgpack.unpackb(row.value[:-4])
        return bytes(tree), int(epoch)
    except (ValueError, TypeError):
        return row.value, 0  # damaged: `verify` finds it


def is_of_store(kid: bytes) -> bool:
    """Return whether it is the id of an epoch's own key, not of a tree's."""
    return kid[:4] == _OF_STORE


def key_missing_error(kid: bytes, subject: str) -> KeyMissingError:
    return KeyMissingError(
        f"{subject} is sealed under key {kid.hex()}, which is not among the store's key rows: they were removed, or "
        "are older. Put them back with `holdfast keys import` of an export. Nothing was changed"
    )
