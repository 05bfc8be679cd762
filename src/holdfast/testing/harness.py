"""Shared parts of the contract: a store for each test, commits to write, and assertions that explain."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, cast

from holdfast.backends.port import (
    AnyBackend,
    AsyncBackend,
    BlockingBackend,
    Commit,
    CommitConflict,
    RecordWrite,
    RowKey,
    RowWrite,
    SegmentWrite,
)
from holdfast.model import ids
from holdfast.testing.store_dump import StoreDump, dump

SPACES = ("head", "lease")

_EPOCH_MS = 1_700_000_000_000


def hash_bytes(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def tree_id(number: int) -> bytes:
    """Return the id of a tree, the same for the same number."""
    tag = bytes((0x80, 0, number >> 8 & 0xFF, number & 0xFF))
    return ids.make(_EPOCH_MS, 0, bytes(4), tag)


def record_id(number: int, tree: bytes) -> bytes:
    """Return the id of a tree's checkpoint: it rises with the number and ends in it.

    The same number gives the same id.
    """
    return ids.make(_EPOCH_MS + 1 + number, 0, number.to_bytes(4, "big"), ids.tree_tag(tree))


TREE = tree_id(1)
OTHER_TREE = tree_id(2)


def record(number: int, data: bytes | None = None, *, session: bytes = b"run-001", tree: bytes = TREE) -> RecordWrite:
    """Return record `number` of a session. Without `data`, its content names it."""
    content = b"record %d" % number if data is None else data
    return RecordWrite(record_id(number, tree), session, number, content)


def head(value: bytes | None, expect: int, tree: bytes = TREE, key: bytes = b"run-001") -> RowWrite:
    return RowWrite(RowKey("head", key, tree), value, expect)


def append(log: int, first: int, *elements: bytes) -> SegmentWrite:
    """Return an append of these elements to a log whose tail is `first`."""
    return SegmentWrite(log, first, len(elements), b"|".join(elements), tail=first)


def check_equal(actual: Any, expected: Any, rule: str) -> None:
    """Assert equality; on failure name the broken rule of the port before the values."""
    if actual != expected:
        raise AssertionError(f"{rule}\n  expected: {expected!r:.600}\n  actual:   {actual!r:.600}")


def check(condition: object, rule: str) -> None:
    if not condition:
        raise AssertionError(rule)


def check_raises(error: type[BaseException], call: Callable[[], object], rule: str) -> BaseException:
    try:
        result = call()
    except error as caught:
        return caught
    raise AssertionError(f"{rule}\n  expected: {error.__name__}\n  actual:   returned {result!r:.300}")


def skip(reason: str) -> NoReturn:
    import pytest

    pytest.skip(reason)


class Harness:
    """A test class that opens a store before each test (`self.backend`) and closes all after it."""

    where: Path
    backend: BlockingBackend
    _opened: list[BlockingBackend]
    _folder: tempfile.TemporaryDirectory[str]

    def open_backend(self, where: Path) -> AnyBackend:
        """Open a store, empty if this `where` is new: an existing empty directory, removed afterwards.

        Opening the same `where` again reaches the same store, if the backend's capabilities say
        durable or shared. A store that is not in the file system may use the directory's name to
        tell one test's store from another's.
        """
        raise NotImplementedError(f"{type(self).__name__} must define open_backend(self, where)")

    def setup_method(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-contract-", ignore_cleanup_errors=True)
        self.where = Path(self._folder.name)
        self._opened = []
        self.backend = self.open_again()

    def teardown_method(self) -> None:
        for backend in self._opened:
            backend.close()
        self._folder.cleanup()

    def second_handle(self) -> BlockingBackend:
        """Open another handle; skip the test if only one may be open."""
        if not self.backend.capabilities.shared:
            skip("capabilities.shared is False")
        return self.open_again()

    def open_again(self) -> BlockingBackend:
        """Open one more handle on this test's store."""
        opened = self.open_backend(self.where)
        if opened.capabilities.awaitable:
            from holdfast.backends.bridge.blocking import blocking

            backend = blocking(cast("AsyncBackend", opened))
        else:
            backend = cast("BlockingBackend", opened)
        self._opened.append(backend)
        return backend

    def commit(self, commit: Commit, backend: BlockingBackend | None = None) -> None:
        """Carry out one commit and raise its outcome."""
        outcomes = (backend or self.backend).commit_all([commit])
        check_equal(len(outcomes), 1, "commit_all gives one outcome for each commit")
        if outcomes[0] is not None:
            raise outcomes[0]

    def write(
        self, *, record: RecordWrite | None = None, segments: tuple[SegmentWrite, ...] = (),
        rows: tuple[RowWrite, ...] = (),
        blobs: tuple[bytes, ...] = (), tree: bytes = TREE,
    ) -> None:  # fmt: skip
        """Carry out a commit that is expected to succeed. Blobs are given as their contents."""
        self.commit(
            Commit(tree, record, segments=segments, rows=rows, blobs={hash_bytes(data): data for data in blobs})
        )

    def assert_refused(self, commit: Commit, kind: str, rule: str) -> None:
        """Assert that the commit is refused with this kind of conflict, and has changed nothing at all."""
        before = self.dump()
        outcome = self.backend.commit_all([commit])[0]
        check(
            isinstance(outcome, CommitConflict),
            f"{rule}\n  expected: CommitConflict({kind!r})\n  actual:   {outcome!r}",
        )
        assert isinstance(outcome, CommitConflict)
        check_equal(outcome.kind, kind, f"{rule}: the conflict says which condition did not hold")
        changed = before.differences(self.dump())
        check(not changed, f"{rule}: a refused commit changes nothing, but\n  " + "\n  ".join(changed))

    def dump(self, backend: BlockingBackend | None = None) -> StoreDump:
        return dump(backend or self.backend, SPACES)

    def segments_of(self, log: int) -> list[tuple[int, int]]:
        """Return the bounds of all segments of a log, in order."""
        return [(segment.first, segment.length) for segment in self.dump().segments.get(log, [])]
