"""The tree of a snapshot's entries: sorted by path, cut into nodes where the hash of a path says so.

A leaf holds entries, a node above it the first path and the hash of each of its children. Whether a path begins a new
node, and up to which level, depends on that path alone. So the tree is a function of its entries, never of how they came
together; a file that changes leaves every boundary where it is, and costs one leaf and the nodes above it at any size; and
two trees are compared by skipping what has the same hash. Pure: nodes are got by awaiting the `load` that is given.
"""

from __future__ import annotations

import hashlib
import operator
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import ormsgpack

from holdfast.errors import CorruptError
from holdfast.model.path_checks import first_unsafe
from holdfast.model.workspace import Entry, FileChange, Kind

Load = Callable[[Sequence[bytes]], Awaitable[Sequence[bytes]]]
"""Gives the nodes of these hashes, checked; raises `CorruptError` if one is missing."""

FANOUT_BITS = (
    5  # one path in 32 begins a leaf, one in 32 of those a node above it: 9 KB for a change among 100,000 files
)
_FANOUT_MASK = (1 << FANOUT_BITS) - 1
CHILDREN_AT_ONCE = 64
_CODES: dict[Kind, int] = {"file": 0, "dir": 1, "symlink": 2}
_KINDS: tuple[Kind, ...] = ("file", "dir", "symlink")


class Child(NamedTuple):
    """A node as its parent knows it."""

    path: bytes  # the first one in it
    hash: bytes


Item = Entry | Child


class Built(NamedTuple):
    """The root of a tree, and those of its nodes that the tree it was made from does not have."""

    root: bytes
    nodes: dict[bytes, bytes]


class _Made(dict[bytes, bytes]):
    """Nodes that were made, by their hashes, and the children that each has."""

    def __init__(self) -> None:
        super().__init__()
        self.children: dict[bytes, list[bytes]] = {}


def build(entries: Iterable[Entry]) -> Built:
    """The tree of these entries, in any order; of two with one path the last counts."""
    by_path = {entry.path: entry for entry in entries}
    nodes = _Made()
    root = _raise(0, [by_path[path] for path in sorted(by_path)], nodes)
    return Built(root, nodes)


async def update(
    root: bytes, changes: Mapping[bytes, Entry | None], load: Load, replaced_nodes: dict[bytes, bytes] | None = None
) -> Built:
    """The tree after these changes (None removes a path), made from the one of `root` by reading and writing only the
    nodes that change, and their neighbours where a boundary goes. In `replaced_nodes`, if it is given, is noted which old
    node a new one is most like."""
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
            # What was inside of a node begins none: no hash has to say so.
            inside = {item.path for node in run for item in node.items[1:]}
            for child in _cut(level, _applied(run, pending), nodes, inside):
                replaced[child.path] = child
                if replaced_nodes is not None and (like := old.at(level, child.path, run[0])) is not None:
                    replaced_nodes[child.hash] = like
        pending = replaced
    # The last level had one node only, the old root: what came of it is all of the new tree at that level.
    made = [item for _, item in sorted(pending.items()) if item is not None]
    if not made:
        return Built(_put(0, [], nodes), nodes)
    if len(made) > 1:
        return _used(_raise(height + 1, made, nodes), nodes, root)
    return _used(await _lowered(made[0], nodes, load), nodes, root)


async def entries(root: bytes, load: Load) -> AsyncIterator[Entry]:
    """All entries, in the order of their paths: a directory before what is in it."""
    level, items = unpack((await load([root]))[0])
    async for leaf in _leaves(level, items, load):
        for entry in leaf:
            yield entry


async def find(root: bytes, path: bytes, load: Load) -> Entry | None:
    """The entry of a path."""
    level, items = unpack((await load([root]))[0])
    while level:
        at = _position(items, path)
        child = items[max(at, 0)]
        assert isinstance(child, Child)
        level, items = unpack((await load([child.hash]))[0])
    return next((entry for entry in items if isinstance(entry, Entry) and entry.path == path), None)


async def diff(before: bytes, after: bytes, load: Load) -> AsyncIterator[FileChange]:
    """What differs, in the order of paths; what both have in common is not read."""
    left, right = _Cursor(load), _Cursor(load)
    if before != after:
        await left.start(before)
        await right.start(after)
    while (a := left.head) is not None and (b := right.head) is not None:
        if a == b:
            left.drop()
            right.drop()
        elif a.path < b.path:
            if isinstance(a, Entry):
                left.drop()
                yield FileChange(a.path, a, None)
            else:
                await left.open()
        elif b.path < a.path:
            if isinstance(b, Entry):
                right.drop()
                yield FileChange(b.path, None, b)
            else:
                await right.open()
        elif isinstance(a, Entry) and isinstance(b, Entry):
            left.drop()
            right.drop()
            yield FileChange(a.path, a, b)
        else:  # two different nodes, or one and an entry: the higher one is opened, of equals both
            heights = (left.level, right.level)
            if heights[0] >= heights[1]:
                await left.open()
            if heights[1] >= heights[0]:
                await right.open()
    async for leaf in left.rest():
        for entry in leaf:
            yield FileChange(entry[0], entry, None)
    async for leaf in right.rest():
        for entry in leaf:
            yield FileChange(entry[0], None, entry)


# -- nodes -----------------------------------------------------------------------------------------------------------


def pack(level: int, items: Sequence[Item]) -> bytes:
    if level:
        return ormsgpack.packb([level, [[item.path, item.hash] for item in items if isinstance(item, Child)]])
    leaf = [
        [item.path, _CODES[item.kind], item.mode, item.size, item.content] for item in items if isinstance(item, Entry)
    ]
    return ormsgpack.packb([0, leaf])


def unpack(node: bytes) -> tuple[int, list[Item]]:
    """The level of a node, 0 for a leaf, and what is in it. Names that could lead out of a directory are no names."""
    try:
        level, listed = ormsgpack.unpackb(node)
        if type(level) is not int or level < 0:
            raise ValueError("its level is no number")
        if type(listed) is not list:
            raise TypeError("it lists nothing")
        items: list[Item] = []
        if listed:
            items += _children(listed) if level else _entries(listed)
    except (ValueError, TypeError, IndexError) as error:
        raise CorruptError(f"a node of a snapshot's tree can't be read ({error}): run `verify`") from error
    return level, items


def children(node: bytes) -> tuple[list[bytes], list[Entry]]:
    """What a node refers to: the hashes of the nodes below it, or its entries."""
    _, items = unpack(node)
    return (
        [item.hash for item in items if isinstance(item, Child)],
        [item for item in items if isinstance(item, Entry)],
    )


def _children(listed: Iterable[tuple[bytes, bytes]]) -> list[Child]:
    paths, hashes = zip(*listed, strict=True)
    _check_paths(paths)
    if {*map(type, hashes)} != {bytes} or {*map(len, hashes)} != {32}:
        raise ValueError("a hash is none")
    return list(map(Child, paths, hashes))


def _entries(listed: Iterable[tuple[bytes, int, int, int, bytes]]) -> list[Entry]:
    """Entries, which are checked column by column: there may be 100,000 of them before a file is touched."""
    paths, codes, modes, sizes, contents = zip(*listed, strict=True)
    _check_paths(paths)
    if {*map(type, contents)} != {bytes} or {*map(type, codes), *map(type, modes), *map(type, sizes)} != {int}:
        raise TypeError("an entry is none")
    if min(sizes) < 0 or min(modes) < 0 or max(modes) > 0o7777 or min(codes) < 0:
        raise ValueError("an entry is none")
    if any(code == 0 and len(content) != 32 for code, content in zip(codes, contents, strict=True)):
        raise ValueError("an entry is none")
    unsafe = first_unsafe(paths)
    if unsafe is not None:
        raise ValueError(f"{unsafe!r:.80} is no path below a root")
    return list(map(Entry, paths, [_KINDS[code] for code in codes], modes, sizes, contents))


def _check_paths(paths: Sequence[bytes]) -> None:
    if {*map(type, paths)} != {bytes} or not all(map(operator.lt, paths, paths[1:])):
        raise ValueError("its paths are not in order")


def _reach(path: bytes) -> int:
    """Up to which level a path begins a node: at level k, if the result is greater than k."""
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
    """Makes nodes of the items of one level. Of paths that are `inside` it is known that they begin none."""
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
    """Builds the levels from this one up, until there is one node only: its hash."""
    if not items:
        return _put(level, [], nodes)
    while True:
        made = list(_cut(level, items, nodes))
        if len(made) == 1:
            return made[0].hash
        level, items = level + 1, made


async def _lowered(made: Item, nodes: _Made, load: Load) -> bytes:
    """The lowest level that has one node only is the root's: a root above it goes."""
    assert isinstance(made, Child)
    root = made.hash
    while True:
        below = nodes.children[root] if root in nodes else children((await load([root]))[0])[0]
        if len(below) != 1:
            return root
        [root] = below


def _used(root: bytes, nodes: _Made, old_root: bytes) -> Built:
    """Without what was made on the way and is not part of the tree; nothing is new if the root is the old one."""
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


# -- reading an old tree ---------------------------------------------------------------------------------------------


Way = list[tuple[list[Item], int]]  # from the root down: the items of each node, and which one of them was taken


class _Touched:
    """A node that changes: its items, the keys of the changes that fall into it, and whether it goes on in the next."""

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

    def at(self, level: int, path: bytes, near: _Touched) -> bytes | None:
        """The hash of the node that begins with this path, else of one that was read near it."""
        found = self._places.get((level, path))
        return found if found is not None or not near.items else self._places.get((level, near.items[0].path))

    async def height(self) -> int:
        return (await self._node(self._root))[0]

    async def runs(self, level: int, changes: Mapping[bytes, Item | None]) -> list[list[_Touched]]:
        """The nodes of a level that the changes fall into, in runs: a node whose first path goes, and with it the
        boundary, is in one run with the node before it."""
        touched: dict[bytes, _Touched] = {}
        for key in sorted(changes):
            way = await self._down(self._root, level, lambda items, key=key: max(_position(items, key), 0))  # type: ignore[misc]  # mypy can't infer a lambda with a default
            node = _touch(touched, way)
            node.keys.append(key)
            first = node.items[0].path if node.items else key
            if changes.get(first, node) is None and (before := await self._before(level, way)) is not None:
                _touch(touched, before).joined = True
        runs: list[list[_Touched]] = []
        for _, node in sorted(touched.items()):
            if runs and runs[-1][-1].joined:
                runs[-1].append(node)
            else:
                runs.append([node])
        return runs

    async def _before(self, level: int, way: Way) -> Way | None:
        """The way to the node before, at the same level."""
        for depth in range(len(way) - 2, -1, -1):
            items, at = way[depth]
            if at > 0:
                child = items[at - 1]
                assert isinstance(child, Child)
                below = await self._down(child.hash, level, lambda items: len(items) - 1)
                return [*way[:depth], (items, at - 1), *below]
        return None

    async def _down(self, hash_: bytes, level: int, choose: Callable[[list[Item]], int]) -> Way:
        way: Way = []
        while True:
            here, items = await self._node(hash_)
            at = choose(items) if items else 0
            way.append((items, at))
            if here == level:
                return way
            child = items[at]
            assert isinstance(child, Child)
            hash_ = child.hash

    async def _node(self, hash_: bytes) -> tuple[int, list[Item]]:
        if hash_ not in self._nodes:
            level, items = self._nodes[hash_] = unpack((await self._load([hash_]))[0])
            if items:
                self._places[level, items[0].path] = hash_
        return self._nodes[hash_]


def _touch(touched: dict[bytes, _Touched], way: Way) -> _Touched:
    items = way[-1][0]
    return touched.setdefault(items[0].path if items else b"", _Touched(items))


def _position(items: Sequence[Item], key: bytes) -> int:
    """The last item whose path is not greater than the key; -1 if all are."""
    return bisect_right(items, key, key=lambda item: item.path) - 1


def _applied(run: Sequence[_Touched], changes: Mapping[bytes, Item | None]) -> list[Item]:
    """The items of neighbouring nodes after the changes that fall into them."""
    items: dict[bytes, Item] = {item.path: item for node in run for item in node.items}
    for key in (key for node in run for key in node.keys):
        change = changes[key]
        if change is None:
            items.pop(key, None)
        else:
            items[key] = change
    return [items[path] for path in sorted(items)]


# -- reading in order ------------------------------------------------------------------------------------------------


async def _leaves(level: int, items: Sequence[Item], load: Load) -> AsyncIterator[list[Entry]]:
    """The entries below these items of a level, leaf by leaf."""
    waiting: list[tuple[int, Sequence[Item]]] = [(level, items)]  # the next ones last
    while waiting:
        level, items = waiting.pop()
        if level == 0:
            yield [item for item in items if isinstance(item, Entry)]
            continue
        if len(items) > CHILDREN_AT_ONCE:
            waiting.append((level, items[CHILDREN_AT_ONCE:]))
        hashes = [item.hash for item in items[:CHILDREN_AT_ONCE] if isinstance(item, Child)]
        waiting += [unpack(node) for node in reversed(await load(hashes))]


class _Cursor:
    """A place in a tree: the node or entry at the head, and what comes after it."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._waiting: list[tuple[int, Item]] = []  # the next one last; the level of the node, -1 for an entry

    async def start(self, root: bytes) -> None:
        level, items = unpack((await self._load([root]))[0])
        self._put(level, items)

    @property
    def head(self) -> Item | None:
        return self._waiting[-1][1] if self._waiting else None

    @property
    def level(self) -> int:
        return self._waiting[-1][0]

    def drop(self) -> None:
        self._waiting.pop()

    async def open(self) -> None:
        """Puts what is in the node at the head in its place."""
        _, child = self._waiting.pop()
        assert isinstance(child, Child)
        level, items = unpack((await self._load([child.hash]))[0])
        self._put(level, items)

    async def rest(self) -> AsyncIterator[list[Entry]]:
        """What is left, leaf by leaf: those of a tree that is compared with an empty one are all of it."""
        while self._waiting:
            level, item = self._waiting.pop()
            beside = [item]
            while self._waiting and self._waiting[-1][0] == level:
                beside.append(self._waiting.pop()[1])
            async for leaf in _leaves(level + 1, beside, self._load):
                yield leaf

    def _put(self, level: int, items: Sequence[Item]) -> None:
        self._waiting += ((level - 1, item) for item in reversed(items))
