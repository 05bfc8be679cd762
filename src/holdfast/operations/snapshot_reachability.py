"""The objects that snapshots refer to: nodes of their trees, lists of chunks, contents of files.

Every operation that marks, counts, checks, exports or imports blobs asks here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast.errors import CorruptError
from holdfast.format.files import snapshot as objects
from holdfast.format.files import tree_node
from holdfast.model.ids import SCHEME
from holdfast.model.snapshot import FileEntry

AT_ONCE = 64

Fetch = Callable[[Sequence[bytes]], Awaitable[Sequence[bytes]]]  # the contents of these blobs, checked


class SnapshotCounts(NamedTuple):
    """The sizes that a snapshot claims."""

    files: int
    directories: int
    symlinks: int
    size: int


class _Part(NamedTuple):
    """An object of a snapshot that refers to others: its size, the objects below it, the named blobs."""

    size: int
    below: tuple[bytes, ...]
    blobs: dict[bytes, int]  # by size
    counts: SnapshotCounts | None = None  # of a snapshot: the claimed sizes of its tree
    extent: tree_node.Extent | None = None  # of a leaf
    inner: tuple[int, list[tree_node.Child]] | None = None  # of a node above the leaves: its level, its children
    large: tuple[tuple[bytes, int], ...] = ()  # of a leaf: the chunk lists of its large files, and the sizes of these
    chunked: int | None = None  # of a list of chunks: the size of the file


class SnapshotReachability:
    """The objects of some snapshots; common ones are read once."""

    def __init__(self, fetch: Fetch, at_once: int = AT_ONCE) -> None:
        self._fetch = fetch
        self._at_once = at_once
        self._parts: dict[bytes, _Part] = {}
        self._extents: dict[bytes, tree_node.Extent] = {}

    async def learn(self, reference: str) -> None:
        """Read the parts of the snapshot of that reference.

        Raises `CorruptError` unless its parts fit together: nodes are in order, one level below the
        other, and no blob has two sizes.
        """
        snapshot = bytes.fromhex(reference.removeprefix(SCHEME))
        wanted: _Below = [(snapshot, _read_snapshot)]
        known = self._parts
        new: dict[bytes, _Part] = {}  # added once complete: for a known part, everything below it is known, too
        while wanted:
            batch = [item for item in wanted[-self._at_once :] if item[0] not in known and item[0] not in new]
            del wanted[-self._at_once :]
            batch = list(dict(batch).items())  # two chunk lists, or nodes, may be the same one
            for (hash_, read), content in zip(batch, await self._fetch([hash_ for hash_, _ in batch]), strict=True):
                part, below = read(content)
                new[hash_] = part
                wanted += [item for item in below if item[0] not in known and item[0] not in new]
        known |= new
        self._check(known[snapshot])

    def _check(self, snapshot: _Part) -> None:
        for root in snapshot.below:
            extent = self._extent(root)
            if snapshot.counts != extent[3:]:
                raise _make_malformed_error(
                    f"it says {snapshot.counts}, and its tree holds {SnapshotCounts(*extent[3:])}"
                )

    def _extent(self, root: bytes) -> tree_node.Extent:
        """Return the contents of a subtree, checked; each node once, the lower ones first."""
        waiting = [root]
        while waiting:
            hash_ = waiting[-1]
            if hash_ in self._extents:
                waiting.pop()
                continue
            part = self._parts[hash_]
            if part.inner is not None:
                level, children = part.inner
                missing = [child.hash for child in children if child.hash not in self._extents]
                if missing:
                    waiting += missing
                    continue
                self._extents[hash_] = tree_node.extent(level, children, self._extents)
            elif part.extent is not None:
                self._extents[hash_] = part.extent
            else:
                raise _make_malformed_error("an object that is no node stands among those of its tree")
            if any(self._parts[chunks].chunked != size for chunks, size in part.large):
                raise _make_malformed_error("a file is not as long as its chunks are together")
            waiting.pop()
        return self._extents[root]

    def blobs(self, references: Iterable[str]) -> dict[bytes, int]:
        """Return every blob that these need, with the size of its content. They must have been learned."""
        found: dict[bytes, int] = {}
        counted: set[bytes] = set()
        waiting = [bytes.fromhex(reference.removeprefix(SCHEME)) for reference in references]
        while waiting:
            hash_ = waiting.pop()
            if hash_ in counted:
                continue
            counted.add(hash_)
            part = self._parts[hash_]
            _add(found, {hash_: part.size, **part.blobs})
            waiting += part.below
        return found

    def list_all(self) -> dict[bytes, int]:
        """Return every blob of every snapshot that was learned."""
        found = {hash_: part.size for hash_, part in self._parts.items()}
        for part in self._parts.values():
            _add(found, part.blobs)
        return found


_Below = list[tuple[bytes, Callable[[bytes], "tuple[_Part, _Below]"]]]


def _add(sizes: dict[bytes, int], more: Mapping[bytes, int]) -> None:
    if any(sizes.get(hash_, size) != size for hash_, size in more.items()):
        raise _make_malformed_error("one content has two sizes")
    sizes.update(more)


def _make_malformed_error(why: str) -> CorruptError:
    return CorruptError(f"a snapshot is malformed: {why}. Run `verify`")


def _read_snapshot(content: bytes) -> tuple[_Part, _Below]:
    snapshot = objects.unpack(content)
    below: _Below = [] if snapshot.tree is None else [(snapshot.tree, _read_node)]
    counts = SnapshotCounts(snapshot.files, snapshot.directories, snapshot.symlinks, snapshot.size)
    return _Part(len(content), tuple(hash_ for hash_, _ in below), {}, counts), below


def _read_node(content: bytes) -> tuple[_Part, _Below]:
    level, items = tree_node.unpack(content)
    if level:
        children = [item for item in items if isinstance(item, tree_node.Child)]
        below: _Below = [(child.hash, _read_node) for child in children]
        return _Part(len(content), tuple(hash_ for hash_, _ in below), {}, inner=(level, children)), below
    files = [item for item in items if isinstance(item, FileEntry) and item.kind == "file"]
    large = tuple((entry.content, entry.size) for entry in files if entry.is_chunked)
    whole: dict[bytes, int] = {}
    for entry in files:
        if entry.is_one_blob:
            _add(whole, {entry.content: entry.size})
    found = _Part(
        len(content), tuple(hash_ for hash_, _ in large), whole, extent=tree_node.extent(0, items, {}), large=large
    )
    return found, [(hash_, _read_chunks) for hash_, _ in large]


def _read_chunks(content: bytes) -> tuple[_Part, _Below]:
    chunks = objects.unpack_chunks(content)
    sizes: dict[bytes, int] = {}
    for chunk in chunks:
        if chunk.hash != objects.HOLE:
            _add(sizes, {chunk.hash: chunk.size})
    return _Part(len(content), (), sizes, chunked=sum(chunk.size for chunk in chunks)), []
