"""A plan, carried out: contents are fetched from where they are kept, in portions, and the file system is changed aside, so
that an event loop goes on meanwhile."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from holdfast.model.restore_plan import Action, Left
from holdfast.model.workspace import Entry
from holdfast.workspace.apply import Applier, NotEmpty

PORTION_BYTES = 4_000_000
PORTION_ACTIONS = 256
HOLDS_OTHERS = "it holds what is in no snapshot"

T = TypeVar("T")
Progress = Callable[[int, int], None]


class Source(Protocol):
    """Where the contents of files come from."""

    async def whole(self, entries: Sequence[Entry]) -> Sequence[bytes]:
        """The contents of small files."""

    def pieces(self, entry: Entry) -> AsyncIterator[tuple[int, bytes | None]]:
        """The content of a large file, piece by piece: sizes and bytes, None for a hole."""


class Aside(Protocol):
    """Where blocking calls are made."""

    def aside(self, call: Callable[[], T]) -> Awaitable[T]: ...


async def carry_out(
    backend: Aside, applier: Applier, actions: Sequence[Action], source: Source, progress: Progress | None = None
) -> list[Left]:
    """Does everything, in order, and makes it durable. Returns the directories that could not go, because there is
    something in them which is not ours to delete. `ChangedUnder` ends it where it stands."""
    made_again = {action.path for action in actions if action.doing == "create"}
    left: list[Left] = []
    done = 0
    for portion in portions(actions):
        if _is_large(portion[0]):
            await _write_large(backend, applier, portion[0], source)
        else:
            files = [action.after for action in portion if _has_content(action) and action.after is not None]
            contents = iter(await source.whole(files) if files else ())
            left += await backend.aside(functools.partial(_do, applier, portion, contents, made_again))
        done += len(portion)
        if progress is not None:
            progress(done, len(actions))
    await backend.aside(applier.settle)
    return left


def portions(actions: Iterable[Action]) -> Iterator[list[Action]]:
    """The actions, in order, in portions of which the contents fit into memory; a large file is one by itself."""
    gathered: list[Action] = []
    size = 0
    for action in actions:
        large = _is_large(action)
        more = action.after.size if _has_content(action) and action.after is not None else 0
        if gathered and (large or size + more > PORTION_BYTES or len(gathered) == PORTION_ACTIONS):
            yield gathered
            gathered, size = [], 0
        gathered.append(action)
        size += more
        if large:
            yield gathered
            gathered, size = [], 0
    if gathered:
        yield gathered


def _has_content(action: Action) -> bool:
    return action.doing in ("create", "replace") and action.after is not None and action.after.kind == "file"


def _is_large(action: Action) -> bool:
    return _has_content(action) and action.after is not None and action.after.is_chunked


def _do(applier: Applier, actions: Sequence[Action], contents: Iterator[bytes], made_again: set[bytes]) -> list[Left]:
    left: list[Left] = []
    for action in actions:
        if action.doing == "delete":
            try:
                applier.delete(action)
            except NotEmpty:
                if action.path in made_again:  # as a file: there is no room for it
                    raise
                left.append(Left(action.path, HOLDS_OTHERS))
        elif action.doing == "chmod":
            applier.change_mode(action)
        elif action.after is not None and action.after.kind == "dir":
            applier.make_directory(action)
        elif action.after is not None and action.after.kind == "symlink":
            applier.make_link(action)
        else:
            applier.put_file(action, next(contents))
    return left


async def _write_large(backend: Aside, applier: Applier, action: Action, source: Source) -> None:
    assert action.after is not None
    unfinished = await backend.aside(lambda: applier.begin_file(action))
    try:
        async for size, data in source.pieces(action.after):
            if data is None:
                applier.leave_hole(unfinished, size)
            else:
                await backend.aside(functools.partial(applier.write, unfinished, data))
    except BaseException:
        applier.abandon(unfinished)
        raise
    await backend.aside(lambda: applier.finish_file(unfinished))
