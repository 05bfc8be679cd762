"""A plan, carried out: contents are fetched from where they are kept, in portions, and the file system is changed aside, so
that an event loop goes on meanwhile."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from holdfast.backends.stepping import run_inline
from holdfast.model.restore_plan import Action, Left
from holdfast.model.workspace import WHOLE_BYTES, Entry
from holdfast.workspace.apply import Applier, NotEmpty
from holdfast.workspace.sharing import Sharing
from holdfast.workspace.writeback import Writeback

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor
    from typing import Self

    from holdfast.workspace.workers import Outcome

PORTION_BYTES = 4_000_000
PORTION_ACTIONS = 256
WORTH_A_THREAD = 512 * 1024
HOLDS_OTHERS = "it holds what is in no snapshot"

T = TypeVar("T")
Progress = Callable[[int, int], None]


class Source(Protocol):
    """Where the contents of files come from."""

    async def whole(self, entries: Sequence[Entry]) -> Iterator[bytes]:
        """The contents of small files, in this order. What the iterator does is done aside, where files are written."""

    async def framed(self, entries: Sequence[Entry]) -> Mapping[bytes, bytes]:
        """The same contents as the store has them, unchecked, by their hashes."""

    def pieces(self, entry: Entry) -> AsyncIterator[tuple[int, bytes | None]]:
        """The content of a large file, piece by piece: sizes and bytes, None for a hole."""


class Copying(Protocol):
    """Files that are on the disk already, and need not be fetched."""

    def has(self, entry: Entry) -> bool: ...

    def copy_into(self, entry: Entry, descriptor: int) -> bool: ...


class Apart(Protocol):
    """Where blocking calls are made."""

    def apart(self, call: Callable[[], T]) -> Awaitable[T]: ...

    @property
    def at_once(self) -> object | None:
        """Not None where threads ask the store themselves."""


async def carry_out(
    backend: Apart,
    applier: Applier,
    actions: Sequence[Action],
    source: Source,
    progress: Progress | None = None,
    copies: Copying | None = None,
    check: Callable[[Sequence[Left]], None] | None = None,
) -> list[Left]:
    """Does everything, in order, and makes it durable. Returns the directories that could not go, because there is
    something in them which is not ours to delete. `check` is called with them when everything is in its place, while it goes to the
    disk. `ChangedUnder` ends it where it stands."""
    with Writeback(applier.sync) as writeback:
        left = await _carry_out(backend, applier, actions, source, progress, copies, writeback)
        await backend.apart(applier.settle)
        checked = functools.partial(check, left) if check is not None else _nothing
        await backend.apart(functools.partial(writeback.all_of_it, checked))
    return left


def _nothing() -> None: ...


async def _carry_out(
    backend: Apart,
    applier: Applier,
    actions: Sequence[Action],
    source: Source,
    progress: Progress | None,
    copies: Copying | None,
    writeback: Writeback,
) -> list[Left]:
    with (
        Sharing(applier, actions, PORTION_ACTIONS, PORTION_BYTES) as sharing,
        Ahead(source, asks=sharing.is_worth_it and backend.at_once is not None) as ahead,
    ):
        course = _Course(backend, applier, actions, source, progress, writeback, sharing)
        for portion in portions(as_needed(actions, PORTION_ACTIONS) if sharing.is_on else actions):
            rest = portion
            if copies is not None:
                await course.finish()
                rest = await _not_copied(backend, applier, portion, copies)
                course.count(len(portion) - len(rest))
            if rest and _is_large(rest[0]):
                await course.finish()
                await _write_large(backend, applier, rest[0], source, writeback)
                course.count(1)
            elif rest and not await course.hand_over(rest):
                files = _files(rest)
                # While the files of one portion are made, another thread gets those of the next.
                contents = await ahead.begun(files)
                await course.finish()
                course.waiting = (rest, contents)
                if not files:
                    await course.finish()
        await course.finish()
        await course.judge(sharing.rest)
    return course.left


class _Course:
    """A plan on its way: what is done, and what comes next."""

    def __init__(
        self,
        backend: Apart,
        applier: Applier,
        actions: Sequence[Action],
        source: Source,
        progress: Progress | None,
        writeback: Writeback,
        sharing: Sharing,
    ) -> None:
        self.left: list[Left] = []
        self.waiting: tuple[list[Action], Iterator[bytes]] | None = None
        self._made_again = {action.path for action in actions if action.doing == "create"}
        self._done = 0
        self._all = len(actions)
        self._backend = backend
        self._applier = applier
        self._source = source
        self._progress = progress
        self._writeback = writeback
        self._sharing = sharing

    def count(self, more: int) -> None:
        self._done += more
        if self._progress is not None and more:
            self._progress(self._done, self._all)

    async def finish(self) -> None:
        """Does what waits."""
        if self.waiting is None:
            return
        portion, contents = self.waiting
        self.waiting = None
        await self._do(portion, contents)

    async def hand_over(self, portion: list[Action]) -> bool:
        """Lets a worker do it, if one is there that has little to do."""
        if not self._sharing.has_room_for(portion):
            return False
        frames = await self._source.framed(_files(portion))
        is_taken = await self._backend.apart(lambda: self._sharing.give(portion, frames))
        await self.judge(self._sharing.finished)
        return is_taken

    async def judge(self, outcomes: Callable[[], list[Outcome[list[Action]]]]) -> None:
        """What workers have done counts; what was lost with one is done here."""
        for portion, _, is_done in await self._backend.apart(outcomes):
            if is_done:
                self._note(portion)
            else:
                await self._do(portion, await self._source.whole(_files(portion)))

    async def _do(self, portion: list[Action], contents: Iterator[bytes]) -> None:
        doing = functools.partial(_do, self._applier, portion, contents, self._made_again)
        self.left.extend(await self._backend.apart(doing))
        self._note(portion)

    def _note(self, portion: list[Action]) -> None:
        self.count(len(portion))
        self._writeback.wrote(sum(action[3][3] for action in portion if action[3] is not None))


class Ahead:
    """A thread that works out what will be needed next. It is there only if that is much. One that `asks` reads from the store what it
    unpacks, where threads can do that; else it gets what was read."""

    def __init__(self, source: Source, *, asks: bool) -> None:
        self._source = source
        self._asks = asks
        self._threads: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._threads is not None:
            self._threads.shutdown()

    async def begun(self, files: Sequence[Entry]) -> Iterator[bytes]:
        """Their contents. What fails in the thread is raised when they are asked for."""
        if sum(entry[3] for entry in files) < WORTH_A_THREAD:
            return await self._source.whole(files) if files else iter(())
        if self._threads is None:
            from concurrent.futures import ThreadPoolExecutor

            self._threads = ThreadPoolExecutor(1, "holdfast-unpacking")
        if self._asks:
            return self._given(self._threads.submit(_whole, self._source, files))
        return self._given(self._threads.submit(list, await self._source.whole(files)))

    @staticmethod
    def _given(unpacking: Future[list[bytes]]) -> Iterator[bytes]:
        yield from unpacking.result()


def _whole(source: Source, files: Sequence[Entry]) -> list[bytes]:
    return list(run_inline(source.whole(files)))


async def _not_copied(backend: Apart, applier: Applier, portion: list[Action], copies: Copying) -> list[Action]:
    """What could not be copied from files on the disk."""
    there = [one for one in portion if _has_content(one) and one.after is not None and copies.has(one.after)]
    copied = await backend.apart(functools.partial(_copy, applier, there, copies)) if there else set()
    return [action for action in portion if action.path not in copied]


def as_needed(actions: Sequence[Action], at_once: int) -> Iterator[Action]:
    """The same actions, but that a directory is made only when the files that come next go into it, or behind it: so others can
    begin with the first ones while there are more to be made. A plan has all directories before the files, both in order."""
    first = next((at for at, action in enumerate(actions) if _is_new_directory(action)), len(actions))
    end = next((at for at in range(first, len(actions)) if not _is_new_directory(actions[at])), len(actions))
    last = next((at for at in range(end, len(actions)) if actions[at].doing == "chmod"), len(actions))
    yield from actions[:first]
    made = first
    for start in range(end, last, at_once):
        group = actions[start : min(start + at_once, last)]
        furthest = max(action.path.rpartition(b"/")[0] for action in group)
        while made < end and actions[made].path <= furthest:
            yield actions[made]
            made += 1
        yield from group
    yield from actions[made:end]
    yield from actions[last:]


def _is_new_directory(action: Action) -> bool:
    return action.doing == "create" and action.after is not None and action.after.kind == "dir"


def portions(actions: Iterable[Action]) -> Iterator[list[Action]]:
    """The actions, in order, in portions of which the contents fit into memory; a large file is one by itself. Files are
    not together with anything else: the directories that they go into are there when their portion begins."""
    gathered: list[Action] = []
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


def _has_content(action: Action) -> bool:
    doing, _, _, after = action
    return after is not None and after[1] == "file" and doing != "chmod"


def _files(actions: Iterable[Action]) -> list[Entry]:
    return [action.after for action in actions if _has_content(action) and action.after is not None]


def _is_large(action: Action) -> bool:
    return _has_content(action) and action.after is not None and action.after.is_chunked


def _do(applier: Applier, actions: Sequence[Action], contents: Iterator[bytes], made_again: set[bytes]) -> list[Left]:
    left: list[Left] = []
    for action in actions:
        doing, path, _, after = action
        if doing == "delete":
            try:
                applier.delete(action)
            except NotEmpty:
                if path in made_again:  # as a file: there is no room for it
                    raise
                left.append(Left(path, HOLDS_OTHERS))
        elif doing == "chmod":
            applier.change_mode(action)
        elif after is not None and after.kind == "dir":
            applier.make_directory(action)
        elif after is not None and after.kind == "symlink":
            applier.make_link(action)
        else:
            applier.put_file(action, next(contents))
    return left


def _copy(applier: Applier, actions: Sequence[Action], copies: Copying) -> set[bytes]:
    """The paths that could be made from files on the disk."""
    return {action.path for action in actions if applier.put_copy(action, copies.copy_into)}


async def _write_large(backend: Apart, applier: Applier, action: Action, source: Source, writeback: Writeback) -> None:
    assert action.after is not None
    unfinished = await backend.apart(lambda: applier.begin_file(action))
    try:
        async for size, data in source.pieces(action.after):
            if data is None:
                applier.leave_hole(unfinished, size)
            else:
                await backend.apart(functools.partial(applier.write, unfinished, data))
                writeback.wrote(size)
    except BaseException:
        applier.abandon(unfinished)
        raise
    await backend.apart(lambda: applier.finish_file(unfinished))
