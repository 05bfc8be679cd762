"""What snapshots refer to: every node of their trees, every list of chunks, every blob of a file's content. Whoever marks,
counts, checks, exports or imports blobs asks here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from holdfast.model.snapshot_reference import SCHEME
from holdfast.objects import filetree
from holdfast.objects import snapshot as objects

AT_ONCE = 64

Fetch = Callable[[Sequence[bytes]], Awaitable[Sequence[bytes]]]  # the contents of these blobs, checked


class _Part(NamedTuple):
    """An object of a snapshot that refers to others: its own size, the objects below it, the blobs it names."""

    size: int
    below: tuple[bytes, ...]
    blobs: dict[bytes, int]  # by size


class Reach:
    """The objects of some snapshots; what two of them have in common is read once."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._parts: dict[bytes, _Part] = {}

    async def learn(self, reference: str) -> None:
        """Reads what the snapshot of that reference consists of."""
        wanted: _Below = [(bytes.fromhex(reference.removeprefix(SCHEME)), _of_snapshot)]
        while wanted:
            batch = [one for one in wanted[-AT_ONCE:] if one[0] not in self._parts]
            del wanted[-AT_ONCE:]
            batch = list(dict(batch).items())  # two chunk lists, or nodes, may be the same one
            for (hash_, read), content in zip(batch, await self._fetch([hash_ for hash_, _ in batch]), strict=True):
                part, below = read(content)
                self._parts[hash_] = part
                wanted += [one for one in below if one[0] not in self._parts]

    def blobs(self, references: Iterable[str]) -> dict[bytes, int]:
        """Every blob that these need, with the size of its content. They must have been learned."""
        found: dict[bytes, int] = {}
        met: set[bytes] = set()
        waiting = [bytes.fromhex(reference.removeprefix(SCHEME)) for reference in references]
        while waiting:
            hash_ = waiting.pop()
            if hash_ in met:
                continue
            met.add(hash_)
            part = self._parts[hash_]
            found[hash_] = part.size
            found.update(part.blobs)
            waiting += part.below
        return found

    def everything(self) -> dict[bytes, int]:
        """Every blob of every snapshot that was learned."""
        found = {hash_: part.size for hash_, part in self._parts.items()}
        for part in self._parts.values():
            found.update(part.blobs)
        return found


_Below = list[tuple[bytes, Callable[[bytes], "tuple[_Part, _Below]"]]]


def _of_snapshot(content: bytes) -> tuple[_Part, _Below]:
    tree = objects.unpack(content).tree
    below: _Below = [] if tree is None else [(tree, _of_node)]
    return _Part(len(content), tuple(hash_ for hash_, _ in below), {}), below


def _of_node(content: bytes) -> tuple[_Part, _Below]:
    children, entries = filetree.children(content)
    below: _Below = [(hash_, _of_node) for hash_ in children]
    below += [(entry.content, _of_chunks) for entry in entries if entry.is_chunked]
    whole = {
        entry.content: entry.size
        for entry in entries
        if entry.kind == "file" and not entry.is_chunked and entry.size > 0
    }
    return _Part(len(content), tuple(hash_ for hash_, _ in below), whole), below


def _of_chunks(content: bytes) -> tuple[_Part, _Below]:
    chunks = objects.unpack_chunks(content)
    return _Part(len(content), (), {chunk.hash: chunk.size for chunk in chunks if chunk.hash != objects.HOLE}), []
