"""Differences of states and files as JSON."""

from __future__ import annotations

from typing import Any

from holdfast.json_form.checkpoint import checkpoint_fields
from holdfast.json_form.values import to_json
from holdfast.model.comparison import Comparison
from holdfast.model.diff import At, Diff, Drop, Edit, Field, Put, Splice, Stat
from holdfast.model.snapshot import FileChange, FileEntry, Snapshot


def edit_fields(edit: Edit) -> dict[str, Any]:
    """Return an edit for `--json`."""
    path = [plain_key(key) for key in edit.path]
    if isinstance(edit, Put):
        if edit.replaces:
            return {"kind": "change", "path": path, "old": to_json(edit.was), "new": to_json(edit.value)}
        return {"kind": "add", "path": path, "new": to_json(edit.value)}
    if isinstance(edit, Drop):
        return {"kind": "remove", "path": path, "old": to_json(edit.was)}
    if isinstance(edit, Splice):
        old, new = ([to_json(element) for element in elements] for elements in (edit.removed, edit.added))
        return {"kind": "splice", "path": path, "at": edit.at, "old": old, "new": new}
    return {"kind": "reorder", "path": path, "keys": [to_json(key) for key in edit.keys]}


def plain_key(key: Any) -> Any:
    return int(key) if type(key) is At else str(key) if type(key) is Field else to_json(key)


def recorded_fields(diff: Diff) -> list[dict[str, Any]]:
    """Return the steps and effects that only one of two checkpoints has."""
    return [
        {
            "came": call.came,
            "kind": call.kind,
            "name": call.name,
            "status": call.status,
            "effect_id": call.effect.effect_id if call.effect else None,
            "effect_state": str(call.effect.state) if call.effect else None,
        }
        for call in diff.recorded
    ]


def snapshot_fields(snapshot: Snapshot) -> dict[str, Any]:
    """Return the fields of a snapshot and of its left-out paths; docs/json-output.md documents them."""
    return {
        "workspace": snapshot.reference,
        "files": snapshot.files,
        "directories": snapshot.directories,
        "symlinks": snapshot.symlinks,
        "bytes": snapshot.size,
        "excluded_count": snapshot.excluded_count,
        "excluded": [{"path": path.text, "rule": path.rule} for path in snapshot.excluded],
        "skipped": [{"path": skipped_path.text, "reason": skipped_path.reason} for skipped_path in snapshot.skipped],
        "notes": list(snapshot.notes),
        "not_taken": snapshot.not_taken.reason if snapshot.not_taken else None,
    }


def change_fields(change: FileChange) -> dict[str, Any]:
    return {
        "path": encode_path(change.path),
        "status": change.status,
        "before": _entry_fields(change.before),
        "after": _entry_fields(change.after),
    }


def _entry_fields(entry: FileEntry | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    fields: dict[str, Any] = {"kind": entry.kind, "mode": f"{entry.mode:04o}", "size": entry.size}
    if entry.kind == "file":
        fields["content"] = entry.content.hex()
    elif entry.kind == "symlink":
        fields["target"] = encode_path(entry.content)
    return fields


def encode_path(path: bytes) -> str:
    """Return a path for JSON, as Python decodes it: bytes that are not UTF-8 are lone surrogates."""
    return path.decode("utf-8", "surrogateescape")


def comparison_fields(found: Comparison) -> dict[str, Any]:
    return {
        "ancestor": checkpoint_fields(found.ancestor) if found.ancestor else None,
        **{
            name: {
                "session_id": side.session_id,
                "head": checkpoint_fields(side.head),
                "steps": [checkpoint_fields(step) for step in side.steps],
                "usage": dict(side.usage),
                "outcome": side.outcome,
                "recorded": recorded_fields(side.since) if side.since else [],
                "files": [change_fields(change) for change in side.since.files or ()] if side.since else [],
            }
            for name, side in (("a", found.a), ("b", found.b))
        },
        "edits": [edit_fields(edit) for edit in found.diff.edits],
    }


def comparison_counts(found: Comparison, *, raw: bool) -> dict[str, Any]:
    return {
        "ancestor_id": found.ancestor.checkpoint_id if found.ancestor else None,
        **{
            name: {
                "session_id": side.session_id,
                "head_id": side.head.checkpoint_id,
                "steps": len(side.steps),
                "usage": dict(side.usage),
                "outcome": side.outcome,
            }
            for name, side in (("a", found.a), ("b", found.b))
        },
        "paths": [
            {
                "path": path_stat.path,
                "a": _counts(path_stat.a),
                "b": _counts(path_stat.b),
                "between": _counts(path_stat.between),
            }
            for path_stat in found.stat(raw=raw)
        ],
    }


def _counts(counted: Stat) -> dict[str, int]:
    return {"added": counted.added, "removed": counted.removed, "changed": counted.changed}
