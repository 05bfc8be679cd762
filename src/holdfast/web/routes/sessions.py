"""Sessions, their timelines, and the trees they belong to."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from holdfast.errors import CheckpointNotFoundError, CorruptError, HoldfastError
from holdfast.format.rows import head as heads
from holdfast.format.state import record
from holdfast.json_form.checkpoint import checkpoint_fields, pin_fields, session_fields, tag_fields
from holdfast.json_form.run import status_fields
from holdfast.json_form.tree import damaged_fields
from holdfast.model import ids
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.listing import DamagedCheckpoint, Session
from holdfast.model.run_status import RunState
from holdfast.operations import ledger, lookup
from holdfast.web.answer import RefusedRequest
from holdfast.web.cut import cut
from holdfast.web.endpoint import LIMIT, OFFSET, Endpoint
from holdfast.web.request import Ask, Parameter
from holdfast.web.site import Site
from holdfast.web.tree_layout import BEGINS, FAILED, HANDOFF, LEAF, TreeLayout, TreeRow

RUN_STATES = tuple(str(state) for state in RunState)
RUN_FIELDS = ("status", "approvals", "holder", "expires_at", "since", "in_doubt", "progress")
ROW_LEFT_OUT = ("metadata", "tasks", "checksum", "schema_version")
ONLY = ("forks", "tags", "effects", "failed", "handoffs")


def shown_checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the fields of a checkpoint, with its metadata and tasks cut."""
    bare = {**checkpoint.as_dict(), "metadata": {}, "tasks": None}
    fields = checkpoint_fields(Checkpoint.assemble(bare))
    return {**fields, "metadata": cut(dict(checkpoint.metadata)), "tasks": cut(checkpoint.tasks)}


def row_fields(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the fields of a checkpoint that a row of a list shows."""
    fields = checkpoint_fields(Checkpoint.assemble({**checkpoint.as_dict(), "metadata": {}, "tasks": None}))
    shown = {name: value for name, value in fields.items() if name not in ROW_LEFT_OUT}
    return {**shown, "failed": bool(checkpoint.metadata.get("failed"))}


def find_session(site: Site, session_id: str) -> Session:
    found = site.client.session(session_id)
    if found is None:
        raise CheckpointNotFoundError(f"there is no session {session_id!r:.200} here, or all of it has expired")
    return found


def _runs(site: Site) -> dict[str, dict[str, Any]]:
    def load() -> dict[str, dict[str, Any]]:
        found = {}
        for run in site.client.runs():
            fields = status_fields(run)
            found[run.session_id] = {name: fields[name] for name in RUN_FIELDS}
        return found

    return site.fresh("runs", load)


def _session_row(site: Site, session: Session) -> dict[str, Any]:
    run = _runs(site).get(session.session_id, {})
    shown = session_fields(session)
    extra = {name: run.get(name) for name in RUN_FIELDS}
    return {**shown, "head": shown_checkpoint(session.head), **extra, "approvals": extra["approvals"] or 0}


def list_sessions(site: Site, ask: Ask) -> dict[str, Any]:
    wanted, agent, status = (ask.query[name] for name in ("q", "agent", "status"))
    offset, limit = ask.query["offset"], ask.query["limit"]
    names = [
        session.session_id
        for session in site.session_index.list()
        if (wanted is None or wanted.casefold() in session.session_id.casefold()) and agent in (None, session.agent_id)
    ]
    if status is not None:
        runs = _runs(site)
        names = [name for name in names if runs.get(name, {}).get("status") == status]
    rows: list[dict[str, Any]] = []
    for name in names[offset : offset + limit]:
        try:
            found = site.client.session(name)
        except HoldfastError as error:
            rows.append({"session_id": name, "damaged": str(error)})
            continue
        if found is not None:
            rows.append(_session_row(site, found))
    following = str(offset + limit) if offset + limit < len(names) else None
    return {"sessions": rows, "total": len(names), "next": following}


def show_session(site: Site, ask: Ask) -> dict[str, Any]:
    name = ask.path["session"]
    try:
        session = find_session(site, name)
    except CorruptError as error:
        return _damaged_session(site, name, error)
    damage: list[str] = []
    parent = _forked_from(site, name, damage)
    tags = [tag_fields(tag) for tag in site.tags([]) if _is_of(site, tag.checkpoint_id, name)]
    return {**_session_row(site, session), "parent": parent, "tags": tags, "damaged": damage[0] if damage else None}


def _damaged_session(site: Site, name: str, damage: CorruptError) -> dict[str, Any]:
    """Return what is known of a session whose head can't be read: its tree can be listed."""
    tree = None
    with contextlib.suppress(CorruptError):
        tree = site.run(lookup.find_tree(site.client._ctx, heads.session_key(name)))
    shown = None if tree is None else ids.to_text(tree)
    return {"session_id": name, "tree_id": shown, "head": None, "damaged": str(damage)}


def _forked_from(site: Site, name: str, damage: list[str]) -> dict[str, Any] | None:
    """Return the checkpoint that the session was forked from, without its session if that can't be read."""
    ctx, key = site.client._ctx, heads.session_key(name)
    found = None
    try:
        for first in site.run(ctx.backend.session_records(key, before=2, limit=1)):
            stored = lookup.unpack_listed(ctx, first, key)
            if stored.parent is not None:
                found = {"checkpoint_id": ids.to_text(stored.parent), "session_id": None}
                origin = site.run(lookup.find_record(ctx, stored.parent, stored.tree))
                found["session_id"] = origin.session if origin else None
    except CorruptError as error:
        damage.append(str(error))
    return found


def _is_of(site: Site, checkpoint_id: str, session_id: str) -> bool:
    try:
        return site.client.get(checkpoint_id).session_id == session_id
    except HoldfastError:
        return False


def show_timeline(site: Site, ask: Ask) -> dict[str, Any]:
    """List a session by pages. A damaged checkpoint takes its place in the list and hides no other."""
    name, agent, limit = ask.path["session"], ask.query["agent"], ask.query["limit"]
    before = ask.query["before"]
    ctx, key = site.client._ctx, heads.session_key(name)
    tree = site.run(lookup.find_tree(ctx, key))
    if tree is None:
        raise CheckpointNotFoundError(f"there is no session {name!r:.200} here")
    page = site.run(ctx.backend.session_records(key, before=before, limit=limit))
    found: list[dict[str, Any]] = []
    damaged: list[DamagedCheckpoint] = []
    for item in page:
        try:
            stored = lookup.unpack_listed(ctx, item, key)
            if site.run(lookup.is_expired(ctx, stored)):
                continue
            checkpoint = record.checkpoint(ctx.codec, stored)
        except HoldfastError as error:
            id_ = ids.to_text(item.id)
            damaged.append(
                DamagedCheckpoint(session_id=name, sequence=item.sequence, checkpoint_id=id_, message=str(error))
            )
            continue
        if agent in (None, checkpoint.agent_id, checkpoint.handoff_target):
            found.append(shown_checkpoint(checkpoint))
    try:
        session = site.client.session(name)
    except HoldfastError:
        session = None
    return {
        "session_id": name,
        "tree_id": ids.to_text(tree),
        "head": session.head.checkpoint_id if session else None,
        "saves": session.saves if session else None,
        "checkpoints": found,
        "damaged": [damaged_fields(item) for item in damaged],
        "next": str(page[-1].sequence) if len(page) == limit else None,
    }


class _ListMarks:
    """What is known of a tree's checkpoints beside their records: heads, tags, pins, effects."""

    def __init__(self, site: Site, tree_id: str) -> None:
        ctx, tree = site.client._ctx, ids.from_text(tree_id)
        self.heads: dict[str, list[str]] = {}
        for key, row in site.run(ctx.backend.scan(heads.HEAD, tree=tree)):
            try:
                head = heads.unpack_head(key, row)
            except HoldfastError:
                continue
            if head.checkpoint is not None:
                self.heads.setdefault(ids.to_text(head.checkpoint), []).append(heads.session_name(key.key))
        self.tags: dict[str, list[str]] = {}
        for tag in site.tags([]):
            self.tags.setdefault(tag.checkpoint_id, []).append(tag.name)
        self.pins = {pin.checkpoint_id for pin in site.pins([])}
        self.effects: dict[str, int] = {}
        for entry in site.run(ledger.load_entries(ctx, tree, damaged=[])):
            at = entry.checkpoint or entry.anchor
            if at is not None:
                self.effects[ids.to_text(at)] = self.effects.get(ids.to_text(at), 0) + 1


def show_graph(site: Site, ask: Ask) -> dict[str, Any]:
    tree_id, limit, offset = ask.path["tree"], ask.query["limit"], ask.query["offset"]
    index = site.tree(tree_id)
    marks = site.fresh(f"marks {tree_id} {index.version}", lambda: _ListMarks(site, tree_id))
    chosen = _choose_rows(site, ask, index, marks)
    more: dict[str, Any] = {}
    if ask.query["at"] is not None:
        row = index.find(ids.from_text(site.client.resolve(ask.query["at"])))
        more["at"] = row
        place = row
        if chosen is not None:
            place = next((i for i, number in enumerate(chosen) if number >= row), max(len(chosen) - 1, 0))
        offset = place - place % limit
    if chosen is None:
        rows, total = index.page(offset, limit), index.total
        shown = _rows(site, index, rows, marks)
    else:
        total = len(chosen)
        rows = index.rows(chosen[offset : offset + limit])
        shown = [{**row, "position": offset + i} for i, row in enumerate(_rows(site, index, rows, marks))]
    damaged = [
        DamagedCheckpoint(
            session_id=row.session_id, sequence=row.sequence, checkpoint_id=ids.to_text(row.id), message=row.damage
        )
        for row in rows
        if row.damage
    ]
    return {
        "tree_id": tree_id,
        "version": index.version,
        "total": total,
        "lanes": index.lanes,
        "sessions": index.sessions,
        "offset": offset,
        "next": str(offset + limit) if offset + limit < total and rows else None,
        "rows": shown,
        "damaged": [damaged_fields(checkpoint) for checkpoint in damaged],
        **more,
    }


def _choose_rows(site: Site, ask: Ask, index: TreeLayout, marks: _ListMarks) -> list[int] | None:
    """Return the numbers of the rows that the filters leave; None without a filter."""
    line, only = ask.query["line"], ask.query["only"]
    if line is None and only is None:
        return None
    rows: set[int] | None = None
    if line is not None:
        rows = set(index.line(ids.from_text(find_session(site, line).head.checkpoint_id)))
    if only is not None:
        flags = {"forks": LEAF | BEGINS, "failed": FAILED, "handoffs": HANDOFF}
        found = set(index.select(sum(flags.get(item, 0) for item in only))) if set(only) & set(flags) else set()
        marked = [*(marks.tags if "tags" in only else ()), *(marks.effects if "effects" in only else ())]
        for checkpoint_id in marked:
            try:
                found.add(index.find(ids.from_text(checkpoint_id)))
            except CheckpointNotFoundError:
                continue  # of another tree
        rows = found if rows is None else rows & found
    return sorted(rows or ())


def _rows(site: Site, index: TreeLayout, rows: Sequence[TreeRow], marks: _ListMarks) -> list[dict[str, Any]]:
    ctx = site.client._ctx
    parents = index.rows([row.parent_row for row in rows if row.parent_row is not None])
    parent_ids = {row.row: ids.to_text(row.id) for row in parents}
    shown = []
    for row, found in zip(rows, site.run(ctx.backend.records([row.id for row in rows])), strict=True):
        id_ = ids.to_text(row.id)
        fields: dict[str, Any] = {
            "checkpoint_id": id_, "short_id": ids.short(id_), "session_id": row.session_id, "sequence": row.sequence
        }  # fmt: skip
        try:
            if found is not None and row.damage is None:
                stored = record.unpack(ctx.codec, found.data, expected_id=row.id)
                fields = row_fields(record.checkpoint(ctx.codec, stored))
            elif row.damage is not None:
                fields["damaged"] = row.damage
        except HoldfastError as error:
            fields["damaged"] = str(error)
        shown.append(
            {
                "row": row.row,
                **fields,
                "nearest_parent_id": None if row.parent_row is None else parent_ids[row.parent_row],
                "nearest_parent_row": row.parent_row,
                "lane": row.lane,
                "through": list(row.through),
                "joins": list(row.joins),
                "is_leaf": bool(row.flags & LEAF),
                "heads": marks.heads.get(id_, []),
                "tags": marks.tags.get(id_, []),
                "pinned": id_ in marks.pins,
                "effects": marks.effects.get(id_, 0),
            }
        )
    return shown


def list_tags(site: Site, _ask: Ask) -> dict[str, Any]:
    damaged: list[str] = []
    return {"tags": [tag_fields(tag) for tag in site.tags(damaged)], "next": None, "damaged": damaged}


def list_pins(site: Site, _ask: Ask) -> dict[str, Any]:
    damaged: list[str] = []
    return {"pins": [pin_fields(pin) for pin in site.pins(damaged)], "next": None, "damaged": damaged}


def search(site: Site, ask: Ask) -> dict[str, Any]:
    """Find sessions, agents, tags and checkpoints by what a person types."""
    wanted, limit = ask.query["q"], ask.query["limit"]
    if not wanted:
        raise RefusedRequest(400, "bad_request", "q is empty: give a part of a name, or the end of an id")
    text = wanted.casefold()
    listed = site.session_index.list()
    checkpoints = []
    with contextlib.suppress(HoldfastError):
        checkpoints = [shown_checkpoint(site.client.get(site.client.resolve(wanted)))]
    agents = dict.fromkeys(session.agent_id for session in listed if text in session.agent_id.casefold())
    return {
        "sessions": [session.session_id for session in listed if text in session.session_id.casefold()][:limit],
        "agents": list(agents)[:limit],
        "tags": [tag_fields(tag) for tag in site.tags([]) if text in tag.name.casefold()][:limit],
        "checkpoints": checkpoints,
    }


AGENT = Parameter("agent", "text", "Only of this agent.")
ROUTES = (
    Endpoint(
        "/sessions",
        list_sessions,
        "List sessions, most recently saved first.",
        (
            Parameter("q", "text", "Part of the name, ignoring case."),
            AGENT,
            Parameter("status", "choice", "Only runs with this status.", choices=RUN_STATES),
            OFFSET,
            LIMIT,
        ),
    ),
    Endpoint("/sessions/{session}", show_session, "Show a session."),
    Endpoint(
        "/sessions/{session}/timeline",
        show_timeline,
        "List the checkpoints of a session, newest first.",
        (Parameter("before", "number", "Only numbers below this.", most=2**53), AGENT, LIMIT),
    ),
    Endpoint(
        "/trees/{tree}/graph",
        show_graph,
        "List the checkpoints of a tree with their lanes, newest first.",
        (
            OFFSET,
            LIMIT._replace(default=200),
            Parameter("at", "text", "The page, of `limit` rows, that has this checkpoint."),
            Parameter("line", "text", "Only the line that leads to this session's head."),
            Parameter("only", "choices", "Only rows of these kinds, with commas between them.", choices=ONLY),
        ),
    ),
    Endpoint("/tags", list_tags, "List the tags."),
    Endpoint("/pins", list_pins, "List the pins."),
    Endpoint(
        "/search",
        search,
        "Find sessions, agents, tags and checkpoints.",
        (Parameter("q", "text", "Part of a name, or a reference.", default=""), LIMIT._replace(default=20)),
    ),
)
