"""Execution of a restore plan: contents come in portions, and files are written in a thread.

An event loop runs on meanwhile.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from holdfast.model.file_restore_plan import FileAction, LeftPath
from holdfast.model.snapshot import WHOLE_BYTES, FileEntry
from holdfast.workspace.restore.apply import Applier, NotEmpty
from holdfast.workspace.restore.writeback import Writeback

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor
    from typing import Self

PORTION_BYTES = 4_000_000
PORTION_ACTIONS = 256
WORTH_A_THREAD = 512 * 1024
HOLDS_OTHERS = "it holds what is in no snapshot"

T = TypeVar("T")
Progress = Callable[[int, int], None]


class ContentSource(Protocol):
    """Where the contents of files come from."""

    async def read_whole(self, entries: Sequence[FileEntry]) -> Iterator[bytes]:
        """Return the contents of small files, in this order; the iterator works in the writing thread."""

    def pieces(self, entry: FileEntry) -> AsyncIterator[tuple[int, bytes | None]]:
        """Yield the content of a large file, piece by piece: sizes and bytes, None for a hole."""


class LocalCopies(Protocol):
    """Files that are on the disk already, and need not be fetched."""

    def has(self, entry: FileEntry) -> bool: ...

    def copy_into(self, entry: FileEntry, descriptor: int) -> bool: ...


class Executor(Protocol):
    """Where blocking calls are made."""

    def run_in_thread(self, call: Callable[[], T]) -> Awaitable[T]: ...


async def carry_out(
    backend: Executor,
    applier: Applier,
    actions: Sequence[FileAction],
    source: ContentSource,
    progress: Progress | None = None,
    copies: LocalCopies | None = None,
    check: Callable[[Sequence[LeftPath]], None] | None = None,
) -> list[LeftPath]:
    """Carry out all actions, in order, and make them durable.

    Return the directories that could not be removed because they hold something that is not ours to
    delete. `check` is called with them when everything is in place, while it is flushed to the
    disk. `ChangedUnder` stops it at once.
    """
    with Writeback(applier.sync) as writeback:
        left = await _carry_out(backend, applier, actions, source, progress, copies, writeback)
        await backend.run_in_thread(applier.settle)
        checked = functools.partial(check, left) if check is not None else _do_nothing
        await backend.run_in_thread(functools.partial(writeback.sync_all, checked))
    return left


def _do_nothing() -> None: ...


async def _carry_out(
    backend: Executor,
    applier: Applier,
    actions: Sequence[FileAction],
    source: ContentSource,
    progress: Progress | None,
    copies: LocalCopies | None,
    writeback: Writeback,
) -> list[LeftPath]:
    with Prefetcher(source) as ahead:
        execution = _Progress(backend, applier, actions, progress, writeback)
        for portion in portions(actions):
            rest = portion
            if copies is not None:
                await execution.finish()
                rest = await _copy_local(backend, applier, portion, copies)
                execution.count(len(portion) - len(rest))
            if rest and _is_large(rest[0]):
                await execution.finish()
                await _write_large(backend, applier, rest[0], source, writeback)
                execution.count(1)
            elif rest:
                files = _files(rest)
                # While the files of one portion are made, another thread unpacks those of the next.
                contents = await ahead.fetch(files)
                await execution.finish()
                execution.waiting = (rest, contents)
                if not files:
                    await execution.finish()
        await execution.finish()
    return execution.left


class _Progress:
    """The progress of a plan: the actions done, and the next ones."""

    def __init__(
        self,
        backend: Executor,
        applier: Applier,
        actions: Sequence[FileAction],
        progress: Progress | None,
        writeback: Writeback,
    ) -> None:
        self.left: list[LeftPath] = []
        self.waiting: tuple[list[FileAction], Iterator[bytes]] | None = None
        self._made_again = {action.path for action in actions if action.doing == "create"}
        self._done = 0
        self._all = len(actions)
        self._backend = backend
        self._applier = applier
        self._progress = progress
        self._writeback = writeback

    def count(self, more: int) -> None:
        self._done += more
        if self._progress is not None and more:
            self._progress(self._done, self._all)

    async def finish(self) -> None:
        """Do what waits."""
        if self.waiting is None:
            return
        portion, contents = self.waiting
        self.waiting = None
        doing = functools.partial(_do, self._applier, portion, contents, self._made_again)
        self.left.extend(await self._backend.run_in_thread(doing))
        self.count(len(portion))
        self._writeback.add(sum(action[3][3] for action in portion if action[3] is not None))


class Prefetcher:
    """A thread that unpacks the contents that are needed next. There is none as long as they are small."""

    def __init__(self, source: ContentSource) -> None:
        self._source = source
        self._threads: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._threads is not None:
            self._threads.shutdown()

    async def fetch(self, files: Sequence[FileEntry]) -> Iterator[bytes]:
        """Return the contents of files; an error in the thread is raised when they are requested."""
        if sum(entry[3] for entry in files) < WORTH_A_THREAD:
            return await self._source.read_whole(files) if files else iter(())
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor

            self._threads = ThreadPoolExecutor(1, "holdfast-unpacking")
        return self._contents_of(self._threads.submit(list, await self._source.read_whole(files)))

    @staticmethod
    def _contents_of(unpacking: Future[list[bytes]]) -> Iterator[bytes]:
        yield from unpacking.result()


async def _copy_local(
    backend: Executor, applier: Applier, portion: list[FileAction], copies: LocalCopies
) -> list[FileAction]:
    """Return what could not be copied from files on the disk."""
    local = [
        action for action in portion if _has_content(action) and action.after is not None and copies.has(action.after)
    ]
    copied = await backend.run_in_thread(functools.partial(_copy, applier, local, copies)) if local else set()
    return [action for action in portion if action.path not in copied]


def portions(actions: Iterable[FileAction]) -> Iterator[list[FileAction]]:
    """Yield the actions, in order, in portions whose contents fit into memory.

    A large file is a portion by itself. A portion of files holds nothing else: the directories that
    they are in exist when it begins.
    """
    gathered: list[FileAction] = []
    size = 0
    is_of_files = False
    for action in actions:
        after = action[3]
        has_content = _has_content(action)
        more = after[3] if has_content and after is not None else 0
        large = more > WHOLE_BYTES
        full = size + more > PORTION_BYTES or len(gathered) == PORTION_ACTIONS
        if gathered and (large or full or has_content != is_of_files):
            yield gathered
            gathered, size = [], 0
        is_of_files = has_content
        gathered.append(action)
        size += more
        if large:
            yield gathered
            gathered, size = [], 0
    if gathered:
        yield gathered


def _has_content(action: FileAction) -> bool:
    doing, _, _, after = action
    return after is not None and after[1] == "file" and doing != "chmod"


def _files(actions: Iterable[FileAction]) -> list[FileEntry]:
    return [action.after for action in actions if _has_content(action) and action.after is not None]


def _is_large(action: FileAction) -> bool:
    return _has_content(action) and action.after is not None and action.after.is_chunked


def _do(
    applier: Applier, actions: Sequence[FileAction], contents: Iterator[bytes], made_again: set[bytes]
) -> list[LeftPath]:
    left: list[LeftPath] = []
    for action in actions:
        doing, path, _, after = action
        if doing == "delete":
            try:
                applier.delete(action)
            except NotEmpty:
                if path in made_again:  # as a file: there is no room for it
                    raise
                left.append(LeftPath(path, HOLDS_OTHERS))
        elif doing == "chmod":
            applier.change_mode(action)
        elif after is not None and after.kind == "dir":
            applier.make_directory(action)
        elif after is not None and after.kind == "symlink":
            applier.make_link(action)
        else:
            applier.put_file(action, next(contents))
    return left


def _copy(applier: Applier, actions: Sequence[FileAction], copies: LocalCopies) -> set[bytes]:
    """Return the paths that could be made from files on the disk."""
    return {action.path for action in actions if applier.put_copy(action, copies.copy_into)}


async def _write_large(
    backend: Executor, applier: Applier, action: FileAction, source: ContentSource, writeback: Writeback
) -> None:
    assert action.after is not None
    unfinished = await backend.run_in_thread(lambda: applier.begin_file(action))
    try:
        async for size, data in source.pieces(action.after):
            if data is None:
                applier.leave_hole(unfinished, size)
            else:
                await backend.run_in_thread(functools.partial(applier.write, unfinished, data))
                writeback.add(size)
    except BaseException:
        applier.abandon(unfinished)
        raise
    await backend.run_in_thread(lambda: applier.finish_file(unfinished))
