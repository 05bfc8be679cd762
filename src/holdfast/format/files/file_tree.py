"""The tree of a snapshot's entries: sorted by path, cut into nodes at boundaries that hashes decide.

A leaf holds entries; a node above it holds the first path and the hash of each of its children.
Whether a path begins a new node, and up to which level, depends on that path alone. So the tree is
a function of its entries, never of its history. A changed file moves no boundary; it costs one leaf
and the nodes above it at any size. Two trees are compared by skipping nodes with the same hash.
Pure: nodes are read by awaiting the given `load`.

A hash says nothing about meaning. So every step from a node to a child checks that the child is one
level lower, begins with the path that its parent names, and ends before the next child begins
(`tree_node.unpack_child`). A tree that contains a node twice breaks one of these rules: a listing is never
larger than the stored nodes.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from holdfast.errors import CorruptError
from holdfast.format.files.tree_node import (
    Child,
    Item,
    children,
    end_of,
    hash_of,
    make_misplaced_error,
    pack,
    unpack,
    unpack_child,
)
from holdfast.model.snapshot import FileChange, FileEntry, Kind

Load = Callable[[Sequence[bytes]], Awaitable[Sequence[bytes]]]
"""Gives the nodes of these hashes, checked; raises `CorruptError` if one is missing."""

FANOUT_BITS = (
    5  # one path in 32 begins a leaf, one in 32 of those a node above it: 9 KB for a change among 100,000 files
)
_FANOUT_MASK = (1 << FANOUT_BITS) - 1
CHILDREN_AT_ONCE = 64


class Built(NamedTuple):
    """The root of a tree, and those of its nodes that the tree it was made from does not have."""

    root: bytes
    nodes: dict[bytes, bytes]


class _Made(dict[bytes, bytes]):
    """Nodes that were made, by their hashes, and the children of each."""

    def __init__(self) -> None:
        super().__init__()
        self.children: dict[bytes, list[bytes]] = {}


def build(entries: Iterable[FileEntry]) -> Built:
    """Return the tree of these entries, in any order; of two with one path the last counts."""
    by_path = {entry.path: entry for entry in entries}
    nodes = _Made()
    root = _raise(0, [by_path[path] for path in sorted(by_path)], nodes)
    return Built(root, nodes)


async def update(
    root: bytes, changes: Mapping[bytes, FileEntry | None], load: Load, replaced_nodes: dict[bytes, bytes] | None = None
) -> Built:
    """Return the tree after these changes (None removes a path), made from the tree of `root`.

    It reads and writes only the nodes that change, and their neighbours where a boundary is
    removed. If `replaced_nodes` is given, it receives for each new node the old node that it is
    most similar to.
    """
    if not changes:
        return Built(root, {})
    old = _Old(root, load)
    nodes = _Made()
    height = await old.height()
    pending: Mapping[bytes, Item | None] = changes
    for level in range(height + 1):
        replaced: dict[bytes, Item | None] = {}
        for run in await old.runs(level, pending):
            for node in run:
                if node.items:
                    replaced[node.items[0].path] = None
            # A path that was not the first of its node begins none: no need to hash it.
            inside = {item.path for node in run for item in node.items[1:]}
            for child in _cut(level, _apply_changes(run, pending), nodes, inside):
                replaced[child.path] = child
                if replaced_nodes is not None and (like := old.find_node(level, child.path, run[0])) is not None:
                    replaced_nodes[child.hash] = like
        pending = replaced
    # The last level had only one node, the old root: its replacements are the whole new tree at
    # that level.
    made = [item for _, item in sorted(pending.items()) if item is not None]
    if not made:
        return Built(_put(0, [], nodes), nodes)
    if len(made) > 1:
        return _select_used(_raise(height + 1, made, nodes), nodes, root)
    return _select_used(await _lower_root(made[0], nodes, load), nodes, root)


async def entries(root: bytes, load: Load) -> AsyncIterator[FileEntry]:
    """Yield all entries, in the order of their paths: a directory before its contents."""
    level, items = unpack((await load([root]))[0])
    async for leaf in _leaves(level, items, None, load):
        for entry in leaf:
            yield entry


def refuse_homeless(paths: Iterable[tuple[bytes, Kind]]) -> None:
    """Raise `CorruptError` unless every path of a tree is in a directory that the tree has."""
    listed = list(paths)
    directories = {path for path, kind in listed if kind == "dir"} | {b""}
    for path, _ in listed:
        if path.rpartition(b"/")[0] not in directories:
            raise CorruptError(
                f"the tree of a snapshot is malformed ({path!r:.80} is in no directory): holdfast makes none like it, "
                "and nothing was written"
            )


async def find(root: bytes, path: bytes, load: Load) -> FileEntry | None:
    """Return the entry of a path, None if there is none."""
    level, items = unpack((await load([root]))[0])
    end: bytes | None = None
    while items and level:
        at = max(_position(items, path), 0)
        end = end_of(items, at, end)
        level, items = unpack_child(level, items[at], end, (await load([hash_of(items[at])]))[0])
    return next((entry for entry in items if isinstance(entry, FileEntry) and entry.path == path), None)


async def diff(before: bytes, after: bytes, load: Load) -> AsyncIterator[FileChange]:
    """Yield the differences, in the order of paths. Subtrees that both have are not read."""
    left, right = _Cursor(load), _Cursor(load)
    if before != after:
        await left.start(before)
        await right.start(after)
    while (a := left.head) is not None and (b := right.head) is not None:
        if a == b:
            left.drop()
            right.drop()
        elif a.path < b.path:
            if isinstance(a, FileEntry):
                left.drop()
                yield FileChange(a.path, a, None)
            else:
                await left.open()
        elif b.path < a.path:
            if isinstance(b, FileEntry):
                right.drop()
                yield FileChange(b.path, None, b)
            else:
                await right.open()
        elif isinstance(a, FileEntry) and isinstance(b, FileEntry):
            left.drop()
            right.drop()
            yield FileChange(a.path, a, b)
        else:  # two different nodes, or one and an entry: the higher one is opened, of equals both
            heights = (left.level, right.level)
            if heights[0] >= heights[1]:
                await left.open()
            if heights[1] >= heights[0]:
                await right.open()
    async for leaf in left.iterate_rest():
        for entry in leaf:
            yield FileChange(entry[0], entry, None)
    async for leaf in right.iterate_rest():
        for entry in leaf:
            yield FileChange(entry[0], None, entry)


def _reach(path: bytes) -> int:
    """Return up to which level a path begins a node: at level k, if the result is greater than k."""
    digest = hashlib.sha256(path).digest()
    if digest[7] & _FANOUT_MASK:  # 31 times out of 32
        return 0
    number = int.from_bytes(digest[:8], "big")
    level = 0
    while level < 10 and number & _FANOUT_MASK == 0:
        level += 1
        number >>= FANOUT_BITS
    return level


def _cut(level: int, items: Sequence[Item], nodes: _Made, inside: Collection[bytes] = frozenset()) -> Iterator[Child]:
    """Make nodes of the items of one level. Paths in `inside` are known to begin none."""
    gathered: list[Item] = []
    for item in items:
        if gathered and item.path not in inside and _reach(item.path) > level:
            yield Child(gathered[0].path, _put(level, gathered, nodes))
            gathered = []
        gathered.append(item)
    if gathered:
        yield Child(gathered[0].path, _put(level, gathered, nodes))


def _put(level: int, items: Sequence[Item], nodes: _Made) -> bytes:
    node = pack(level, items)
    hash_ = hashlib.sha256(node).digest()
    nodes[hash_] = node
    nodes.children[hash_] = [item.hash for item in items if isinstance(item, Child)] if level else []
    return hash_


def _raise(level: int, items: Sequence[Item], nodes: _Made) -> bytes:
    """Build the levels from this one up to a single node, and return its hash."""
    if not items:
        return _put(level, [], nodes)
    while True:
        made = list(_cut(level, items, nodes))
        if len(made) == 1:
            return made[0].hash
        level, items = level + 1, made


async def _lower_root(made: Item, nodes: _Made, load: Load) -> bytes:
    """Return the root: the lowest level with a single node. Nodes above it are dropped."""
    assert isinstance(made, Child)
    root = made.hash
    while True:
        below = nodes.children[root] if root in nodes else children((await load([root]))[0])[0]
        if len(below) != 1:
            return root
        [root] = below


def _select_used(root: bytes, nodes: _Made, old_root: bytes) -> Built:
    """Return the tree without intermediate nodes that are not part of it.

    Nothing is new if the root is the old one.
    """
    if root == old_root:
        return Built(root, {})
    used: dict[bytes, bytes] = {}
    waiting = [root]
    while waiting:
        hash_ = waiting.pop()
        node = nodes.get(hash_)
        if node is not None and hash_ not in used:
            used[hash_] = node
            waiting += nodes.children[hash_]
    return Built(root, used)


# -- reads of an old tree --------------------------------------------------------------------------------------------


NodePath = list[tuple[list[Item], int]]  # from the root down: the items of each node, and the index of the chosen one


class _NodeEdit:
    """A node that changes: its items, the keys of its changes, and whether it continues in the next."""

    def __init__(self, items: list[Item]) -> None:
        self.items = items
        self.keys: list[bytes] = []
        self.joined = False


class _Old:
    """A tree that is being updated: its nodes, read once each."""

    def __init__(self, root: bytes, load: Load) -> None:
        self._root = root
        self._load = load
        self._nodes: dict[bytes, tuple[int, list[Item]]] = {}
        self._places: dict[tuple[int, bytes], bytes] = {}  # hashes by level and first path

    def find_node(self, level: int, path: bytes, near: _NodeEdit) -> bytes | None:
        """Return the hash of the node that begins with this path, else of one that was read near it."""
        found = self._places.get((level, path))
        return found if found is not None or not near.items else self._places.get((level, near.items[0].path))

    async def height(self) -> int:
        return (await self._node(self._root))[0]

    async def runs(self, level: int, changes: Mapping[bytes, Item | None]) -> list[list[_NodeEdit]]:
        """Return the nodes of a level that the changes fall into, in groups of neighbours.

        A node whose first path is removed, and with it the boundary, is in one group with the node
        before it.
        """
        touched: dict[bytes, _NodeEdit] = {}
        for key in sorted(changes):
            way = await self._descend(self._root, level, partial(_choose_child, key))
            node = _touch(touched, way)
            node.keys.append(key)
            first = node.items[0].path if node.items else key
            if changes.get(first, node) is None and (before := await self._find_previous(level, way)) is not None:
                _touch(touched, before).joined = True
        runs: list[list[_NodeEdit]] = []
        for _, node in sorted(touched.items()):
            if runs and runs[-1][-1].joined:
                runs[-1].append(node)
            else:
                runs.append([node])
        return runs

    async def _find_previous(self, level: int, way: NodePath) -> NodePath | None:
        """Return the path to the previous node of the same level."""
        for depth in range(len(way) - 2, -1, -1):
            items, at = way[depth]
            if at > 0:
                child = items[at - 1]
                assert isinstance(child, Child)
                below = await self._descend(child.hash, level, lambda items: len(items) - 1)
                return [*way[:depth], (items, at - 1), *below]
        return None

    async def _descend(self, hash_: bytes, level: int, choose: Callable[[list[Item]], int]) -> NodePath:
        way: NodePath = []
        expected: tuple[int, bytes] | None = None  # the level and the first path of the node that comes next
        while True:
            own_level, items = await self._node(hash_)
            if expected is not None and (not items or (own_level, items[0].path) != expected):
                raise make_misplaced_error(f"the node at {expected[1]!r:.80} does not belong there")
            at = choose(items) if items else 0
            way.append((items, at))
            if own_level <= level:
                return way
            expected = own_level - 1, items[at].path
            hash_ = hash_of(items[at])

    async def _node(self, hash_: bytes) -> tuple[int, list[Item]]:
        if hash_ not in self._nodes:
            level, items = self._nodes[hash_] = unpack((await self._load([hash_]))[0])
            if items:
                self._places[level, items[0].path] = hash_
        return self._nodes[hash_]


def _touch(touched: dict[bytes, _NodeEdit], way: NodePath) -> _NodeEdit:
    items = way[-1][0]
    return touched.setdefault(items[0].path if items else b"", _NodeEdit(items))


def _choose_child(key: bytes, items: Sequence[Item]) -> int:
    """Return the index of the item below which the key is, or would be."""
    return max(_position(items, key), 0)


def _position(items: Sequence[Item], key: bytes) -> int:
    """Return the index of the last item whose path is not greater than the key; -1 if there is none."""
    return bisect_right(items, key, key=lambda item: item.path) - 1


def _apply_changes(run: Sequence[_NodeEdit], changes: Mapping[bytes, Item | None]) -> list[Item]:
    """Return the items of neighbouring nodes after the changes that fall into them."""
    items: dict[bytes, Item] = {item.path: item for node in run for item in node.items}
    for key in (key for node in run for key in node.keys):
        change = changes[key]
        if change is None:
            items.pop(key, None)
        else:
            items[key] = change
    return [items[path] for path in sorted(items)]


# -- reads in order --------------------------------------------------------------------------------------------------


async def _leaves(level: int, items: Sequence[Item], end: bytes | None, load: Load) -> AsyncIterator[list[FileEntry]]:
    """Yield the entries below these items of a level, leaf by leaf. All come before the path `end`."""
    waiting: list[tuple[int, Sequence[Item], bytes | None]] = [(level, items, end)]  # the next ones last
    while waiting:
        level, items, end = waiting.pop()
        if level == 0:
            yield [item for item in items if isinstance(item, FileEntry)]
            continue
        some = items[:CHILDREN_AT_ONCE]
        if len(items) > CHILDREN_AT_ONCE:
            waiting.append((level, items[CHILDREN_AT_ONCE:], end))
        nodes = await load([hash_of(item) for item in some])
        below: list[tuple[int, Sequence[Item], bytes | None]] = []
        for at, (item, node) in enumerate(zip(some, nodes, strict=True)):
            child_end = end_of(items, at, end)
            below.append((*unpack_child(level, item, child_end, node), child_end))
        waiting += reversed(below)


class _PendingItem(NamedTuple):
    """A pending item: the level of the node (-1 for an entry), and the path before which it ends."""

    level: int
    item: Item
    end: bytes | None


class _Cursor:
    """A position in a tree: the node or entry at the head, and the items after it."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._waiting: list[_PendingItem] = []  # the next one last

    async def start(self, root: bytes) -> None:
        level, items = unpack((await self._load([root]))[0])
        self._put(level, items, None)

    @property
    def head(self) -> Item | None:
        return self._waiting[-1].item if self._waiting else None

    @property
    def level(self) -> int:
        return self._waiting[-1].level

    def drop(self) -> None:
        self._waiting.pop()

    async def open(self) -> None:
        """Replace the node at the head by its contents."""
        level, child, end = self._waiting.pop()
        node = (await self._load([hash_of(child)]))[0]
        self._put(*unpack_child(level + 1, child, end, node), end)

    async def iterate_rest(self) -> AsyncIterator[list[FileEntry]]:
        """Yield the remaining entries, leaf by leaf; compared with an empty tree, all of them."""
        while self._waiting:
            level, item, end = self._waiting.pop()
            siblings = [item]
            while self._waiting and self._waiting[-1].level == level:
                _, item, end = self._waiting.pop()
                siblings.append(item)
            async for leaf in _leaves(level + 1, siblings, end, self._load):
                yield leaf

    def _put(self, level: int, items: Sequence[Item], end: bytes | None) -> None:
        last = len(items) - 1
        self._waiting += (_PendingItem(level - 1, items[at], end_of(items, at, end)) for at in range(last, -1, -1))
