"""Import of checkpnt 0.1's SQLite database.

Rows come in the order of their dates, parents before children. A row without a parent follows the
previous row of its agent in the same session, as a save without `parent_id` does here: a session is
one tree. So do rows whose parent is missing, and those whose parent belongs to another tree; their
metadata names the original parent. Ids are kept if they are UUIDs in the usual form, as checkpnt's
own are; others are mapped to an id derived from them.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, UsageError
from holdfast.format.state.record import microseconds
from holdfast.importers import checkpnt_state
from holdfast.importers.checkpnt_database import Database, RowLocation, open_database
from holdfast.importers.checkpnt_state import Content
from holdfast.importers.import_target import ImportTarget
from holdfast.model import ids
from holdfast.model.framework import Framework
from holdfast.model.reports import ImportedReport
from holdfast.model.state_migration import FIRST_VERSION
from holdfast.operations import validate
from holdfast.operations.context import StoreContext
from holdfast.operations.validate import SaveRequest

SCHEMA_VERSION = "1.0"  # of checkpnt's checkpoints: 0.1.0 knows no other
_FIELDS = ("framework", "step_index", "execution_state", "agent_context", "created_at")
_KINDS: dict[str, Any] = {
    "checkpoint_id": str,
    "agent_id": str,
    "session_id": str,
    "parent_id": str | None,
    "created_at_ms": int,
    "expires_at_ms": int | float | None,
}


async def import_database(ctx: StoreContext, path: str | os.PathLike[str], *, dry_run: bool = False) -> ImportedReport:
    """Save every readable, unexpired checkpoint of a database, which is only read.

    A second import does nothing.
    """
    with open_database(Path(path)) as database:
        work = _Import(ctx, database, dry_run=dry_run)
        await work.carry_out()
        if database.has_changed():
            work.target.warn("database", None, "it was written to meanwhile: import again to get what is new")
        return work.target.report(str(path))


class _Import:
    """One pass over the database. Memory holds the location of each row; states are read one by one."""

    def __init__(self, ctx: StoreContext, database: Database, *, dry_run: bool) -> None:
        self._database = database
        self._places: dict[str, RowLocation] = {}  # by their id
        self._ids: set[bytes] = set()
        self.target = ImportTarget(ctx, dry_run=dry_run, may_follow=lambda head: head.id in self._ids)
        self._trees: dict[str, str] = {}  # of rows that are here now: by their id, the id of their tree's first row
        self._tree_of: dict[str, str] = {}  # by session
        self._newest: dict[tuple[str, str | None], RowLocation] = {}  # by session and agent; with None, of any agent

    async def carry_out(self) -> None:
        order = sorted(self._select_valid(self._database.places()), key=_age)
        if self._database.damage is not None:
            self.target.skip("database", None, self._database.damage)
        self._places = {place.checkpoint_id: place for place in order}
        self._ids = {our_id(place) for place in order}
        for place in _parents_first(order, self._places):
            try:
                await self._take(place)
            except HoldfastError:
                raise
            except Exception as error:  # a row may hold anything: report it, and continue with the next one
                self.target.skip(f"row {place.rowid}", place.checkpoint_id, f"it can't be taken over: {error!r:.200}")
        for (session, agent), newest in self._newest.items():
            if agent is None:
                await self.target.stand_at(session, our_id(newest))

    def _select_valid(self, places: Iterable[RowLocation]) -> Iterator[RowLocation]:
        """Yield the rows with valid columns, each id once; report the others."""
        rows: dict[str, int] = {}
        for place in places:
            reason = _find_problem(place)
            if reason is None and place.checkpoint_id in rows:
                reason = f"row {rows[place.checkpoint_id]} has the same checkpoint_id"
            if reason is None:
                rows[place.checkpoint_id] = place.rowid
                yield place
            else:
                named = place.checkpoint_id if isinstance(place.checkpoint_id, str) else None
                self.target.skip(f"row {place.rowid}", named, reason)

    async def _take(self, place: RowLocation) -> None:
        where, id_ = f"row {place.rowid}", place.checkpoint_id
        if place.expires_at_ms is not None and self.target.now_us() > place.expires_at_ms * 1000:
            self.target.expired += 1
            return
        try:
            payload = checkpnt_state.unpack(self._database.payload(place.rowid))
            _check(payload, place)
            judged = checkpnt_state.judge(
                Content(payload["execution_state"], payload["agent_context"]), payload.get("checksum")
            )
            created_at_us = _created_at(payload["created_at"])
        except (ValueError, sqlite3.DatabaseError) as error:
            self.target.skip(where, id_, str(error))
            return
        except RecursionError:
            self.target.skip(where, id_, "its state is nested too deeply")
            return
        remarks: list[str] = []
        metadata = dict(payload.get("metadata") or {})
        fields = _fields(payload, place, metadata, remarks)
        ttl = fields.get("ttl_seconds")
        if ttl is not None and self.target.now_us() >= created_at_us + ttl * 1_000_000:
            self.target.expired += 1
            return
        parent = self._parent(place, metadata, remarks)
        if not judged.matches:
            metadata["checkpnt_checksum"] = "mismatch"
            remarks.append(
                "its checksum does not match: it was changed after it was saved, or held a datetime "
                "that can't be told from a string any more"
            )
        elif judged.datetimes:
            remarks.append("datetimes that checkpnt stored as text are datetimes again, as its checksum proves")
        request = SaveRequest(
            agent_id=place.agent_id,
            session_id=place.session_id,
            execution_state=judged.content.execution_state,
            agent_context=judged.content.agent_context,
            parent_id=our_id(parent) if parent is not None else None,
            metadata=metadata,
            checkpoint_id=our_id(place),
            created_at_us=created_at_us,
            state_version=FIRST_VERSION,  # migrations upgrade it when it is read
            **fields,
        )
        unrestorable = bool(judged.datetimes) or judged.other_keys or not judged.matches
        if await self.target.put(request, where, id_, remarks=remarks, recovered=unrestorable):
            self._note(place, parent, fields.get("handoff_target"))

    def _note(self, place: RowLocation, parent: RowLocation | None, target: str | None) -> None:
        """Note a row that is here: later rows of its agent, or of the one it is handed to, may follow it."""
        tree = self._trees[parent.checkpoint_id] if parent is not None else place.checkpoint_id
        self._trees[place.checkpoint_id] = tree
        self._tree_of.setdefault(place.session_id, tree)
        for agent in {None, place.agent_id, target}:
            key = place.session_id, agent
            newest = self._newest.get(key)
            if newest is None or _age(newest) <= _age(place):
                self._newest[key] = place

    def _parent(self, place: RowLocation, metadata: dict[str, Any], remarks: list[str]) -> RowLocation | None:
        """Return the row that this one follows here: parent, nearest ancestor here, or agent's last row."""
        found = self._ancestor(place)
        if found is not None and found.checkpoint_id == place.parent_id:
            return found
        if found is None:
            session = place.session_id
            found = self._newest.get((session, place.agent_id)) or self._newest.get((session, None))
        if place.parent_id is not None:
            metadata["checkpnt_parent_id"] = place.parent_id
            instead = f"it follows {found.checkpoint_id}" if found is not None else "it begins a tree"
            remarks.append(f"its parent {place.parent_id!r:.60} could not be kept: here {instead}")
        return found

    def _ancestor(self, place: RowLocation) -> RowLocation | None:
        """Return the nearest ancestor that is here and in the tree of the session."""
        passed = {place.checkpoint_id}
        above = place.parent_id
        while above in self._places and above not in passed:
            passed.add(above)
            ancestor = self._places[above]
            tree = self._trees.get(above)
            if tree is not None and self._tree_of.get(place.session_id, tree) == tree:
                return ancestor
            above = ancestor.parent_id
        return None


def our_id(place: RowLocation) -> bytes:
    """Return the id that the row has here."""
    try:
        raw = ids.from_text(place.checkpoint_id)
    except UsageError:
        raw = b""
    if raw and ids.to_text(raw) == place.checkpoint_id:
        return raw
    noise = hashlib.sha256(b"checkpnt\0" + place.checkpoint_id.encode("utf-8", "surrogatepass")).digest()
    return ids.make(place.created_at_ms & (1 << 48) - 1, 0, noise[:8])


def _age(place: RowLocation) -> tuple[int, int]:
    return place.created_at_ms, place.rowid


def _parents_first(order: list[RowLocation], places: dict[str, RowLocation]) -> Iterator[RowLocation]:
    """Yield the rows in this order, but none before its parent; rows in a cycle come as they are."""
    done: set[str] = set()
    for place in order:
        line = [place]
        in_chain = {place.checkpoint_id}
        while (above := line[-1].parent_id) in places and above not in done and above not in in_chain:
            line.append(places[above])
            in_chain.add(above)
        for row_location in reversed(line):
            if row_location.checkpoint_id not in done:
                done.add(row_location.checkpoint_id)
                yield row_location


def _find_problem(place: RowLocation) -> str | None:
    """Return what keeps the row from being imported: SQLite's columns may hold values of any type."""
    values: dict[str, Any] = place._asdict()
    if type(place.rowid) is not int:
        return f"its rowid is {place.rowid!r:.60}"
    for name, kinds in _KINDS.items():
        if not isinstance(values[name], kinds):
            return f"its {name} is {values[name]!r:.60}"
    for name in ("agent_id", "session_id"):
        if len(values[name]) > validate.MAX_NAME_BYTES:
            return f"its {name} has {len(values[name])} characters: at most {validate.MAX_NAME_BYTES} are allowed"
    return None


def _check(payload: dict[Any, Any], place: RowLocation) -> None:
    """Raise `ValueError` unless the payload is a whole checkpoint, and the one that its row names."""
    version = payload.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION:
        raise ValueError(f"its schema_version is {version!r:.40}: only {SCHEMA_VERSION} is known")
    missing = [name for name in _FIELDS if name not in payload]
    if missing:
        raise ValueError(f"its payload has no {', '.join(missing)}")
    if payload.get("checkpoint_id") != place.checkpoint_id:
        raise ValueError(f"its payload is that of another checkpoint, {payload.get('checkpoint_id')!r:.60}")
    if not isinstance(payload.get("metadata") or {}, dict):
        raise ValueError("its metadata is no map")  # noqa: TRY004 - one error for all that is wrong with a payload


def _created_at(text: Any) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise ValueError(f"its created_at is {text!r:.60}, not a date") from None
    return microseconds(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))


def _fields(
    payload: dict[Any, Any], place: RowLocation, metadata: dict[str, Any], remarks: list[str]
) -> dict[str, Any]:
    """Return the fields of a checkpoint that have the same name here.

    A value that is not allowed here goes to the metadata.
    """
    checks: dict[str, Callable[[Any], Any]] = {
        "framework": Framework.of,
        "step_index": validate.step,
        "step_name": lambda value: validate.optional_name("step_name", value),
        "ttl_seconds": lambda value: validate.ttl(value or None),  # checkpnt treats 0 as none
        "handoff_target": lambda value: validate.optional_name("handoff_target", value),
        "handoff_schema": lambda value: validate.optional_name("handoff_schema", value),
    }
    fields = {}
    for name, check in checks.items():
        try:
            fields[name] = check(payload.get(name))
        except UsageError:
            metadata[f"checkpnt_{name}"] = payload.get(name)
            remarks.append(f"its {name} is {payload.get(name)!r:.60}, which can't be kept: it is in the metadata")
    for name in ("agent_id", "session_id", "parent_id"):
        column = getattr(place, name)
        if payload.get(name) != column:
            remarks.append(f"its row says {name} {column!r:.60}, its payload {payload.get(name)!r:.60}: the row counts")
    if ids.to_text(our_id(place)) != place.checkpoint_id:
        metadata["checkpnt_id"] = place.checkpoint_id
    return fields
