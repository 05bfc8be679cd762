"""fork, handoff: a child with the same state, or an edited one, in another session or for another agent. Nothing is copied."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.backends.port import ABSENT, Commit, CommitConflict, RunWrite
from holdfast.errors import ConflictError, StoreError, UsageError
from holdfast.model import ids
from holdfast.model.editing import Edits
from holdfast.model.lease import LeaseTerms
from holdfast.model.migrations import FIRST_VERSION
from holdfast.model.reports import ForkReport
from holdfast.objects import oplog, rows
from holdfast.objects.manifest import Manifest
from holdfast.objects.oplog import Change, Origin
from holdfast.objects.record import Stored
from holdfast.operations import aftermath, arguments, reading
from holdfast.operations import lease as leasing
from holdfast.operations import oplog as log
from holdfast.operations.aftermath import Aftermath
from holdfast.operations.child import child
from holdfast.operations.memory import Line
from holdfast.operations.save import MAX_ATTEMPTS
from holdfast.operations.services import Services

if TYPE_CHECKING:
    from holdfast.model.workspace import Home

_OF_THE_CALLER = ("agent", "fw", "ttl", "meta", "tasks", "ws", "dir", "app", "sv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One of the ways to go on from a checkpoint: in which session, with which other values in its state, in which directory."""

    session_id: str | None = None
    new_id: bytes | None = None
    edits: Edits = field(default_factory=dict)
    home: Home | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """What the header of its first checkpoint says of it."""
        return {} if self.home is None else {"dir": list(self.home)}


async def fork(
    services: Services,
    id_: bytes,
    session_id: str | None = None,
    *,
    new_id: bytes | None = None,
    strict: bool = False,
    acknowledge: Collection[str] = (),
    by: str = "",
    origin: Origin | None = None,
) -> ForkReport:
    """A new session that begins with a child of that checkpoint, with the same state, at the same step."""
    way = Way(session_id=session_id, new_id=new_id)
    return (await forks(services, id_, [way], strict=strict, acknowledge=acknowledge, by=by, origin=origin))[0]


async def forks(
    services: Services,
    id_: bytes,
    ways: Sequence[Way],
    *,
    strict: bool = False,
    acknowledge: Collection[str] = (),
    by: str = "",
    origin: Origin | None = None,
) -> list[ForkReport]:
    """A new session for each of the ways, each with the state as its edits make it. One commit: all of them, or none."""
    source = await reading.live_record(services, id_)
    left = await aftermath.of_fork(services, source.tree, id_)
    contents = await _contents(services, source, ways)
    known = [
        await _repeated(
            services,
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
    acknowledgements = aftermath.acknowledged(services, left, acknowledge, by, "fork")
    names = [way.session_id if way.session_id is not None else str(uuid.uuid4()) for way in ways]
    lines = [Line(tree=None, version=ABSENT, head=rows.Head(None, 0), head_value=None, tip=None)] * len(ways)
    while True:
        made = [
            child(
                services,
                line,
                source,
                {**_same(source), **content.fields, **way.fields, "session": name, "name": "fork"},
                content.manifest,
                id_=way.new_id,
                step_index=source.header.get("step", 0),
                runs=content.runs,
                blobs=content.blobs,
            )[:2]
            for way, content, name, line in zip(ways, contents, names, lines, strict=True)
        ]
        reports = [_report(stored, source, left) for _, stored in made]
        if strict:
            aftermath.refuse_unacknowledged(reports[0], acknowledge, "the fork")
        commit = _together([commit for commit, _ in made])
        begun = [Change(oplog.SESSION, rows.session_key(stored.session), None, stored.id) for _, stored in made]
        logged = log.writes(services, origin, source.tree, "fork", begun, names[0])
        commit.rows = [*commit.rows, *acknowledgements, *logged]
        for name in names:
            services.memory.drop(rows.session_key(name))
        try:
            await services.backend.commit(commit)
        except CommitConflict as conflict:
            if conflict.kind == "require":
                await reading.live_record(services, id_)
            before, lines = lines, [await _left_behind(services, name, source.tree) for name in names]
            if [line.version for line in lines] == [line.version for line in before]:
                raise await _taken(services, [stored.session for _, stored in made]) from None
        except StoreError as error:
            error.checkpoint_id = ids.to_text(made[0][1].id)
            raise
        else:
            return reports


async def _left_behind(services: Services, name: str, tree: bytes) -> Line:
    """Where a new session begins: at nothing; or, if there was one of that name in the tree of which nothing is left (its fork
    was undone), with the numbers after its last."""
    found = await reading.find_head(services, rows.session_key(name), tree)
    if found is None or found[0].checkpoint is not None or not leasing.allows(services, found[0], None):
        return Line(tree=None, version=ABSENT, head=rows.Head(None, 0), head_value=None, tip=None)
    head, row = found
    return Line(tree=tree, version=row.version, head=head, head_value=row.value, tip=None)


def _together(commits: Sequence[Commit]) -> Commit:
    """What these commits, which make new records of one tree each, do as one."""
    first, *others = commits
    written = [one.record for one in others if one.record is not None]
    return replace(
        first,
        more_records=written,
        runs=[run for one in commits for run in one.runs],
        blobs={hash_: blob for one in commits for hash_, blob in one.blobs.items()},
        rows=[row for one in commits for row in one.rows],
    )


async def _taken(services: Services, names: Sequence[str]) -> ConflictError:
    there = [name for name in names if await reading.find_tree(services, rows.session_key(name)) is not None]
    return ConflictError(
        f"session {(there or names)[0]!r:.60} exists already: a fork begins a new session. Choose another session_id, or "
        "leave it out; `rollback` moves the head of an existing one"
    )


class _Content(NamedTuple):
    """What a fork begins with, and what has to be written for that: nothing, if it is what its source has."""

    manifest: Manifest
    fields: Mapping[str, Any] = {}
    runs: Sequence[RunWrite] = ()
    blobs: Mapping[bytes, bytes] = {}


async def _contents(services: Services, source: Stored, ways: Sequence[Way]) -> list[_Content]:
    if not any(way.edits for way in ways):
        return [_Content(source.manifest()) for _ in ways]
    from holdfast.operations import edits
    from holdfast.operations import restore as restoring

    # As `restore` gives it: who names a place in the state has seen it so.
    loaded = await restoring.loaded(services, source)
    contents = []
    for way in ways:
        if not way.edits:
            contents.append(_Content(source.manifest()))
            continue
        planned = await edits.planned(services, source, loaded, way.edits)
        version = {"sv": loaded.state_version} if loaded.state_version not in (None, FIRST_VERSION) else {}
        contents.append(_Content(planned.manifest, version, planned.runs, planned.blobs))
    return contents


def _report(stored: Stored, source: Stored, left: Aftermath) -> ForkReport:
    return ForkReport(
        checkpoint_id=ids.to_text(stored.id),
        session_id=stored.session,
        source_id=ids.to_text(source.id),
        tree_id=ids.to_text(source.tree),
        effects=left.effects,
        unknown=left.unknown,
        consumers=left.consumers,
    )


async def _repeated(
    services: Services,
    source: Stored,
    new_id: bytes | None,
    *,
    session: str | None,
    target: str | None = None,
    root: bytes | None = None,
) -> Stored | None:
    """The child that the same call made before, after an unclear failure perhaps; a conflict if it is another."""
    known = await reading.find_record(services, new_id) if new_id is not None else None
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


async def handoff(
    services: Services,
    id_: bytes,
    target_agent_id: str,
    schema: str | None = None,
    *,
    new_id: bytes | None = None,
    lease: LeaseTerms | None = None,
) -> Stored:
    """A child of that checkpoint, in its session, addressed to another agent. It keeps the source's agent, metadata
    and time to live, and becomes the session's head. A lease under which it is made ends with it. A handoff can be handed
    on in the same way, back to where it came from too: it can't be claimed any more then."""
    source = await reading.live_record(services, id_)
    if target_agent_id == source.header["agent"] and "to" not in source.header:
        raise UsageError(f"{target_agent_id!r:.60} made this checkpoint itself: a handoff goes to another agent")
    fields = _same(source) | {"session": source.session, "name": f"handoff_to_{target_agent_id}", "to": target_agent_id}
    if schema is not None:
        fields["toschema"] = schema
    session = rows.session_key(source.session)
    arguments.session_under(lease, source.session)
    for _ in range(MAX_ATTEMPTS):
        known = await _repeated(services, source, new_id, session=source.session, target=target_agent_id)
        if known is not None:
            return known
        line = await reading.current_line(services, session)
        if not leasing.allows(services, line.head, lease):
            services.memory.drop(session)  # what this process remembers may be old
            line = await reading.current_line(services, session)
            leasing.refuse(services, source.session, line.head, lease)
        commit, stored, _ = child(services, line, source, fields, source.manifest(), id_=new_id)
        services.memory.drop(session)
        try:
            await services.backend.commit(commit)
        except CommitConflict:
            source = await reading.live_record(services, id_)
        except StoreError as error:
            error.checkpoint_id = ids.to_text(stored.id)
            raise
        else:
            return stored
    raise ConflictError(f"session {source.session!r:.60} is being written by too many at once: try again")


def _same(source: Stored) -> dict[str, Any]:
    return {name: source.header[name] for name in _OF_THE_CALLER if name in source.header}
