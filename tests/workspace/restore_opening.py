"""How the processes that are killed open their directory, and how what they left is opened and judged."""

from __future__ import annotations

from pathlib import Path

from plain_directory import PlainDirectory

from holdfast import SyncClient
from holdfast.backends.bridge import run_inline
from holdfast.model.workspace import Snapshot
from holdfast.objects import filetree
from holdfast.operations import snapshots


def open_directory(store: str, root: Path) -> PlainDirectory:
    return PlainDirectory(SyncClient.sqlite(store, durability="fast"), root)


def name(snapshot: Snapshot) -> str:
    return snapshot.reference


def entries_of(directory: PlainDirectory, reference: str) -> dict:
    async def read() -> dict:
        tree = (await snapshots.load(directory.services, reference)).tree
        assert tree is not None
        return {entry.path: entry async for entry in filetree.entries(tree, snapshots.loader(directory.services))}

    return run_inline(read())


def is_users(path: bytes) -> bool:
    return path.rpartition(b"/")[2].startswith(b"user-")


def without_users(entries: dict) -> dict:
    return {path: entry for path, entry in entries.items() if not is_users(path)}
