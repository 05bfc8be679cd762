"""The log of operations: what writes it down, lists it, finds the next one to undo or redo, and keeps it short.

An undo and a redo are operations, too. What is taken back is always the last entry about an operation: the operation itself, or
the redo or undo that followed it. So each entry needs to know its own changes only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from holdfast.backends.port import Commit, CommitConflict, RowWrite
from holdfast.errors import CheckpointNotFoundError, ConflictError, UsageError
from holdfast.model import ids
from holdfast.model.oplog import REDO, STEPS, UNDO, Operation
from holdfast.model.oplog import Change as Seen
from holdfast.objects import oplog, rows
from holdfast.objects.oplog import Change, Entry, Origin
from holdfast.objects.record import EPOCH
from holdfast.operations.services import Services

PAGE = 200
KEPT = 1000  # operations that gc leaves


def entry(
    services: Services, origin: Origin, tree: bytes, kind: str, changes: Sequence[Change], session: str | None = None
) -> Entry:
    return Entry(
        id=origin.id or services.new_id(ids.tree_tag(tree) if tree else None),
        tree=tree,
        kind=origin.kind or kind,
        at_us=services.now_us(),
        by=origin.by,
        session=session,
        of=origin.of,
        changes=tuple(changes),
        part=origin.part,
    )


def writes(
    services: Services,
    origin: Origin | None,
    tree: bytes,
    kind: str,
    changes: Sequence[Change],
    session: str | None = None,
) -> list[RowWrite]:
    """The row that writes an operation down, for the commit that carries it out. Without an origin there is none: that is
    what holdfast does by itself."""
    return [] if origin is None else [entry(services, origin, tree, kind, changes, session).write()]


async def entries(services: Services) -> AsyncIterator[Entry]:
    """All operations, the newest first, each with all its parts."""
    last: Entry | None = None
    after: bytes | None = None
    while page := await services.backend.scan(oplog.SPACE, after=after, limit=PAGE):
        after = page[-1][0].key
        for key, row in page:
            found = oplog.unpack(key, row)
            if last is not None and last.id == found.id:
                last = last.with_part(found)
                continue
            if last is not None:
                yield last
            last = found
    if last is not None:
        yield last


async def find(services: Services, id_: bytes) -> Entry | None:
    """The entry of that id; None if it is not in the log any more."""
    found: Entry | None = None
    for key, row in await services.backend.scan(oplog.SPACE, prefix=oplog.key_prefix(id_)):
        part = oplog.unpack(key, row)
        found = part if found is None else found.with_part(part)
    return found


@dataclass(slots=True)
class Step:
    """An operation, and the last entry about it: what an undo or a redo takes back."""

    operation: Entry
    last: Entry

    @property
    def is_undone(self) -> bool:
        return self.last.kind == UNDO


async def steps(services: Services) -> AsyncIterator[Step]:
    """All entries, the newest first. What an undo or a redo is about comes after it, so it is known by then."""
    last: dict[bytes, Entry] = {}
    async for found in entries(services):
        if found.kind in STEPS and found.of is not None:
            last.setdefault(found.of, found)
        yield Step(found, last.get(found.id, found))


async def operations(services: Services, *, session_id: str | None = None, limit: int | None = None) -> list[Operation]:
    """The operations, the newest first, of all sessions or about one."""
    listed: list[Operation] = []
    async for step in steps(services):
        if limit is not None and len(listed) >= limit:
            break
        if session_id in (None, step.operation.session):
            listed.append(shown(step))
    return listed


async def next_undo(services: Services, accepts: Callable[[Entry], bool]) -> Step:
    """The newest operation that can be undone and is not undone yet."""
    async for step in steps(services):
        if step.operation.kind not in STEPS and shown(step).can_be_undone and accepts(step.last):
            return step
    raise CheckpointNotFoundError(
        "there is nothing to undo: the log has no operation that is not undone already. `holdfast op log` lists them"
    )


async def next_redo(services: Services, accepts: Callable[[Entry], bool]) -> Step:
    """The operation that was undone last, and was not redone since."""
    undone: Entry | None = None
    decided: set[bytes] = set()
    async for step in steps(services):
        found = step.operation
        if undone is not None:
            if found.id == undone.of:
                return Step(found, undone)
        elif found.kind in STEPS and found.of is not None and found.of not in decided:
            decided.add(found.of)
            if found.kind == UNDO and accepts(found):
                undone = found
    raise CheckpointNotFoundError("there is nothing to redo: nothing was undone, or it was redone since")


async def named(services: Services, ref: str, kind: str) -> Step:
    """What is meant by an undo or a redo (`kind`) of an operation, given by its id or by the last digits of it. An undo or a redo
    that is named itself is taken back, if it is what happened last to its operation."""
    digits = ref.replace("-", "").lower()
    if not ids.is_like_id(digits):
        raise UsageError(
            f"{ref!r:.60} is no operation: it is named by its id, or by the last {ids.SHORT_ID_LENGTH} or more digits of it"
        )
    meant: dict[bytes, Entry] = {}
    found: list[tuple[Step, Entry]] = []
    async for step in steps(services):
        one = step.operation
        if one.id.hex().endswith(digits):
            meant[one.of if one.kind in STEPS and one.of is not None else one.id] = one
        if one.id in meant:
            found.append((step, meant[one.id]))
    if not found:
        raise CheckpointNotFoundError(
            f"there is no operation {ref!r:.60} in the log. `holdfast op log` lists those that are there; gc keeps the newest "
            f"{KEPT}"
        )
    if len(found) > 1:
        listed = ", ".join(ids.to_text(one.id) for _, one in found)
        raise UsageError(f"{ref} is the end of more than one id: {listed}. Give more digits, or the whole id")
    [(step, named_one)] = found
    _refuse_done(step, named_one, kind)
    return step


def _refuse_done(step: Step, meant: Entry, kind: str) -> None:
    """Raises if what is to be undone is undone already, or what is to be redone is not."""
    if meant.kind in STEPS and kind == UNDO:
        if step.last.id != meant.id:
            raise ConflictError(f"operation {ids.to_text(meant.id)} ({meant.kind}) was taken back already")
        return
    id_ = ids.to_text(step.operation.id)
    if kind == UNDO and step.is_undone:
        raise ConflictError(f"operation {id_} is undone already: `holdfast redo {ids.short(id_)}` does it again")
    if kind == REDO and not step.is_undone:
        raise ConflictError(f"operation {id_} is not undone: there is nothing to redo")


def origin_of(services: Services, step: Step, by: str) -> Origin:
    """For what takes a step back: an undo, or a redo of what was undone."""
    return Origin(by, REDO if step.is_undone else UNDO, step.operation.id, services.new_id(None))


async def files_since(services: Services, step: Step, directory: bytes) -> Entry | None:
    """An operation on the files of the same directory that came later, and is not undone."""
    async for later in steps(services):
        if later.operation.id == step.operation.id:
            return None
        if later.operation.kind in STEPS or later.is_undone:
            continue
        if any(change.kind == oplog.FILES and change.name == directory for change in later.operation.changes):
            return later.operation
    return None


async def forget(services: Services) -> None:
    """Leaves the newest `KEPT` operations, and of these the ones whose tree is still there. Part of `gc`."""
    alive: set[bytes] = {b""}
    kept: set[bytes] = set()
    after: bytes | None = None
    while page := await services.backend.scan(oplog.SPACE, after=after, limit=PAGE):
        after = page[-1][0].key
        for key, row in page:
            # The head is looked for after the entry was seen: who changes a tree has found one before.
            if key.tree not in alive and await services.backend.scan(rows.HEAD, tree=key.tree, limit=1):
                alive.add(key.tree)
            if key.tree in alive and (oplog.id_of(key) in kept or len(kept) < KEPT):
                kept.add(oplog.id_of(key))
                continue
            try:
                await services.backend.commit(Commit(tree=key.tree, rows=[RowWrite(key, None, row.version)]))
            except CommitConflict:
                continue


def shown(step: Step) -> Operation:
    """As people see it."""
    found = step.operation
    return Operation(
        operation_id=ids.to_text(found.id),
        kind=found.kind,
        at=EPOCH + timedelta(microseconds=found.at_us),
        by=found.by,
        changes=tuple(seen for change in found.changes for seen in _seen(change)),
        session_id=found.session,
        of=None if found.of is None else ids.to_text(found.of),
        is_undone=found.kind not in STEPS and step.is_undone,
    )


def _seen(change: Change) -> list[Seen]:
    kind, name, before, after = change
    if kind == oplog.FILES:
        files = [Seen(kind=kind, name=_path(name), before=after["safety_id"], after=after["target_id"])]
        if after["session_id"] is not None:
            files.append(
                Seen(kind=oplog.HEAD, name=after["session_id"], before=after["from_id"], after=after["target_id"])
            )
        return files
    if kind == oplog.PIN:
        texts = [None if one is None else rows.session_name(one[1] or b"") for one in (before, after)]
        return [Seen(kind=kind, name=ids.to_text(name), before=texts[0], after=texts[1])]
    if kind == oplog.LIFE:
        words = ["live" if one else "expired" for one in (before, after)]
        return [Seen(kind=kind, name=ids.to_text(name), before=words[0], after=words[1])]
    if kind == oplog.MANY:
        return [Seen(kind=kind, name=rows.session_name(name), before=None, after=str(after))]
    if kind == oplog.TAG:
        before, after = (None if one is None else one[0] for one in (before, after))
    given = [None if one is None else ids.to_text(one) for one in (before, after)]
    return [Seen(kind=kind, name=rows.session_name(name), before=given[0], after=given[1])]


def _path(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
