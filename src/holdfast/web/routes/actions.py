"""Changes: rollback, fork, tag, pin, decide, resolve, undo and redo.

What changes the store's history is in the operation log, so that it can be undone. Decisions about
approvals and effects are final, and are in their own histories.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from holdfast.errors import ConflictError, UsageError
from holdfast.json_form.checkpoint import pin_fields, tag_fields
from holdfast.json_form.input import read_edit, read_value
from holdfast.json_form.operation import fork_fields, left_fields, operation_fields, rollback_fields, undo_fields
from holdfast.model import ids, path_edit
from holdfast.model.approval import Answer
from holdfast.model.reports import ForkReport
from holdfast.operations import left_behind
from holdfast.web.answer import RefusedRequest
from holdfast.web.cut import refuse_cut
from holdfast.web.endpoint import DRY_RUN, Endpoint
from holdfast.web.request import Ask, BodyField
from holdfast.web.routes.checkpoints import files_from, shown_effect
from holdfast.web.routes.work import find_approval, find_effect, shown_approval
from holdfast.web.site import Site

STRICT = (
    BodyField("strict", "flag", "Refuse what would leave effects or handoffs behind."),
    BodyField("acknowledge", "texts", "Ids of effects and handoffs that may stay."),
)


def last_operation(site: Site, kind: str, before: str | None) -> dict[str, Any] | None:
    """Return the operation that a change of ours wrote; None if it changed nothing."""
    found = next((operation for operation in site.operations([], limit=5) if operation.kind == kind), None)
    return None if found is None or found.operation_id == before else operation_fields(found)


def newest(site: Site, kind: str) -> str | None:
    return next((operation.operation_id for operation in site.operations([], limit=5) if operation.kind == kind), None)


def rollback(site: Site, ask: Ask) -> dict[str, Any]:
    session, body, dry_run = ask.path["session"], ask.body, ask.body["dry_run"]
    before = newest(site, "rollback")
    report = site.client.rollback(
        session,
        site.client.resolve(body["to"]),
        strict=body["strict"],
        acknowledge=body["acknowledge"] or (),
        expect_head=body["expect_head"],
        by=site.by,
        dry_run=dry_run,
    )
    operation = None if dry_run else last_operation(site, "rollback", before)
    return {**rollback_fields(report, dry_run=dry_run), "operation": operation}


def fork(site: Site, ask: Ask) -> dict[str, Any]:
    body = ask.body
    source, name = site.client.resolve(ask.path["ref"]), body["session"]
    refuse_cut(body["set"], "set")
    edits = {path: read_edit(path, value) for path, value in (body["set"] or {}).items()}
    directory = _new_directory(site, source, name) if body["files"] else None
    if body["dry_run"]:
        return {**_plan_fork(site, source, name, edits), **_place(directory), "dry_run": True, "operation": None}
    before = newest(site, "fork")
    report: ForkReport = site.client.fork(
        source,
        name,
        set=edits or None,
        workspace=directory,
        strict=body["strict"],
        acknowledge=body["acknowledge"] or (),
        by=site.by,
    )
    operation = last_operation(site, "fork", before)
    return {
        **fork_fields(report), **_place(report.directory), "left": left_fields(report.left), "dry_run": False,
        "operation": operation,
    }  # fmt: skip


def _place(directory: Path | None) -> dict[str, Any]:
    return {"directory": None if directory is None else str(directory)}


def _new_directory(site: Site, source: str, name: str | None) -> Path:
    """Return a new directory beside the server's: no path comes from a request, only the end of a name."""
    if site.workspace is None:
        raise RefusedRequest(
            409, "no_workspace", "the server was started without a directory, so it writes no files",
            "Start `holdfast ui` in the directory, or with --dir",
        )  # fmt: skip
    if files_from(site, source) is None:
        raise UsageError(f"{source} has no snapshot of files, and no checkpoint before it has one")
    base = Path(site.workspace.path)
    end = re.sub(r"[^A-Za-z0-9_-]+", "-", name or "fork").strip("-")[:60] or "fork"
    places = (base.with_name(f"{base.name}-{end}{f'-{n}' if n else ''}") for n in count())
    return next(place for place in places if not os.path.lexists(place))


def _plan_fork(site: Site, source: str, name: str | None, edits: Mapping[str, Any]) -> dict[str, Any]:
    """Check a fork as far as it can be checked without making it."""
    checkpoint = site.restore(source)
    if edits:
        path_edit.edit(checkpoint.execution_state, checkpoint.agent_context, edits)
    if name is not None and site.client.session(name) is not None:
        raise ConflictError(f"there is a session {name!r:.200} already. Take another name")
    ctx = site.client._ctx
    found = site.run(left_behind.find_after_fork(ctx, ids.from_text(checkpoint.tree_id), ids.from_text(source)))
    report = ForkReport(
        checkpoint_id="",
        session_id=name or "",
        source_id=source,
        tree_id=checkpoint.tree_id,
        effects=found.effects,
        unknown=found.unknown,
        consumers=found.consumers,
    )
    return {**fork_fields(report), "checkpoint_id": None, "session_id": name}


def tag(site: Site, ask: Ask) -> dict[str, Any]:
    client, body, name = site.client, ask.body, ask.body["name"]
    id_ = client.resolve(ask.path["ref"])
    current = client.tagged(name)
    if body["remove"]:
        if current is not None and current.checkpoint_id != id_:
            raise ConflictError(f"the tag {name!r:.60} is at another checkpoint, {current.checkpoint_id}")
        before = newest(site, "untag")
        removed = client.untag(name) if not body["dry_run"] else current is not None
        fields: dict[str, Any] = {"name": name, "checkpoint_id": id_, "tagged_at": None, "removed": removed}
        operation = None if body["dry_run"] else last_operation(site, "untag", before)
        return {**fields, "dry_run": body["dry_run"], "operation": operation}
    if body["dry_run"]:
        if current is not None and current.checkpoint_id != id_ and not body["move"]:
            raise ConflictError(f"the tag {name!r:.60} is at {current.checkpoint_id}: move it, or take another name")
        return {"name": name, "checkpoint_id": id_, "tagged_at": None, "dry_run": True, "operation": None}
    before = newest(site, "tag")
    made = client.tag(name, id_, force=body["move"])
    return {**tag_fields(made), "dry_run": False, "operation": last_operation(site, "tag", before)}


def pin(site: Site, ask: Ask) -> dict[str, Any]:
    client, body = site.client, ask.body
    id_ = client.resolve(ask.path["ref"])
    if body["remove"]:
        before = newest(site, "unpin")
        is_pinned = any(item.checkpoint_id == id_ for item in site.pins([]))
        removed = is_pinned if body["dry_run"] else client.unpin(id_)
        operation = None if body["dry_run"] else last_operation(site, "unpin", before)
        return {"checkpoint_id": id_, "removed": removed, "dry_run": body["dry_run"], "operation": operation}
    if body["dry_run"]:
        session = client.get(id_).session_id
        fields: dict[str, Any] = {"checkpoint_id": id_, "session_id": session, "pinned_at": None, "note": body["note"]}
        return {**fields, "dry_run": True, "operation": None}
    before = newest(site, "pin")
    made = client.pin(id_, body["note"])
    return {**pin_fields(made), "dry_run": False, "operation": last_operation(site, "pin", before)}


def decide(site: Site, ask: Ask) -> dict[str, Any]:
    body = ask.body
    found = find_approval(site, ask.path["approval"])
    change = body["change"]
    if (body["answer"] == Answer.MODIFY) != (change is not None):
        raise UsageError("change replaces arguments: give it with the answer modify, and with no other")
    arguments: dict[str, Any] | None = None
    if change is not None:
        refuse_cut(change, "change")
        for name in change:
            if name not in found.call.arguments:
                has = ", ".join(map(repr, found.call.arguments)) or "none"
                raise UsageError(f"the call has no argument {name!r:.60}: it has {has:.400}")
        arguments = {**found.call.arguments, **{name: read_value(value, name) for name, value in change.items()}}
    if body["dry_run"]:
        if not found.is_pending:
            raise ConflictError(f"approval {found.approval_id} is {found.status}: it is decided once")
        return {**shown_approval(found), "dry_run": True}
    decided = site.client.decide(found.approval_id, body["answer"], by=site.by, note=body["note"], arguments=arguments)
    return {**shown_approval(decided), "dry_run": False}


def resolve(site: Site, ask: Ask) -> dict[str, Any]:
    body = ask.body
    found = find_effect(site, ask.path["effect"])
    if body["result"] is not None and body["outcome"] != "done":
        raise UsageError("result is what the call returned: give it with the outcome done, and with no other")
    refuse_cut(body["result"], "result")
    result = None if body["result"] is None else read_value(body["result"], "result")
    if body["dry_run"]:
        if body["outcome"] != "acknowledge" and not found.is_in_doubt:
            raise ConflictError(f"effect {found.effect_id} is not in doubt: it is {found.state}")
        return {"effect": shown_effect(found), "dry_run": True}
    resolved = site.client.resolve_effect(
        found.effect_id, body["outcome"], result=result, by=site.by, note=body["note"]
    )
    return {"effect": shown_effect(resolved), "dry_run": False}


def undo(site: Site, ask: Ask) -> dict[str, Any]:
    return _go_back(site, site.client.undo, ask)


def redo(site: Site, ask: Ask) -> dict[str, Any]:
    return _go_back(site, site.client.redo, ask)


def _go_back(site: Site, act: Any, ask: Ask) -> dict[str, Any]:
    body = ask.body
    terms = {"keep": body["keep"], "force": body["force"], "dry_run": body["dry_run"]}
    return undo_fields(act(body["operation"], workspace=site.workspace, by=site.by, **terms))


NOTE = BodyField("note", "text", "The reason, for people.")
OPERATION = (
    BodyField("operation", "text", "The id of an operation, or its last digits. Left out: the last one."),
    BodyField("keep", "choice", "`user` keeps files that were changed since.", choices=("user",)),
    BodyField("force", "flag", "Overwrite files that were changed since."),
    DRY_RUN,
)
ROUTES = (
    Endpoint(
        "/sessions/{session}/rollback",
        rollback,
        "Move a session to another checkpoint of its tree.",
        body=(
            BodyField("to", "text", "A reference to the checkpoint.", required=True),
            *STRICT,
            BodyField("expect_head", "text", "Refuse unless this is the session's head."),
            DRY_RUN,
        ),
        changes=True,
    ),
    Endpoint(
        "/checkpoints/{ref}/fork",
        fork,
        "Start a new session at a checkpoint, with edits.",
        body=(
            BodyField("session", "text", "The name of the new session."),
            BodyField("set", "object", "New values by path, as for `holdfast fork --set`."),
            BodyField("files", "flag", "Write its files into a new directory beside the server's."),
            *STRICT,
            DRY_RUN,
        ),
        changes=True,
    ),
    Endpoint(
        "/checkpoints/{ref}/tag",
        tag,
        "Tag a checkpoint, or remove its tag.",
        body=(
            BodyField("name", "text", "The tag.", required=True),
            BodyField("move", "flag", "Move it from another checkpoint."),
            BodyField("remove", "flag", "Remove it."),
            DRY_RUN,
        ),
        changes=True,
    ),
    Endpoint(
        "/checkpoints/{ref}/pin",
        pin,
        "Pin a checkpoint, or unpin it.",
        body=(NOTE, BodyField("remove", "flag", "Unpin it."), DRY_RUN),
        changes=True,
    ),
    Endpoint(
        "/approvals/{approval}/decide",
        decide,
        "Decide an approval.",
        body=(
            BodyField("answer", "choice", "approve, reject or modify", required=True, choices=tuple(map(str, Answer))),
            NOTE,
            BodyField("change", "object", "With modify: new values of arguments; others stay."),
            DRY_RUN,
        ),
        changes=True,
    ),
    Endpoint(
        "/effects/{effect}/resolve",
        resolve,
        "Record the outcome of an effect in doubt.",
        body=(
            BodyField(
                "outcome", "choice", "done, not_done or acknowledge", required=True,
                choices=("done", "not_done", "acknowledge"),
            ),
            BodyField("result", "value", "With done: what the call returned."),
            NOTE,
            DRY_RUN,
        ),
        changes=True,
    ),
    Endpoint("/undo", undo, "Undo the last operation, or a named one.", body=OPERATION, changes=True),
    Endpoint("/redo", redo, "Redo the operation undone last, or a named one.", body=OPERATION, changes=True),
)  # fmt: skip
