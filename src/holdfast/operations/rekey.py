"""rekey: protect a sealed store by another key of the ring; and export and import of its key rows.

`reseal.py` seals its data under new keys.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from holdfast.backends.bridge.base import Bridge
from holdfast.backends.port import ABSENT, STORE, Commit, CommitConflict, Row, RowKey, RowWrite
from holdfast.errors import ConflictError, CorruptError, KeyMissingError, StoreBusyError, UsageError
from holdfast.model.key_status import KeyImport, KeyStatus
from holdfast.operations.context import StoreContext
from holdfast.sealing import store_keys
from holdfast.sealing.bridge import SealedBridge
from holdfast.sealing.key_ring import KeyRing
from holdfast.sealing.open_store import is_empty
from holdfast.sealing.store_keys import MARKER, SPACE, Marker, Secrets

FORMAT = 1
ATTEMPTS = 20
PAGE = 500


async def status(ctx: StoreContext) -> KeyStatus:
    """Return the keys that protect the store. It reads key rows only, and needs no key to match."""
    bridge = get_bridge(ctx)
    marker, _ = await read_marker(bridge.inner)
    newest = max(marker.epochs)
    trees: dict[bytes, int] = {}
    async for key, row in scan_key_rows(bridge.inner):
        if key != MARKER:
            tree, epoch = store_keys.stated_tree(row)
            trees[tree] = max(epoch, trees.get(tree, 0))
    return KeyStatus(
        store_id=marker.store.hex(),
        protected_by=tuple(name for name, _ in marker.wrapped),
        primary=bridge.store.ring.primary,
        trees=len(trees),
        trees_current=sum(epoch == newest for epoch in trees.values()),
        epoch=newest,
        old_epochs=tuple(sorted(set(marker.epochs) - {newest})),
        is_resealing=marker.is_resealing,
    )


async def rekey(ctx: StoreContext) -> KeyStatus:
    """Wrap the store's key by the primary key of the ring, and by no other: one row, in one commit.

    Writers go on: the store's key stays the same.
    """
    await change_marker(get_bridge(ctx), lambda marker, secrets: (secrets, marker.is_resealing))
    return await status(ctx)


async def change_marker(bridge: SealedBridge, change: Callable[[Marker, Secrets], tuple[Secrets, bool]]) -> None:
    """Replace the row of the store's key, wrapped by the primary key of the ring alone."""
    inner, ring = bridge.inner, bridge.store.ring

    def wrap_changed(marker: Marker) -> Marker:
        secrets, is_resealing = change(marker, store_keys.unwrap(marker, ring))
        wrapped = store_keys.wrap(secrets, marker.store, ring, is_resealing=is_resealing)
        if store_keys.unwrap(wrapped, ring) != secrets:
            raise CorruptError("what the primary key wrapped does not open to the same key: nothing was changed")
        return wrapped

    for _ in range(ATTEMPTS):
        marker, version = await read_marker(inner)
        wrapped = await inner.run_in_thread(partial(wrap_changed, marker))
        try:
            await inner.commit(Commit(STORE, rows=[RowWrite(MARKER, wrapped.pack(), version)]))
        except CommitConflict:
            continue
        await bridge.store.reload(inner)
        return
    raise StoreBusyError("other processes keep changing the store's key: try again")


async def export_keys(ctx: StoreContext) -> bytes:
    """Return the key rows of the store as a file. They are wrapped: without the ring they open nothing."""
    bridge = get_bridge(ctx)
    marker, _ = await read_marker(bridge.inner)
    rows = {key.key.hex(): base64.b64encode(row.value).decode() async for key, row in scan_key_rows(bridge.inner)}
    content = {"holdfast_keys": FORMAT, "store": marker.store.hex(), "rows": rows}
    return json.dumps(content, indent=1).encode() + b"\n"


async def import_keys(ctx: StoreContext, content: bytes) -> KeyImport:
    """Put key rows back that are missing in the store, and its own key as the file has it.

    An old backup of the store then opens with the keys of today.
    """
    bridge = get_bridge(ctx)
    inner, ring = bridge.inner, bridge.store.ring
    store, rows = _parse(content)
    marker = Marker.unpack(Row(rows[MARKER.key], 1))
    if marker.store != store:
        raise CorruptError("the file with key rows names two stores: it was changed")
    secrets = await inner.run_in_thread(lambda: store_keys.unwrap(marker, ring))
    keys = store_keys.StoreKeys(marker, 1, secrets)
    for kid, value in rows.items():
        if kid != MARKER.key:
            keys.open_tree_key(kid, Row(value, 1))  # raises unless it is a key of this store
    [stored] = await inner.rows([MARKER])
    if stored is not None:
        merged = await inner.run_in_thread(partial(_merge, Marker.unpack(stored), marker, ring))
        rows[MARKER.key] = merged or rows[MARKER.key]
    put_back = 0
    for kid, value in sorted(rows.items(), key=lambda row: row[0] == MARKER.key):  # the store's own key last
        key = RowKey(SPACE, kid)
        [found] = await inner.rows([key])
        if found is not None and found.value == value:
            continue
        if found is not None and key != MARKER:
            raise ConflictError(f"the store has another key under {kid.hex()}: the file is not of this store")
        if key == MARKER and found is None and not put_back and await is_empty(inner):
            raise UsageError("the store is empty: restore its backup first, then import its keys")
        await inner.commit(Commit(STORE, rows=[RowWrite(key, value, found.version if found else ABSENT)]))
        put_back += 1
    bridge.store.keys = None  # the next call opens the store with these
    return KeyImport(put_back=put_back, already_there=len(rows) - put_back)


def _merge(stored: Marker, marker: Marker, ring: KeyRing) -> bytes | None:
    """Return the row of the store's key with the epochs of both; None if the file's has all of them."""
    if stored.store != marker.store:
        raise ConflictError("the file is of another store: nothing was changed")
    if set(stored.epochs) <= set(marker.epochs):
        return None
    try:
        secrets = store_keys.unwrap(stored, ring)
    except KeyMissingError as error:
        raise ConflictError(
            "the store has newer keys than the file (`holdfast rekey --data`), and the ring does not open them: add "
            f"the key {stored.wrapped[0][0]!r:.200} to the ring, or use a newer file. Nothing was changed"
        ) from error
    merged = secrets.merged_with(store_keys.unwrap(marker, ring))
    return store_keys.wrap(merged, marker.store, ring, is_resealing=stored.is_resealing).pack()


def get_bridge(ctx: StoreContext) -> SealedBridge:
    bridge = cast("Bridge", ctx.backend)
    if not isinstance(bridge, SealedBridge):
        raise UsageError(
            "no keys were given, and this is about a sealed store: pass keys=KeyRing.from_file(...); on the command "
            "line, set HOLDFAST_KEYS_FILE"
        )
    return bridge


async def read_marker(inner: Bridge) -> tuple[Marker, int]:
    [row] = await inner.rows([MARKER])
    if row is None:
        raise UsageError("the store is not sealed: `holdfast encrypt` copies it into a sealed one")
    return Marker.unpack(row), row.version


async def scan_key_rows(inner: Bridge) -> Any:
    after: bytes | None = None
    while page := await inner.scan(SPACE, tree=STORE, after=after, limit=PAGE):
        for key, row in page:
            yield key, row
        after = page[-1][0].key


def _parse(content: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """Return the store and the rows of a file that `export_keys` wrote."""
    try:
        found = json.loads(content)
        if found["holdfast_keys"] != FORMAT:
            raise ValueError("another format")
        rows = {bytes.fromhex(key): base64.b64decode(value, validate=True) for key, value in found["rows"].items()}
        if MARKER.key not in rows:
            raise ValueError("no key of the store")
        return bytes.fromhex(found["store"]), rows
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CorruptError("this is no file that `holdfast keys export` wrote") from error
