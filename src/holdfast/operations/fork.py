"""fork, handoff: a child with the same or an edited state, in another session or for another agent.

Nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast import telemetry
from holdfast.backends.port import ABSENT, Commit, CommitConflict, SegmentWrite
from holdfast.errors import ConflictError, StoreError, UsageError
from holdfast.format.rows import head, operation_log
from holdfast.format.rows import head as rows
from holdfast.format.rows.operation_log import LoggedChange, Origin
from holdfast.format.state import write_plan
from holdfast.format.state.manifest import Manifest
from holdfast.format.state.record import StoredRecord
from holdfast.format.state.split import Split
from holdfast.model import ids, path_edit
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.lease import LeaseTerms
from holdfast.model.path_edit import Edits
from holdfast.model.reports import ForkReport
from holdfast.model.state_migration import FIRST_VERSION
from holdfast.operations import lease as leasing
from holdfast.operations import left_behind, lookup, session_names, validate
from holdfast.operations import operation_log as log
from holdfast.operations.context import StoreContext
from holdfast.operations.encode_state import plan_writes
from holdfast.operations.left_behind import LeftBehind
from holdfast.operations.new_checkpoint import build_commit
from holdfast.operations.session_cache import SessionTip

if TYPE_CHECKING:
    from holdfast.model.snapshot import Home


async def plan_edited_child(
    ctx: StoreContext, source: StoredRecord, loaded: Checkpoint, edits: Edits
) -> write_plan.WritePlan:
    """Return the plan of a child of `source`, which was `loaded`, with these edits made.

    It shares all that it can. New elements go to logs of its own: the source's logs belong to the
    branch that continues from it, and several children may be planned for one commit.
    """
    return await _plan_child(ctx, source, *path_edit.edit(loaded.execution_state, loaded.agent_context, edits))


async def _plan_child(ctx: StoreContext, source: StoredRecord, state: Any, context: Any) -> write_plan.WritePlan:
    manifest = source.manifest()
    tip = SessionTip(
        tree=source.tree, version=ABSENT, head=head.Head(None, 0), head_value=None, checkpoint=source, manifest=manifest
    )
    tails = [entry.tail for entry in manifest.lists]
    closed = {tail.log for tail in (*tails, manifest.skeleton.tail) if tail is not None}
    split = Split(ctx.codec, tip.find_list).take(state, context)
    return await plan_writes(ctx, split, tip, closed)


MAX_ATTEMPTS = 200
_NEW = SessionTip(
    tree=None, version=ABSENT, head=rows.Head(None, 0), head_value=None, checkpoint=None
)  # of a session that is not there
_OF_THE_CALLER = ("agent", "fw", "ttl", "meta", "tasks", "ws", "dir", "app", "sv")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkRequest:
    """One fork of a checkpoint: its session, the edits of its state, and its directory."""

    session_id: str | None = None
    name_like: str | None = None  # the beginning of a generated name; without it, the name of the source's session
    new_id: bytes | None = None
    edits: Edits = field(default_factory=dict)
    home: Home | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """The header fields of its first checkpoint."""
        return {} if self.home is None else {"dir": list(self.home)}


async def fork(
    ctx: StoreContext,
    id_: bytes,
    session_id: str | None = None,
    *,
    new_id: bytes | None = None,
    strict: bool = False,
    acknowledge: Collection[str] = (),
    by: str = "",
    origin: Origin | None = None,
) -> ForkReport:
    """Make a session that begins with a child of that checkpoint: the same state and step."""
    way = ForkRequest(session_id=session_id, new_id=new_id)
    return (await forks(ctx, id_, [way], strict=strict, acknowledge=acknowledge, by=by, origin=origin))[0]


@telemetry.trace_operation(telemetry.FORK)
async def forks(
    ctx: StoreContext,
    id_: bytes,
    ways: Sequence[ForkRequest],
    *,
    strict: bool = False,
    acknowledge: Collection[str] = (),
    by: str = "",
    origin: Origin | None = None,
) -> list[ForkReport]:
    """Make a session for each request, with its edits made. One commit: all of them, or none."""
    source = await lookup.load_live_record(ctx, id_)
    left = await left_behind.find_after_fork(ctx, source.tree, id_)
    contents = await _contents(ctx, source, ways)
    known = [
        await _find_repeated(
            ctx,
            source,
            way.new_id,
            session=way.session_id,
            root=content.manifest.root() if way.new_id is not None else None,
        )
        for way, content in zip(ways, contents, strict=True)
    ]
    found = [stored for stored in known if stored is not None]
    if found and len(found) == len(ways):
        return [_report(stored, source, left) for stored in found]
    acknowledgements = left_behind.write_acknowledged(ctx, left, acknowledge, by, "fork")
    names = await _names(ctx, source, ways)
    tips = [_NEW] * len(ways)
    while True:
        made = [
            build_commit(
                ctx,
                tip,
                source,
                {**_copy_fields(source), **content.fields, **way.fields, "session": name, "name": "fork"},
                content.manifest,
                id_=way.new_id,
                step_index=source.header.get("step", 0),
                segments=content.segments,
                blobs=content.blobs,
            )[:2]
            for way, content, name, tip in zip(ways, contents, names, tips, strict=True)
        ]
        reports = [_report(stored, source, left) for _, stored in made]
        if strict:
            left_behind.refuse_unacknowledged(reports[0], acknowledge, "the fork")
        commit = _merge_commits([commit for commit, _ in made])
        begun = [
            LoggedChange(operation_log.SESSION, rows.session_key(stored.session), None, stored.id) for _, stored in made
        ]
        logged = log.writes(ctx, origin, source.tree, "fork", begun, names[0])
        commit.rows = [*commit.rows, *acknowledgements, *logged]
        for name in names:
            ctx.memory.drop(rows.session_key(name))
        try:
            await ctx.backend.commit(commit)
        except CommitConflict as conflict:
            if conflict.kind == "require":
                await lookup.load_live_record(ctx, id_)
            if await _has_taken(ctx, ways, names):
                names, tips = await _names(ctx, source, ways), [_NEW] * len(ways)
                continue
            before, tips = tips, [await _make_first_tip(ctx, name, source.tree) for name in names]
            if [tip.version for tip in tips] == [tip.version for tip in before]:
                raise await _make_taken_error(ctx, [stored.session for _, stored in made]) from None
        except StoreError as error:
            error.checkpoint_id = ids.to_text(made[0][1].id)
            raise
        else:
            return reports


async def _names(ctx: StoreContext, source: StoredRecord, ways: Sequence[ForkRequest]) -> list[str]:
    """Return the sessions of the requests: as they are named, else free numbered names."""
    names = [way.session_id for way in ways]
    taken = {name for name in names if name is not None}
    for place, way in enumerate(ways):
        if names[place] is None:
            begin = way.name_like or f"{session_names.find_stem(source.session)}-fork-"
            name = await session_names.free_name(ctx, source.tree, begin, taken)
            names[place] = name
            taken.add(name)
    return [name for name in names if name is not None]


async def _has_taken(ctx: StoreContext, ways: Sequence[ForkRequest], names: Sequence[str]) -> bool:
    """Return whether another fork has taken one of the names that were generated here."""
    made = [name for way, name in zip(ways, names, strict=True) if way.session_id is None]
    return any([await lookup.find_tree(ctx, rows.session_key(name)) is not None for name in made])


async def _make_first_tip(ctx: StoreContext, name: str, tree: bytes) -> SessionTip:
    """Return the tip at which a new session begins.

    It is empty. If the tree had a session of that name with nothing left of it (its fork was
    undone), the numbers continue after its last.
    """
    found = await lookup.find_head(ctx, rows.session_key(name), tree)
    if found is None or found[0].checkpoint is not None or not leasing.allows(ctx, found[0], None):
        return _NEW
    head, row = found
    return SessionTip(tree=tree, version=row.version, head=head, head_value=row.value, checkpoint=None)


def _merge_commits(commits: Sequence[Commit]) -> Commit:
    """Return one commit that does what these commits, which make new records of one tree each, do."""
    first, *others = commits
    written = [other.record for other in others if other.record is not None]
    return replace(
        first,
        more_records=written,
        segments=[segment for commit in commits for segment in commit.segments],
        blobs={hash_: blob for commit in commits for hash_, blob in commit.blobs.items()},
        rows=[row for commit in commits for row in commit.rows],
    )


async def _make_taken_error(ctx: StoreContext, names: Sequence[str]) -> ConflictError:
    existing = [name for name in names if await lookup.find_tree(ctx, rows.session_key(name)) is not None]
    return ConflictError(
        f"session {(existing or names)[0]!r:.60} exists already: a fork begins a new session. Choose another "
        "session_id, or leave it out; `rollback` moves the head of an existing one"
    )


class _Content(NamedTuple):
    """The first content of a fork, and the writes for it: none if it is its source's."""

    manifest: Manifest
    fields: Mapping[str, Any] = {}
    segments: Sequence[SegmentWrite] = ()
    blobs: Mapping[bytes, bytes] = {}


async def _contents(ctx: StoreContext, source: StoredRecord, ways: Sequence[ForkRequest]) -> list[_Content]:
    if not any(way.edits for way in ways):
        return [_Content(source.manifest()) for _ in ways]
    from holdfast.operations import restore as restoring

    # As `restore` returns it: callers that name a path in the state have seen it so.
    loaded = await restoring.load_checkpoint(ctx, source)
    contents = []
    for way in ways:
        if not way.edits:
            contents.append(_Content(source.manifest()))
            continue
        planned = await plan_edited_child(ctx, source, loaded, way.edits)
        contents.append(_content_of(planned, loaded))
    return contents


def _content_of(planned: write_plan.WritePlan, loaded: Checkpoint) -> _Content:
    version = {"sv": loaded.state_version} if loaded.state_version not in (None, FIRST_VERSION) else {}
    return _Content(planned.manifest, version, planned.segments, planned.blobs)


def _report(stored: StoredRecord, source: StoredRecord, left: LeftBehind) -> ForkReport:
    return ForkReport(
        checkpoint_id=ids.to_text(stored.id),
        session_id=stored.session,
        source_id=ids.to_text(source.id),
        tree_id=ids.to_text(source.tree),
        effects=left.effects,
        unknown=left.unknown,
        consumers=left.consumers,
    )


async def _find_repeated(
    ctx: StoreContext,
    source: StoredRecord,
    new_id: bytes | None,
    *,
    session: str | None,
    target: str | None = None,
    root: bytes | None = None,
) -> StoredRecord | None:
    """Return the child that the same call made before, perhaps with an unclear failure.

    Raises a conflict if it is another one.
    """
    known = await lookup.find_record(ctx, new_id) if new_id is not None else None
    if known is None:
        return None
    if (
        known.parent != source.id
        or known.header.get("to") != target
        or session not in (None, known.session)
        or root not in (None, known.root)
    ):
        raise ConflictError(
            f"checkpoint {ids.to_text(known.id)} is there already, and is something else. The stored one is untouched: "
            "leave out new_id to make a new one"
        )
    return known


@telemetry.trace_operation(telemetry.HANDOFF)
async def handoff(
    ctx: StoreContext,
    id_: bytes,
    target_agent_id: str,
    schema: str | None = None,
    *,
    new_id: bytes | None = None,
    lease: LeaseTerms | None = None,
    project: Callable[[Any], Any] | None = None,
) -> StoredRecord:
    """Make a child of that checkpoint, in its session, addressed to another agent.

    It keeps the source's agent, metadata and time to live, and becomes the session's head. A lease
    under which it is made ends with it. A handoff can be handed on in the same way, also back to
    its sender: then it can no longer be claimed. `project` makes the state that is handed over of
    the source's; the context stays there.
    """
    source = await lookup.load_live_record(ctx, id_)
    content = _Content(source.manifest()) if project is None else await _project_content(ctx, source, project)
    if target_agent_id == source.header["agent"] and "to" not in source.header:
        raise UsageError(f"{target_agent_id!r:.60} made this checkpoint itself: a handoff goes to another agent")
    fields = {**_copy_fields(source), **content.fields, "session": source.session}
    fields |= {"name": f"handoff_to_{target_agent_id}", "to": target_agent_id}
    if schema is not None:
        fields["toschema"] = schema
    session = rows.session_key(source.session)
    validate.session_under(lease, source.session)
    await _refuse_delegated(ctx, source, lease)
    for _ in range(MAX_ATTEMPTS):
        root = content.manifest.root() if new_id is not None else None
        known = await _find_repeated(ctx, source, new_id, session=source.session, target=target_agent_id, root=root)
        if known is not None:
            return known
        tip = await lookup.get_tip(ctx, session)
        if not leasing.allows(ctx, tip.head, lease):
            ctx.memory.drop(session)  # the cached tip may be old
            tip = await lookup.get_tip(ctx, session)
            leasing.refuse(ctx, source.session, tip.head, lease)
        commit, stored, _ = build_commit(
            ctx, tip, source, fields, content.manifest, id_=new_id, segments=content.segments, blobs=content.blobs
        )
        ctx.memory.drop(session)
        try:
            await ctx.backend.commit(commit)
        except CommitConflict:
            source = await lookup.load_live_record(ctx, id_)
        except StoreError as error:
            error.checkpoint_id = ids.to_text(stored.id)
            raise
        else:
            return stored
    raise ConflictError(f"session {source.session!r:.60} is being written by too many at once: try again")


async def _refuse_delegated(ctx: StoreContext, source: StoredRecord, lease: LeaseTerms | None) -> None:
    """Raise if the work was delegated: its result goes back to the session that waits for it."""
    claimed = lease.claimed if lease is not None else None
    begun = source if claimed is None else await lookup.find_record(ctx, claimed)
    if begun is not None and "origin" in begun.header:
        raise UsageError(
            f"the work of session {source.session!r:.60} was delegated by {begun.header['origin'][0]!r:.60}, which "
            "waits for its result: end it with `complete` or `fail`, or delegate parts of it in a run"
        )


async def _project_content(ctx: StoreContext, source: StoredRecord, project: Callable[[Any], Any]) -> _Content:
    from holdfast.operations import restore as restoring

    loaded = await restoring.load_checkpoint(ctx, source)
    planned = await _plan_child(ctx, source, project(loaded.execution_state), {})
    return _content_of(planned, loaded)


def _copy_fields(source: StoredRecord) -> dict[str, Any]:
    return {name: source.header[name] for name in _OF_THE_CALLER if name in source.header}
