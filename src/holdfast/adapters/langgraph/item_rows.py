"""Rows of a LangGraph store (`HoldfastStore`): items, and vectors of their texts.

They belong to the whole store and to no checkpoint. An item that has outlived its time to live
counts as absent; gc removes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import ormsgpack

from holdfast.backends.port import STORE, Row, RowKey
from holdfast.errors import CorruptError
from holdfast.format.rows import head

ITEM, VECTORS = "lgitem", "lgvectors"


class StoredItem(NamedTuple):
    """The content of an item's row.

    Times are in microseconds; `content` is a frame around the encoded value.
    """

    created_at_us: int
    updated_at_us: int
    expires_at_us: int | None
    ttl_us: int | None
    content: bytes

    def is_expired(self, now_us: int) -> bool:
        return self.expires_at_us is not None and self.expires_at_us <= now_us


def item_row(key: bytes) -> RowKey:
    return RowKey(ITEM, key, STORE)


def vectors_row(key: bytes) -> RowKey:
    return RowKey(VECTORS, key, STORE)


def pack_item(key: RowKey, item: StoredItem) -> bytes:
    return head.protect(key, ormsgpack.packb(list(item)))


def unpack_item(key: RowKey, row: Row) -> StoredItem:
    try:
        return StoredItem(*ormsgpack.unpackb(head.content(key, row)))
    except (ValueError, TypeError) as error:
        raise CorruptError(f"an item of a LangGraph store can't be read ({error}): the store is damaged") from error


def pack_vectors(key: RowKey, vectors: Mapping[str, bytes]) -> bytes:
    """Pack vectors: `vectors` maps a text's path to 64-bit floats, little-endian."""
    return head.protect(key, ormsgpack.packb([[head.session_key(path), vector] for path, vector in vectors.items()]))


def unpack_vectors(key: RowKey, row: Row) -> list[bytes]:
    try:
        return [vector for _, vector in ormsgpack.unpackb(head.content(key, row))]
    except (ValueError, TypeError) as error:
        raise CorruptError(f"vectors of a LangGraph store can't be read ({error}): the store is damaged") from error
