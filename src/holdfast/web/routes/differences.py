"""Differences of two checkpoints, and two sessions side by side."""

from __future__ import annotations

import difflib
from typing import Any

from holdfast.errors import UsageError
from holdfast.format.state import record
from holdfast.json_form.difference import change_fields, comparison_counts, plain_key, recorded_fields
from holdfast.model import ids
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.diff import Diff, Drop, Edit, Put, Splice
from holdfast.operations import snapshot_read
from holdfast.transcript import TextPart, TranscriptMessage
from holdfast.web.cut import SMALL, cut
from holdfast.web.endpoint import LIMIT, Endpoint
from holdfast.web.request import Ask, Parameter
from holdfast.web.routes.checkpoints import conversation, shown_messages, shown_part
from holdfast.web.routes.files import encode_name, entry_fields, open_snapshot, whole_text
from holdfast.web.routes.sessions import shown_checkpoint
from holdfast.web.site import Site
from holdfast.workspace.limits import is_secret

PARTS = ("state", "messages", "files")
LARGEST = 1024 * 1024  # a longer file's lines are not compared
LINES = 5000
MESSAGES = 200
FIRST_EDITS = 20
SIDE = SMALL._replace(depth=6, items=50, text=4000, values=1000)


def shown_edit(edit: Edit) -> dict[str, Any]:
    """Return an edit as `--json` has it, with its values cut."""
    path = [cut(plain_key(key)) for key in edit.path]
    if isinstance(edit, Put):
        if edit.replaces:
            return {"kind": "change", "path": path, "old": cut(edit.was, SIDE), "new": cut(edit.value, SIDE)}
        return {"kind": "add", "path": path, "new": cut(edit.value, SIDE)}
    if isinstance(edit, Drop):
        return {"kind": "remove", "path": path, "old": cut(edit.was, SIDE)}
    if isinstance(edit, Splice):
        old, new = ([cut(item, SIDE) for item in list(given)[: SIDE.items]] for given in (edit.removed, edit.added))
        counts = {"old_total": len(edit.removed), "new_total": len(edit.added)}
        return {"kind": "splice", "path": path, "at": edit.at, "old": old, "new": new, **counts}
    return {"kind": "reorder", "path": path, "keys": [cut(key) for key in list(edit.keys)[: SIDE.items]]}


def show_diff(site: Site, ask: Ask) -> dict[str, Any]:
    client, limit, parts = site.client, ask.query["limit"], ask.query["part"]
    b = client.get(client.resolve(ask.query["b"]))
    given = ask.query["a"] if ask.query["a"] is not None else b.parent_id
    if given is None:
        raise UsageError(f"{b.checkpoint_id} is the first of its tree: it has no parent to compare it with")
    a = client.get(client.resolve(given))
    found: dict[str, Any] = {"a": shown_checkpoint(a), "b": shown_checkpoint(b)}
    if "state" in parts or "files" in parts:
        diff = client.diff(a.checkpoint_id, b.checkpoint_id)
        if "state" in parts:
            found |= {
                "edits": [shown_edit(edit) for edit in diff.edits[:limit]],
                "edits_total": len(diff.edits),
                "recorded": recorded_fields(diff)[:limit],
            }
        if "files" in parts:
            found |= _changes(diff, limit)
    if "messages" in parts:
        found["messages"] = _messages(site, a.checkpoint_id, b.checkpoint_id)
    return found


def _changes(diff: Diff, limit: int) -> dict[str, Any]:
    if diff.files is None:
        return {"changes": None, "changes_total": 0}
    changes = list(diff.files)
    return {"changes": [change_fields(change) for change in changes[:limit]], "changes_total": len(changes)}


def _messages(site: Site, a: str, b: str) -> dict[str, Any]:
    """Return the messages after the common beginning of two conversations."""
    sides = [site.restore(id_) for id_ in (a, b)]
    conversations = [conversation(side) for side in sides]
    common = 0
    for item, other in zip(*conversations, strict=False):
        if not _is_same(item, other):
            break
        common += 1
    removed, added = (shown_messages(site, side, common, MESSAGES)[0] for side in sides)
    return {"common": common, "removed": removed, "added": added, "totals": [len(side) for side in conversations]}


def _is_same(item: TranscriptMessage, other: TranscriptMessage) -> bool:
    if item.role != other.role or len(item.parts) != len(other.parts):
        return False
    return all(
        part == another if isinstance(part, TextPart) else shown_part(part) == shown_part(another)
        for part, another in zip(item.parts, other.parts, strict=True)
    )


def diff_file(site: Site, ask: Ask) -> dict[str, Any]:
    path = ask.query["path"] or ""
    name = encode_name(path)
    b = site.client.get(site.client.resolve(ask.query["b"]))
    given = ask.query["a"] if ask.query["a"] is not None else b.parent_id
    entries = []
    for ref in (given, b.checkpoint_id):
        opened = None if ref is None else open_snapshot(site, ref)
        is_known = opened is not None and opened[2].tree is not None
        entries.append(site.run(snapshot_read.find(site.client._ctx, opened[2], name)) if opened and is_known else None)
    before, after = entries
    shown = [entry for entry in entries if entry is not None]
    secret = is_secret(name.rpartition(b"/")[2])
    too_large = any(entry.size > LARGEST for entry in shown)
    fields = {
        "path": path,
        "status": _status(before, after),
        "before": None if before is None else entry_fields(before),
        "after": None if after is None else entry_fields(after),
        "is_secret": secret,
        "too_large": too_large,
        "is_binary": False,
        "lines": None,
        "cut": False,
    }
    if secret or too_large or any(entry.kind != "file" for entry in shown):
        return fields
    contents = [b"" if entry is None else whole_text(site, entry, LARGEST) for entry in entries]
    if any(b"\0" in content[:8000] for content in contents):
        return {**fields, "is_binary": True}
    old, new = (content.decode("utf-8", "replace").splitlines() for content in contents)
    lines = list(difflib.unified_diff(old, new, lineterm="", n=3))[2:]
    return {**fields, "lines": lines[:LINES], "cut": len(lines) > LINES}


def _status(before: Any, after: Any) -> str | None:
    if before is None or after is None:
        return "A" if after is not None else "D" if before is not None else None
    if before.kind != after.kind:
        return "T"
    if before.content != after.content:
        return "M"
    return "P" if before.mode != after.mode else None


def show_comparison(site: Site, ask: Ask) -> dict[str, Any]:
    limit = ask.query["limit"]
    site.forget_states()
    found = site.client.compare(ask.query["a"] or "", ask.query["b"] or "")
    counts = comparison_counts(found, raw=False)
    shown: dict[str, Any] = {
        "ancestor": shown_checkpoint(found.ancestor) if found.ancestor else None,
        "edits": [shown_edit(edit) for edit in found.diff.edits[:limit]],
        "edits_total": len(found.diff.edits),
        "paths": counts["paths"][:limit],
        "first_difference": _first_difference(site, *(side.steps or (side.head,) for side in (found.a, found.b))),
    }
    for name, side in (("a", found.a), ("b", found.b)):
        since = side.since
        shown[name] = {
            "session_id": side.session_id,
            "head": shown_checkpoint(side.head),
            "steps": [shown_checkpoint(step) for step in side.steps[:limit]],
            "steps_total": len(side.steps),
            "usage": dict(side.usage),
            "outcome": side.outcome,
            "recorded": recorded_fields(since)[:limit] if since else [],
            "files": [change_fields(change) for change in list(since.files or ())[:limit]] if since else [],
        }
    return shown


def _first_difference(site: Site, a: tuple[Checkpoint, ...], b: tuple[Checkpoint, ...]) -> dict[str, Any] | None:
    """Return the first step, counted from the common ancestor, at which the states differ. Reads no state.

    A side without a step of its own is a fork as it was made, with its edits.
    """
    pairs = min(len(a), len(b))
    for start in range(0, pairs, 200):
        roots = [_roots(site, side[start : start + 200]) for side in (a, b)]
        for number, (item, other) in enumerate(zip(*roots, strict=False), start):
            if item != other or item is None:
                edits = site.client.diff(a[number].checkpoint_id, b[number].checkpoint_id).edits
                return {
                    "index": number,
                    "a": shown_checkpoint(a[number]),
                    "b": shown_checkpoint(b[number]),
                    "edits": [shown_edit(edit) for edit in edits[:FIRST_EDITS]],
                }
    if len(a) == len(b):
        return None
    longer = a if len(a) > len(b) else b
    only = shown_checkpoint(longer[pairs])
    return {"index": pairs, "a": only if longer is a else None, "b": only if longer is b else None, "edits": []}


def _roots(site: Site, steps: tuple[Checkpoint, ...]) -> list[bytes | None]:
    ctx = site.client._ctx
    records = site.run(ctx.backend.records([ids.from_text(step.checkpoint_id) for step in steps]))
    return [None if item is None else record.unpack(ctx.codec, item.data, expected_id=item.id).root for item in records]


A, B = (
    Parameter("a", "text", "The first; left out: the parent of `b`."),
    Parameter("b", "text", "The second.", default=""),
)
ROUTES = (
    Endpoint(
        "/diff",
        show_diff,
        "The differences of two checkpoints.",
        (
            A,
            B,
            Parameter("part", "choices", "The parts, with commas between them.", default=PARTS, choices=PARTS),
            LIMIT._replace(default=500),
        ),
    ),
    Endpoint(
        "/diff/file",
        diff_file,
        "The differing lines of a file.",
        (A, B, Parameter("path", "text", "The path of the file.")),
    ),
    Endpoint(
        "/compare",
        show_comparison,
        "Two sessions since their common ancestor.",
        (
            Parameter("a", "text", "A session."),
            Parameter("b", "text", "Another session."),
            LIMIT._replace(default=200),
        ),
    ),
)
