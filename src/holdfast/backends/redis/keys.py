"""Keys: shards of trees, order of row keys, and the header of a stored record. No I/O."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from holdfast.backends.port import Record, Row, RowKey, Span, end_of_prefix
from holdfast.errors import CorruptError
from holdfast.model import ids

LAYOUT = 2  # since 2, the header of a record may end with its spans
MOST_SPANS = 8  # in a record's header; a state in more pieces is read in two round trips
FIRST_SHARD = 0  # holds the rows of the whole store, and gives out positions

# The end of a key within a place: below any byte that may continue a key, as NUL is written as NUL
# 0xff.
_END = b"\x00\x01"
_AFTER_END = b"\x00\x02"


def shard_of(id_: bytes, shards: int) -> int:
    """Return the shard of a tree, and of the ids made in it: they share a tag."""
    return zlib.crc32(ids.tree_tag(id_)) % shards if id_ and shards > 1 else FIRST_SHARD


def base(prefix: str, shard: int) -> bytes:
    """Return the prefix of a shard's keys. Only the part in braces decides which cluster node has them."""
    return f"{{{prefix}:{shard}}}".encode()


# -- rows ------------------------------------------------------------------------------------------------------------


def place(key: RowKey) -> bytes:
    """Return bytes that sort as (key, tree) does, byte for byte."""
    return _escape_key(key.key) + _END + key.tree


def place_in_tree(key: RowKey) -> bytes:
    """Return bytes that sort as (tree, key) does, trees of one length together."""
    return _prefix_tree(key.tree) + _escape_key(key.key) + _END


def key_of(space: str, found: bytes) -> RowKey:
    """Return the key of a place."""
    end = found.index(_END)  # within a key, NUL is always followed by 0xff
    return RowKey(space, found[:end].replace(b"\x00\xff", b"\x00"), found[end + len(_END) :])


def bounds(tree: bytes | None, prefix: bytes, after: bytes | None) -> tuple[bytes, bytes]:
    """Return the bounds of places whose keys begin with `prefix` and are greater than `after`.

    They are in the form of ZRANGEBYLEX; with `tree`, in the order of that tree.
    """
    head = b"" if tree is None else _prefix_tree(tree)
    low = head + _escape_key(prefix)
    high = end_of_prefix(low)
    if after is not None:
        low = max(low, head + _escape_key(after) + _AFTER_END)
    return b"[" + low, b"+" if high is None else b"(" + high


def row_of(stored: bytes | None, key: RowKey) -> Row:
    if stored is None:
        raise CorruptError(f"a row of {key.space!r} is named and not there: the store is damaged. Run `verify`")
    version, _, value = stored.partition(b":")
    return Row(value, _parse_number(version))


def _escape_key(key: bytes) -> bytes:
    return key.replace(b"\x00", b"\x00\xff")


def _prefix_tree(tree: bytes) -> bytes:
    return bytes((len(tree),)) + tree


# -- records ---------------------------------------------------------------------------------------------------------


def record_of(id_: bytes, stored: bytes, session: bytes | None) -> tuple[int, Record]:
    """Return the position and the record."""
    parts = stored.split(b":", 3)  # session, sequence, position (and after it spans), data
    if len(parts) != 4 or session is None:
        raise CorruptError(f"record {ids.to_text(id_)} has no place in a session: the store is damaged. Run `verify`")
    return _parse_number(parts[2].partition(b";")[0]), Record(id_, session, _parse_number(parts[1]), parts[3])


def spans_of(spans: Sequence[Span]) -> bytes:
    """Return the spans of a state for its record's header: the server finds their segments by itself."""
    if len(spans) > MOST_SPANS:
        return b""
    return b"".join([b";%d,%d,%d" % span for span in spans])


def _parse_number(digits: bytes) -> int:
    try:
        return int(digits)
    except ValueError as error:
        raise CorruptError(
            f"{digits!r:.40} stands where a number should: the store is damaged. Run `verify`"
        ) from error
