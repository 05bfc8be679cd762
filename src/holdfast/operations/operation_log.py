"""The log of operations: writing, listing, finding the next one to undo or redo, and trimming.

An undo and a redo are operations, too. They always take back the last entry about an operation: the
operation itself, or the redo or undo that followed it. So each entry needs only its own changes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from holdfast.backends.port import STORE, RowWrite
from holdfast.errors import CheckpointNotFoundError, ConflictError, UsageError
from holdfast.format.rows import head, operation_log
from holdfast.format.rows.operation_log import LoggedChange, OperationEntry, Origin
from holdfast.format.state.record import EPOCH
from holdfast.model import ids
from holdfast.model.operation import REDO, STEPS, UNDO, Operation
from holdfast.model.operation import OperationChange as Seen
from holdfast.operations.context import StoreContext
from holdfast.operations.damaged_row import read_or_note
from holdfast.operations.gc_rows import LiveTrees, remove_row

PAGE = 200
KEPT = 1000  # operations that gc leaves


def entry(
    ctx: StoreContext,
    origin: Origin,
    tree: bytes,
    kind: str,
    changes: Sequence[LoggedChange],
    session: str | None = None,
) -> OperationEntry:
    return OperationEntry(
        id=origin.id or ctx.new_id(ids.tree_tag(tree) if tree else None),
        tree=tree,
        kind=origin.kind or kind,
        at_us=ctx.now_us(),
        by=origin.by,
        session=session,
        of=origin.of,
        changes=tuple(changes),
        part=origin.part,
    )


def writes(
    ctx: StoreContext,
    origin: Origin | None,
    tree: bytes,
    kind: str,
    changes: Sequence[LoggedChange],
    session: str | None = None,
) -> list[RowWrite]:
    """Return the row of an operation, for the commit that carries it out.

    Without an origin there is none: holdfast made the change by itself.
    """
    return [] if origin is None else [entry(ctx, origin, tree, kind, changes, session).write()]


async def entries(ctx: StoreContext, *, damaged: list[str] | None = None) -> AsyncIterator[OperationEntry]:
    """Yield all operations, the newest first, each with all its parts. See `read_or_note` for `damaged`."""
    last: OperationEntry | None = None
    after: bytes | None = None
    while page := await ctx.backend.scan(operation_log.SPACE, after=after, limit=PAGE):
        after = page[-1][0].key
        for key, row in page:
            found = read_or_note(partial(operation_log.unpack, key, row), damaged)
            if found is None:
                continue
            if last is not None and last.id == found.id:
                last = last.with_part(found)
                continue
            if last is not None:
                yield last
            last = found
    if last is not None:
        yield last


async def find(ctx: StoreContext, id_: bytes) -> OperationEntry | None:
    """Return the entry of that id; None if it is no longer in the log."""
    found: OperationEntry | None = None
    for key, row in await ctx.backend.scan(operation_log.SPACE, prefix=operation_log.key_prefix(id_)):
        part = operation_log.unpack(key, row)
        found = part if found is None else found.with_part(part)
    return found


@dataclass(slots=True)
class OperationStep:
    """An operation, and the last entry about it, which an undo or a redo takes back."""

    operation: OperationEntry
    last: OperationEntry

    @property
    def is_undone(self) -> bool:
        return self.last.kind == UNDO


async def steps(ctx: StoreContext, *, damaged: list[str] | None = None) -> AsyncIterator[OperationStep]:
    """Yield all entries, the newest first.

    The operation that an undo or a redo is about comes after it, so the latter is known by then.
    """
    last: dict[bytes, OperationEntry] = {}
    async for found in entries(ctx, damaged=damaged):
        if found.kind in STEPS and found.of is not None:
            last.setdefault(found.of, found)
        yield OperationStep(found, last.get(found.id, found))


async def operations(
    ctx: StoreContext, *, session_id: str | None = None, limit: int | None = None, damaged: list[str] | None = None
) -> list[Operation]:
    """Return the operations, the newest first, of all sessions or about one.

    See `read_or_note` for `damaged`.
    """
    listed: list[Operation] = []
    async for step in steps(ctx, damaged=damaged):
        if limit is not None and len(listed) >= limit:
            break
        if session_id in (None, step.operation.session):
            listed.append(make_operation(step))
    return listed


async def next_undo(ctx: StoreContext, accepts: Callable[[OperationEntry], bool]) -> OperationStep:
    """Return the newest operation that can be undone and is not undone yet."""
    async for step in steps(ctx):
        if step.operation.kind not in STEPS and make_operation(step).can_be_undone and accepts(step.last):
            return step
    raise CheckpointNotFoundError(
        "there is nothing to undo: the log has no operation that is not undone already. `holdfast op log` lists them"
    )


async def next_redo(ctx: StoreContext, accepts: Callable[[OperationEntry], bool]) -> OperationStep:
    """Return the operation that was undone last and not redone since.

    An operation that is newer than the undo ends the chance to redo.
    """
    undone: OperationEntry | None = None
    decided: set[bytes] = set()
    async for step in steps(ctx):
        found = step.operation
        if undone is not None:
            if found.id == undone.of:
                return OperationStep(found, undone)
        elif found.kind not in STEPS:
            if accepts(found):
                break
        elif found.of is not None and found.of not in decided:
            decided.add(found.of)
            if found.kind == UNDO and accepts(found):
                undone = found
    raise CheckpointNotFoundError(
        "there is nothing to redo: nothing was undone since the last operation, or it was redone. `holdfast op log` "
        "lists what is undone, and `holdfast redo ID` does one of them again"
    )


async def find_step(ctx: StoreContext, ref: str, kind: str) -> OperationStep:
    """Return the step that an undo or a redo (`kind`) of an operation is about.

    The operation is given by its id or by the last digits of it. If it is itself an undo or a redo,
    it is taken back if it is the last entry about its operation.
    """
    digits = ref.replace("-", "").lower()
    if not ids.is_like_id(digits):
        raise UsageError(
            f"{ref!r:.60} is no operation: it is named by its id, or by the last {ids.SHORT_ID_LENGTH} or more digits "
            "of it"
        )
    meant: dict[bytes, OperationEntry] = {}
    found: list[tuple[OperationStep, OperationEntry]] = []
    async for step in steps(ctx):
        item = step.operation
        if item.id.hex().endswith(digits):
            meant[item.of if item.kind in STEPS and item.of is not None else item.id] = item
        if item.id in meant:
            found.append((step, meant[item.id]))
    if not found:
        raise CheckpointNotFoundError(
            f"there is no operation {ref!r:.60} in the log. `holdfast op log` lists those that are there; gc keeps the "
            f"newest {KEPT}"
        )
    if len(found) > 1:
        listed = ", ".join(ids.to_text(item.id) for _, item in found)
        raise UsageError(f"{ref} is the end of more than one id: {listed}. Give more digits, or the whole id")
    [(step, other)] = found
    _refuse_done(step, other, kind)
    return step


def _refuse_done(step: OperationStep, meant: OperationEntry, kind: str) -> None:
    """Raise an error if the step to undo is undone already, or the one to redo is not."""
    if meant.kind in STEPS and kind == UNDO:
        if step.last.id != meant.id:
            raise ConflictError(f"operation {ids.to_text(meant.id)} ({meant.kind}) was taken back already")
        return
    id_ = ids.to_text(step.operation.id)
    if kind == UNDO and step.is_undone:
        raise ConflictError(f"operation {id_} is undone already: `holdfast redo {ids.short(id_)}` does it again")
    if kind == REDO and not step.is_undone:
        raise ConflictError(f"operation {id_} is not undone: there is nothing to redo")


def origin_of(ctx: StoreContext, step: OperationStep, by: str) -> Origin:
    """Return the origin for taking a step back: an undo, or a redo after an undo."""
    return Origin(by, REDO if step.is_undone else UNDO, step.operation.id, ctx.new_id(None))


async def files_since(ctx: StoreContext, step: OperationStep, directory: bytes) -> OperationEntry | None:
    """Return a later operation on the files of the same directory that is not undone."""
    async for later in steps(ctx):
        if later.operation.id == step.operation.id:
            return None
        if later.operation.kind in STEPS or later.is_undone:
            continue
        if any(change.kind == operation_log.FILES and change.name == directory for change in later.operation.changes):
            return later.operation
    return None


async def gc_operation_log(ctx: StoreContext) -> None:
    """Keep only the newest `KEPT` operations, and of these the ones whose tree exists. Part of `gc`."""
    live = LiveTrees(ctx)
    kept: set[bytes] = set()
    after: bytes | None = None
    while page := await ctx.backend.scan(operation_log.SPACE, after=after, limit=PAGE):
        after = page[-1][0].key
        for key, row in page:
            is_live = key.tree == STORE or await live.has(key.tree)
            if is_live and (operation_log.id_of(key) in kept or len(kept) < KEPT):
                kept.add(operation_log.id_of(key))
            else:
                await remove_row(ctx, key, row.version)


def make_operation(step: OperationStep) -> Operation:
    """Return the operation as users see it."""
    found = step.operation
    return Operation(
        operation_id=ids.to_text(found.id),
        kind=found.kind,
        at=EPOCH + timedelta(microseconds=found.at_us),
        by=found.by,
        changes=tuple(seen for change in found.changes for seen in _list_seen(change)),
        session_id=found.session,
        of=None if found.of is None else ids.to_text(found.of),
        is_undone=found.kind not in STEPS and step.is_undone,
    )


def _list_seen(change: LoggedChange) -> list[Seen]:
    kind, name, before, after = change
    if kind == operation_log.FILES:
        files = [Seen(kind=kind, name=_path(name), before=after["safety_id"], after=after["target_id"])]
        if after["session_id"] is not None:
            files.append(
                Seen(
                    kind=operation_log.HEAD, name=after["session_id"], before=after["from_id"], after=after["target_id"]
                )
            )
        return files
    if kind == operation_log.PIN:
        texts = [None if item is None else head.session_name(item[1] or b"") for item in (before, after)]
        return [Seen(kind=kind, name=ids.to_text(name), before=texts[0], after=texts[1])]
    if kind == operation_log.LIFE:
        words = ["live" if item else "expired" for item in (before, after)]
        return [Seen(kind=kind, name=ids.to_text(name), before=words[0], after=words[1])]
    if kind == operation_log.MANY:
        return [Seen(kind=kind, name=head.session_name(name), before=None, after=str(after))]
    if kind == operation_log.TAG:
        before, after = (None if item is None else item[0] for item in (before, after))
    given = [None if item is None else ids.to_text(item) for item in (before, after)]
    return [Seen(kind=kind, name=head.session_name(name), before=given[0], after=given[1])]


def _path(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
