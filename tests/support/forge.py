"""Forges bundles and stores whose every hash and checksum is right, and whose meaning is not."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from unittest import mock

import ormsgpack

from holdfast import SyncClient
from holdfast.backends.bridge.step import run_inline
from holdfast.format import frame
from holdfast.format.files import file_tree, tree_node
from holdfast.format.files import snapshot as objects
from holdfast.format.files.snapshot import HOLE, Chunk
from holdfast.format.files.tree_node import Child
from holdfast.model.snapshot import FileEntry, Snapshot
from holdfast.operations import save, snapshot_reachability
from holdfast.operations.snapshot_reachability import SnapshotReachability
from holdfast.operations.validate import FilesWrite, SaveRequest

GIB = 1 << 30
PROGRAM = "#!/bin/sh\necho ran > {}\n"


class Forge:
    """Snapshots out of hand-made nodes, in the session `s` of a store."""

    def __init__(self, client: SyncClient | None = None) -> None:
        self.client = client or SyncClient.memory()
        self.blobs: dict[bytes, bytes] = {}

    def put(self, content: bytes) -> bytes:
        """Its hash."""
        hash_ = hashlib.sha256(content).digest()
        self.blobs[hash_] = content
        return hash_

    def file(self, path: bytes, content: bytes, mode: int = 0o644) -> FileEntry:
        return FileEntry(path, "file", mode, len(content), self.put(content))

    def chunked(self, path: bytes, chunks: Sequence[Chunk], size: int | None = None) -> FileEntry:
        content = self.put(ormsgpack.packb([[chunk.size, chunk.hash] for chunk in chunks]))
        return FileEntry(path, "file", 0o644, sum(chunk.size for chunk in chunks) if size is None else size, content)

    @staticmethod
    def directory(path: bytes, mode: int = 0o755) -> FileEntry:
        return FileEntry(path, "dir", mode, 0, b"")

    def node(self, level: int, items: Sequence[FileEntry | Child]) -> bytes:
        return self.put(tree_node.pack(level, items))

    def tree(self, entries: Sequence[FileEntry]) -> bytes:
        built = file_tree.build(entries)
        self.blobs |= built.nodes
        return built.root

    def save(self, root: bytes, counts: Sequence[int] = (0, 0, 0, 0)) -> str:
        """The checkpoint whose files are this tree."""
        files, directories, symlinks, size = counts
        data = objects.pack(
            Snapshot(
                reference="holdfast:", tree=root, files=files, directories=directories, symlinks=symlinks, size=size
            )
        )
        reference = f"holdfast:{self.put(data).hex()}"
        files_write = FilesWrite({hash_: frame.compress(content) for hash_, content in self.blobs.items()})
        request = SaveRequest(
            agent_id="a",
            session_id="s",
            execution_state={"n": 1},
            agent_context={},
            workspace=reference,
            files=files_write,
        )
        run_inline(save.save(self.client._ctx, request))
        return self.client.timeline(session_id="s")[0].checkpoint_id

    def save_entries(self, entries: Sequence[FileEntry]) -> str:
        kinds = [entry.kind for entry in entries]
        size = sum(entry.size for entry in entries if entry.kind == "file")
        counts = (kinds.count("file"), kinds.count("dir"), kinds.count("symlink"), size)
        return self.save(self.tree(entries), counts)

    def bundle(self) -> bytes:
        """Everything, as a stranger's export would write it: no check of ours stands in its way."""
        file = io.BytesIO()
        with (
            mock.patch.object(SnapshotReachability, "_check", create=True),
            mock.patch.object(snapshot_reachability, "_add", dict.update, create=True),
            mock.patch.object(tree_node, "MAX_LEVEL", 99),
        ):
            self.client.export(file)
        return file.getvalue()


def fsmonitor(forge: Forge, above: bytes, witness: str, name: bytes = b".git") -> list[FileEntry]:
    """A repository whose `git status` runs a program."""
    program = forge.file(above + b"run", PROGRAM.format(witness).encode(), 0o755)
    git = above + name
    config = b"[core]\n\trepositoryformatversion = 0\n\tfsmonitor = ./run\n"
    return [
        program,
        forge.directory(git),
        forge.file(git + b"/HEAD", b"ref: refs/heads/main\n"),
        forge.file(git + b"/config", config),
        forge.directory(git + b"/hooks"),
        forge.file(git + b"/hooks/post-checkout", PROGRAM.format(witness).encode(), 0o755),
        forge.directory(git + b"/objects"),
        forge.directory(git + b"/refs"),
    ]


def bare(forge: Forge, at: bytes, witness: str) -> list[FileEntry]:
    """The inside of a repository, without a `.git` around it."""
    config = b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = ./run\n"
    return [
        forge.directory(at),
        forge.file(at + b"/HEAD", b"ref: refs/heads/main\n"),
        forge.file(at + b"/config", config),
        forge.directory(at + b"/objects"),
        forge.directory(at + b"/refs"),
        forge.file(at + b"/run", PROGRAM.format(witness).encode(), 0o755),
    ]


# -- trees that are none ---------------------------------------------------------------------------------------------


def shared_child(forge: Forge) -> str:
    """Thirty levels of nodes, each with one child four times: 4 ** 30 leaves in 4 KB."""
    hash_ = forge.node(0, [forge.file(b"a", b"x")])
    for level in range(1, 31):
        hash_ = forge.node(level, [Child(bytes((97 + at,)), hash_) for at in range(4)])
    return forge.save(hash_, (1, 0, 0, 1))


def shared_low(forge: Forge) -> str:
    """The same within the levels that there may be."""
    hash_ = forge.node(0, [forge.file(b"a", b"x")])
    for level in range(1, 16):
        hash_ = forge.node(level, [Child(bytes((97 + at,)), hash_) for at in range(4)])
    return forge.save(hash_, (1, 0, 0, 1))


def no_levels(forge: Forge) -> str:
    """Nodes of one level below each other."""
    hash_ = forge.node(0, [forge.file(b"a", b"x")])
    for _ in range(30):
        hash_ = forge.node(1, [Child(bytes((97 + at,)), hash_) for at in range(4)])
    return forge.save(hash_, (1, 0, 0, 1))


def out_of_order(forge: Forge) -> str:
    """A leaf that reaches beyond the first path of the next."""
    first = forge.node(0, [forge.file(b"a", b"x"), forge.file(b"z", b"x")])
    second = forge.node(0, [forge.file(b"m", b"x")])
    return forge.save(forge.node(1, [Child(b"a", first), Child(b"m", second)]), (3, 0, 0, 3))


def other_first_path(forge: Forge) -> str:
    leaf = forge.node(0, [forge.file(b"b", b"x")])
    return forge.save(forge.node(1, [Child(b"a", leaf)]), (1, 0, 0, 1))


def empty_leaf(forge: Forge) -> str:
    return forge.save(forge.node(1, [Child(b"a", forge.node(0, []))]), (0, 0, 0, 0))


def other_counts(forge: Forge) -> str:
    """A snapshot that says less than its tree holds."""
    return forge.save(forge.tree([forge.file(b"a", b"x" * 100)]), (0, 0, 0, 0))


def two_sizes(forge: Forge) -> str:
    """One content, of which two entries say other sizes."""
    entry = forge.file(b"a", b"x" * 100)
    return forge.save(forge.tree([entry._replace(size=50), entry._replace(path=b"b")]), (2, 0, 0, 150))


def short_chunks(forge: Forge) -> str:
    """A file that is longer than its chunks are together."""
    entry = forge.chunked(b"a", [Chunk(5, forge.put(b"12345"))], size=2 * GIB)
    return forge.save(forge.tree([entry]), (1, 0, 0, 2 * GIB))


def no_directory(forge: Forge) -> str:
    """A file in a directory that the tree has not."""
    return forge.save(forge.tree([forge.file(b"a/b", b"x")]), (1, 0, 0, 1))


MALFORMED = {
    one.__name__: one
    for one in (
        shared_child,
        shared_low,
        no_levels,
        out_of_order,
        other_first_path,
        empty_leaf,
        other_counts,
        two_sizes,
        short_chunks,
    )
}


# -- trees that are too much -----------------------------------------------------------------------------------------


def large_hole(forge: Forge) -> str:
    """A file of 10 GB, all of it a hole."""
    return forge.save_entries([forge.chunked(b"hole", [Chunk(10 * GIB, HOLE)])])


def large_file(forge: Forge) -> str:
    """A file of 10 GB: one chunk, again and again."""
    chunk = Chunk(1 << 18, forge.put(bytes(1 << 18)))
    return forge.save_entries([forge.chunked(b"large", [chunk] * 40_000)])


def many_large_files(forge: Forge) -> str:
    """A hundred files of 1 GB, which share their chunks."""
    chunk = Chunk(1 << 18, forge.put(bytes(1 << 18)))
    return forge.save_entries([forge.chunked(b"large %03d" % at, [chunk] * 4096) for at in range(100)])


def deep(forge: Forge) -> str:
    """5,000 directories within each other."""
    return forge.save_entries([forge.directory(b"/".join([b"d"] * depth)) for depth in range(1, 5001)])


TOO_MUCH = {one.__name__: one for one in (large_hole, large_file, many_large_files, deep)}
