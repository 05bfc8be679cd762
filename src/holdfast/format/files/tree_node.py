"""A node of a snapshot's tree as bytes, and back, with the checks of its meaning.

Nodes come from stores and bundles of strangers. A hash says nothing about meaning: levels, order and
names are checked here, across nodes, too.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import ormsgpack

from holdfast.codec.structure_check import check_structure
from holdfast.errors import CorruptError
from holdfast.model.safe_path import find_unsafe
from holdfast.model.snapshot import FileEntry, Kind

_SMALL_NODE = 64 * 1024
_MAX_ITEMS = 1 << 16  # of MessagePack: a node has 32 entries on average, and hardly ever a thousand
MAX_LEVEL = 16  # a path begins nodes up to level 10 at most (`file_tree.py`)
_CODES: dict[Kind, int] = {"file": 0, "dir": 1, "symlink": 2}
_KINDS: tuple[Kind, ...] = ("file", "dir", "symlink")


class Child(NamedTuple):
    """A node as its parent knows it."""

    path: bytes  # the first one in it
    hash: bytes


Item = FileEntry | Child


def pack(level: int, items: Sequence[Item]) -> bytes:
    if level:
        return ormsgpack.packb([level, [[item.path, item.hash] for item in items if isinstance(item, Child)]])
    leaf = [
        [item.path, _CODES[item.kind], item.mode, item.size, item.content]
        for item in items
        if isinstance(item, FileEntry)
    ]
    return ormsgpack.packb([0, leaf])


def unpack(node: bytes) -> tuple[int, list[Item]]:
    """Return the level of a node (0 for a leaf) and its items.

    Names that could lead out of a directory are refused.
    """
    try:
        if len(node) > _SMALL_NODE:
            check_structure(node, 3, _MAX_ITEMS)
        level, listed = ormsgpack.unpackb(node)
        if type(level) is not int or not 0 <= level <= MAX_LEVEL:
            raise ValueError("its level is none")
        if type(listed) is not list:
            raise TypeError("it lists nothing")
        items: list[Item] = []
        if listed:
            items += _children(listed) if level else _entries(listed)
    except (ValueError, TypeError, IndexError) as error:
        raise CorruptError(f"a node of a snapshot's tree can't be read ({error}): run `verify`") from error
    return level, items


def children(node: bytes) -> tuple[list[bytes], list[FileEntry]]:
    """Return the references of a node: the hashes of the nodes below it, or its entries."""
    _, items = unpack(node)
    return (
        [item.hash for item in items if isinstance(item, Child)],
        [item for item in items if isinstance(item, FileEntry)],
    )


class Extent(NamedTuple):
    """The contents of a subtree: its level, its first and last path, and its size.

    Both paths are empty if the subtree is.
    """

    level: int
    first: bytes
    last: bytes
    files: int = 0
    directories: int = 0
    symlinks: int = 0
    size: int = 0


def extent(level: int, items: Sequence[Item], extents: Mapping[bytes, Extent]) -> Extent:
    """Return the extent of a node, from those of its children by their hashes.

    Raises `CorruptError` if they don't fit together.
    """
    if not items:
        if level:
            raise make_misplaced_error("a node above the leaves has no children")
        return Extent(0, b"", b"")
    if level == 0:
        found = [item for item in items if isinstance(item, FileEntry)]
        kinds = [entry.kind for entry in found]
        size = sum(entry.size for entry in found if entry.kind == "file")
        return Extent(
            0, found[0].path, found[-1].path, kinds.count("file"), kinds.count("dir"), kinds.count("symlink"), size
        )
    below = [extents[hash_of(item)] for item in items]
    for at, (item, child) in enumerate(zip(items, below, strict=True)):
        end = end_of(items, at, None)
        if child.level != level - 1 or child.first != item.path or (end is not None and child.last >= end):
            raise make_misplaced_error(f"the node at {item.path!r:.80} does not belong there")
    return Extent(
        level,
        below[0].first,
        below[-1].last,
        *(sum(column) for column in zip(*(extent[3:] for extent in below), strict=True)),
    )


def unpack_child(level: int, child: Item, end: bytes | None, node: bytes) -> tuple[int, list[Item]]:
    """Return a child of a node of this level, unpacked and checked.

    Its items begin with the child's path, and end before `end`.
    """
    found_level, items = unpack(node)
    if (
        found_level != level - 1
        or not items
        or items[0].path != child.path
        or (end is not None and items[-1].path >= end)
    ):
        raise make_misplaced_error(f"the node at {child.path!r:.80} does not belong there")
    return found_level, items


def end_of(items: Sequence[Item], at: int, end: bytes | None) -> bytes | None:
    """Return the path before which a child ends: where the next one begins, or where its parent ends."""
    return items[at + 1].path if at + 1 < len(items) else end


def hash_of(item: Item) -> bytes:
    assert isinstance(item, Child)
    return item.hash


def make_misplaced_error(why: str) -> CorruptError:
    return CorruptError(f"the tree of a snapshot is malformed ({why}): run `verify`")


def _children(listed: Iterable[tuple[bytes, bytes]]) -> list[Child]:
    paths, hashes = zip(*listed, strict=True)
    _check_paths(paths)
    if {*map(type, hashes)} != {bytes} or {*map(len, hashes)} != {32}:
        raise ValueError("a hash is none")
    return list(map(Child, paths, hashes))


def _entries(listed: Iterable[tuple[bytes, int, int, int, bytes]]) -> list[FileEntry]:
    """Return the entries, checked column by column.

    There may be 100,000 of them before a file is touched.
    """
    paths, codes, modes, sizes, contents = zip(*listed, strict=True)
    _check_paths(paths)
    if {*map(type, contents)} != {bytes} or {*map(type, codes), *map(type, modes), *map(type, sizes)} != {int}:
        raise TypeError("an entry is none")
    if min(sizes) < 0 or min(modes) < 0 or max(modes) > 0o7777 or min(codes) < 0:
        raise ValueError("an entry is none")
    if not all(map(_is_sound, codes, sizes, contents)):
        raise ValueError("an entry is none")
    unsafe = find_unsafe(paths)
    if unsafe is not None:
        raise ValueError(f"{unsafe!r:.80} is no path below a root")
    return list(map(FileEntry, paths, [_KINDS[code] for code in codes], modes, sizes, contents))


def _is_sound(code: int, size: int, content: bytes) -> bool:
    """Return whether size and content are those of a file, a directory or a link."""
    if code == 0:
        return len(content) == 32
    return size == len(content) and (bool(content) and b"\0" not in content if code == 2 else not content)


def _check_paths(paths: Sequence[bytes]) -> None:
    if {*map(type, paths)} != {bytes} or not all(map(operator.lt, paths, paths[1:])):
        raise ValueError("its paths are not in order")
