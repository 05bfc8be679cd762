"""An open sealed store: its keys, unwrapped, and what its bridges remember together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from holdfast.backends.bridge.base import Bridge
from holdfast.backends.port import ABSENT, STORE, Commit, CommitConflict, RowKey, RowWrite
from holdfast.errors import HoldfastError, PlaintextError
from holdfast.sealing import envelope, store_keys
from holdfast.sealing.cipher import new_cipher
from holdfast.sealing.row_names import RowNames
from holdfast.sealing.store_keys import MARKER, Marker, SealingKey, Secrets, StoreKeys, is_of_store

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from holdfast.sealing.key_ring import KeyRing

OPENING = b"\xffkeys"  # the key of a lock within this process; no session has it
MAX_KEYS = 16_384  # of trees, in memory
MAX_HEADS = 16_384
KEYS_AT_ONCE = 256
STORE_ID_BYTES = 16


class OpenStore:
    """The keys and memory of a sealed store, for all bridges of a client. Threads may share one."""

    def __init__(self, ring: KeyRing) -> None:
        new_cipher(bytes(32))  # without the package for it, nothing is opened
        self.ring = ring
        self.keys: StoreKeys | None = None
        self.ciphers: dict[bytes, AESGCM] = {}  # by the ids of keys
        self._trees: dict[bytes, tuple[int, SealingKey]] = {}  # of each tree: the newest epoch seen, and its key
        self._refused: dict[bytes, HoldfastError] = {}  # keys whose rows can't be opened
        self._doubtful: set[bytes] = set()  # trees whose key may have been written by a commit that was refused
        self._heads: dict[RowKey, tuple[bytes, bytes]] = {}  # the clear and the stored value that were last seen

    @property
    def known_keys(self) -> StoreKeys:
        """Return the keys, once the store is open."""
        assert self.keys is not None
        return self.keys

    @property
    def names(self) -> RowNames:
        return self.known_keys.names

    # -- opening -----------------------------------------------------------------------------------------------------

    async def open(self, inner: Bridge) -> StoreKeys:
        """Return the keys of the store; the first client of an empty store makes them."""
        async with inner.lock(OPENING):
            if self.keys is None:
                for _ in range(2):
                    found = await self._read(inner) or await self._make(inner)
                    if found is not None:
                        self.keys = found
                        break
            assert self.keys is not None, "the row of the store's key was removed while it was read"
            return self.keys

    async def reload(self, inner: Bridge) -> StoreKeys:
        """Read the keys of the store again: another process may have begun an epoch."""
        found = await self._read(inner)
        if found is not None:
            if self.keys is not None and found.marker.store != self.keys.marker.store:
                raise envelope.tampered_error("the row of the store's key")
            if self.keys is not None and not self.keys.epochs.keys() <= found.epochs.keys():
                self.ciphers.clear()  # of a destroyed epoch, too
                self._trees.clear()
            self.keys = found
        assert self.keys is not None
        return self.keys

    async def _read(self, inner: Bridge) -> StoreKeys | None:
        [row] = await inner.rows([MARKER])
        if row is None:
            return None
        marker = Marker.unpack(row)
        secrets = await inner.run_in_thread(lambda: store_keys.unwrap(marker, self.ring))
        return StoreKeys(marker, row.version, secrets)

    async def _make(self, inner: Bridge) -> StoreKeys | None:
        """Seal an empty store; return None if another process was first."""
        if not await is_empty(inner):
            if (await inner.rows([MARKER]))[0] is not None:
                return None
            raise PlaintextError(
                "this store is not sealed, and keys were given for it: nothing was read. `holdfast encrypt` copies it "
                "into a sealed one. If it was sealed, the row of its key was removed: put it back from `holdfast keys "
                "export`"
            )
        secrets, store = Secrets.new(), os.urandom(STORE_ID_BYTES)
        marker = await inner.run_in_thread(lambda: store_keys.wrap(secrets, store, self.ring))
        try:
            await inner.commit(Commit(STORE, rows=[RowWrite(MARKER, marker.pack(), ABSENT)]))
        except CommitConflict:
            return None
        return StoreKeys(marker, 1, secrets)

    # -- keys of trees -----------------------------------------------------------------------------------------------

    def known_key(self, tree: bytes) -> SealingKey | None:
        """Return the key that new data of a tree is sealed under, if it is known."""
        found = self._trees.get(tree)
        return None if found is None else found[1]

    def is_new(self, tree: bytes) -> bool:
        """Return whether a commit may bring the key of this tree without a look into the store."""
        return tree not in self._doubtful

    def mark_doubtful(self, tree: bytes) -> None:
        if len(self._doubtful) >= MAX_KEYS:
            self._doubtful.clear()
        self._doubtful.add(tree)

    def learn(self, tree: bytes, key: SealingKey, epoch: int | None = None) -> None:
        """Remember the key of a tree, unless a newer one is known."""
        assert self.keys is not None
        epoch = self.keys.current.epoch if epoch is None else epoch
        known = self._trees.get(tree)
        if known is None or known[0] <= epoch:
            if len(self._trees) >= MAX_KEYS:
                self._trees.clear()
            self._trees[tree] = epoch, key
        if len(self.ciphers) >= MAX_KEYS:
            self.ciphers.clear()
        self.ciphers[key.kid] = key.cipher

    async def find_tree_key(self, inner: Bridge, tree: bytes) -> SealingKey | None:
        """Return the newest key of a tree that is in the store; None if it has none yet."""
        keys = self.keys
        assert keys is not None
        await self.load(inner, keys.kids(tree))
        for epoch in keys.epochs:  # known as a key, perhaps, but no more as that of the tree
            cipher = self.ciphers.get(kid := keys.kid(tree, epoch))
            if cipher is not None:
                self.learn(tree, SealingKey(kid, cipher), epoch)
        found = self.known_key(tree)
        if found is not None:
            self._doubtful.discard(tree)
        return found

    async def load(self, inner: Bridge, kids: Iterable[bytes | None]) -> None:
        """Read the rows of these keys, unless they are known. Missing ones are left out."""
        ciphers = self.ciphers
        wanted = [kid for kid in dict.fromkeys(kids) if kid is not None and kid not in ciphers]
        if not wanted:
            return
        keys = self.keys
        assert keys is not None
        for kid in wanted:
            if is_of_store(kid):
                of_epoch = keys.of_store(kid) or (await self.reload(inner)).of_store(kid)
                if of_epoch is not None:
                    ciphers[kid] = of_epoch.rows.cipher
        of_trees = [kid for kid in wanted if not is_of_store(kid)]
        for start in range(0, len(of_trees), KEYS_AT_ONCE):
            await self._load(inner, of_trees[start : start + KEYS_AT_ONCE])

    async def _load(self, inner: Bridge, kids: Sequence[bytes]) -> None:
        found = await inner.rows([store_keys.tree_key(kid) for kid in kids])
        keys = self.keys
        assert keys is not None
        for kid, row in zip(kids, found, strict=True):
            if row is None:
                continue
            try:
                opened = keys.open_tree_key(kid, row)
                if opened is None:
                    keys = await self.reload(inner)
                    opened = keys.open_tree_key(kid, row)
            except HoldfastError as error:
                self._refused[kid] = error  # raised where this key is needed: the others are not concerned
                continue
            if opened is not None:
                key, tree, epoch = opened
                self.learn(tree, key, epoch)

    def cipher(self, kid: bytes, subject: str) -> AESGCM:
        """Return the key of that id, which was loaded if it is there."""
        known = self.ciphers.get(kid)
        if known is not None:
            return known
        refused = self._refused.pop(kid, None)
        raise store_keys.key_missing_error(kid, subject) if refused is None else refused

    async def open_blob(self, inner: Bridge, hash_: bytes, address: bytes, data: bytes) -> bytes:
        subject = f"the blob {hash_.hex()[:16]}"
        kid = envelope.kid_of(data, subject)
        assert self.keys is not None
        cipher = self.keys.blob_cipher(kid, hash_) or (await self.reload(inner)).blob_cipher(kid, hash_)
        if cipher is None:
            raise store_keys.key_missing_error(kid, subject)
        return envelope.unseal(cipher, self.keys.blob_scope, address, data, subject)[1]

    # -- heads -------------------------------------------------------------------------------------------------------

    def remember_head(self, key: RowKey, value: bytes, stored: bytes) -> None:
        """Remember the stored form of the row of a head, which the next save compares."""
        heads = self._heads
        if len(heads) >= MAX_HEADS:
            for old in list(heads)[: MAX_HEADS // 4]:
                heads.pop(old, None)
        heads[key] = value, stored

    def stored_heads(self, rows: Sequence[RowWrite]) -> dict[int, bytes] | None:
        """Return the stored values that these writes compare, by their places; None if one is not known."""
        found = {}
        for at, write in enumerate(rows):
            if write.was is not None:
                clear, stored = self._heads.get(write.key, (None, b""))
                if clear != write.was:
                    return None
                found[at] = stored
        return found


async def is_empty(inner: Bridge) -> bool:
    """Return whether nothing was ever stored there."""
    if await inner.page_records(None, 1) or await inner.page_segments(None, 1) or await inner.page_blobs(None, 1):
        return False
    return not (await inner.usage()).rows
