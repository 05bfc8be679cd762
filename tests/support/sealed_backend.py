"""A sealed store as a blocking backend, for the contract suite and for attacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stores import RING

from holdfast.backends.bridge.blocking import blocking
from holdfast.backends.bridge.inline import InlineBridge
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.port import BlobInfo, Capabilities, Commit, Row, RowKey, SegmentInfo, Span, Usage
from holdfast.sealing.bridge import SealedBridge
from holdfast.sealing.open_store import OpenStore
from holdfast.sealing.store_keys import SPACE

_known: dict[bytes, bytes] = {}  # hashes of blobs, by their addresses


class SealedBackend:
    """The verbs of a sealed bridge, stepped on the caller's thread.

    Two things that a sealed store does not promise are put in here, so that the rest of the contract can be
    checked as it stands: the order of scanned rows, and sizes and hashes in listings.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = blocking(inner) if inner.capabilities.awaitable else inner
        self.bridge = SealedBridge(InlineBridge(self.inner), OpenStore(RING))

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, sealed=True)

    def commit_all(self, commits: Sequence[Commit]) -> list[BaseException | None]:
        return [self._outcome(commit) for commit in commits]

    def _outcome(self, commit: Commit) -> BaseException | None:
        run_inline(self.bridge._keys())
        _known.update({self.bridge.address(hash_): hash_ for hash_ in commit.blobs})
        addressed = {self.bridge.address(hash_): before for hash_, before in commit.delete_blobs.items()}
        try:
            run_inline(_awaited(self.bridge.commit(replace(commit, delete_blobs=addressed))))
        except Exception as error:
            return error
        return None

    def scan(
        self,
        space: str,
        *,
        tree: bytes | None = None,
        prefix: bytes = b"",
        after: bytes | None = None,
        limit: int | None = None,
    ) -> list[tuple[RowKey, Row]]:
        found = run_inline(self.bridge.scan(space, tree=tree, prefix=prefix))
        found.sort(key=lambda entry: (entry[0].key, entry[0].tree))
        return [entry for entry in found if after is None or entry[0].key > after][:limit]

    def page_blobs(self, after: bytes | None, limit: int) -> list[BlobInfo]:
        listed: list[BlobInfo] = []
        while page := run_inline(self.bridge.page_blobs(listed[-1].hash if listed else None, 100)):
            listed += page
        hashes = [_known[info.hash] for info in listed]
        contents = run_inline(self.bridge.blobs(hashes))
        named = [
            info._replace(hash=hash_, size=len(content or b""))
            for info, hash_, content in zip(listed, hashes, contents, strict=True)
        ]
        return [info for info in sorted(named) if after is None or info.hash > after][:limit]

    def page_segments(self, after: tuple[int, int] | None, limit: int) -> list[SegmentInfo]:
        listed = run_inline(self.bridge.page_segments(after, limit))
        spans = [Span(info.log, info.first, info.first + info.length) for info in listed]
        found = run_inline(self.bridge.segments(spans))
        return [info._replace(size=len(items[0].data)) for info, items in zip(listed, found, strict=True)]

    def usage(self) -> Usage:
        """Without the rows of keys."""
        found = run_inline(self.bridge.usage())
        rows = [row for _, row in self.inner.scan(SPACE)]
        size = sum(len(row.value) for row in rows)
        return found._replace(rows=found.rows - len(rows), row_bytes=found.row_bytes - size)

    def close(self) -> None:
        self.inner.close()

    def __getattr__(self, verb: str) -> Any:
        if verb in ("get_ready", "listen", "without_loop"):
            raise AttributeError(verb)
        method = getattr(self.bridge, verb)
        return lambda *args, **kwargs: run_inline(method(*args, **kwargs))


async def _awaited(outcome: Any) -> None:
    await outcome
