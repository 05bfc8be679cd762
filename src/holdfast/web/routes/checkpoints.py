"""Checkpoints: their facts, parts of their states, and their conversations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeVar

from holdfast.adapters.langgraph import view
from holdfast.errors import CorruptError, HoldfastError
from holdfast.json_form.checkpoint import pin_fields
from holdfast.json_form.difference import snapshot_fields
from holdfast.json_form.ledger import effect_fields
from holdfast.json_form.run import read_traces, trace_fields
from holdfast.json_form.state_search import cut_around, search
from holdfast.model import ids
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.effect import EffectRecord
from holdfast.operations import ledger, lookup, snapshot_read
from holdfast.transcript import MessagePart, ToolCallPart, TranscriptMessage, to_transcript
from holdfast.web import cut as cutting
from holdfast.web.answer import RefusedRequest
from holdfast.web.cut import SMALL, cut
from holdfast.web.endpoint import AFTER, LIMIT, Endpoint
from holdfast.web.request import Ask, Parameter
from holdfast.web.routes.sessions import shown_checkpoint
from holdfast.web.site import Site

T = TypeVar("T")
PARTS = ("execution_state", "agent_context", "metadata", "tasks")
CHILDREN = 100
SCANNED = 2000  # checkpoints of the session that are searched for children
MESSAGE = SMALL._replace(depth=8, items=50, text=20_000, values=2000, characters=200_000)


def shown_effect(effect: EffectRecord) -> dict[str, Any]:
    """Return the fields of an effect, with its values cut."""
    from dataclasses import replace

    bare = effect_fields(replace(effect, arguments={}, identity={}, result=None))
    values = {name: cut(_simplify_value(getattr(effect, name))) for name in ("arguments", "identity", "result")}
    return {**bare, **values}


def _simplify_value(value: Any) -> Any:
    return dict(value) if hasattr(value, "keys") else value


def effects_of_tree(site: Site, tree_id: str, damaged: list[str]) -> list[EffectRecord]:
    entries = site.run(ledger.load_entries(site.client._ctx, ids.from_text(tree_id), damaged=damaged))
    return [entry.effect(site.client._ctx.codec) for entry in entries]


def show_checkpoint(site: Site, ask: Ask) -> dict[str, Any]:
    client = site.client
    checkpoint = client.get(client.resolve(ask.path["ref"]))
    id_ = checkpoint.checkpoint_id
    stored = site.run(lookup.load_live_record(client._ctx, ids.from_text(id_)))
    damage: list[str] = []  # of what is shown beside it
    recorded = effects_of_tree(site, checkpoint.tree_id, damage)
    found = [record for record in recorded if id_ in (record.checkpoint_id, record.anchor_id)]
    pin = next((item for item in site.pins([]) if item.checkpoint_id == id_), None)
    fields: dict[str, Any] = {
        **shown_checkpoint(checkpoint),
        "tags": [tag.name for tag in site.tags([]) if tag.checkpoint_id == id_],
        "pin": None if pin is None else pin_fields(pin),
        "nodes": _nodes(site, checkpoint),
        "effects": [shown_effect(record) for record in found[:CHILDREN]],
        "children": _children(site, checkpoint),
        "logical_bytes": stored.manifest().logical_size(),
        **_files(site, checkpoint, damage),
        "damage": damage,
    }
    try:
        whole = site.restore(id_)
    except HoldfastError as error:  # the record is intact, and the state is not
        return {**fields, "parts": {}, "has_messages": False, "traces": None, "state_error": str(error)}
    traces = read_traces(client, whole)
    sizes = {name: cutting.kind_of(getattr(whole, name)) for name in PARTS[:2]}
    return {
        **fields,
        "parts": {name: {"of": kind, "size": size} for name, (kind, size) in sizes.items()},
        "has_messages": bool(conversation(whole)),
        "traces": None if traces is None else [cut(trace_fields(trace)) for trace in traces[:CHILDREN]],
        "state_error": None,
    }


def _read_or_note(load: Callable[[], T], default: T, damage: list[str]) -> T:
    """Return what `load` returns. If damage prevents it, note that and return the default."""
    try:
        return load()
    except CorruptError as error:
        damage.append(str(error))
        return default


def _nodes(site: Site, checkpoint: Checkpoint) -> list[str]:
    if checkpoint.parent_id is None or not view.is_langgraph(checkpoint):
        return []
    try:
        return view.nodes(site.client.diff(checkpoint.parent_id, checkpoint.checkpoint_id))
    except HoldfastError:
        return []


def _children(site: Site, checkpoint: Checkpoint) -> list[dict[str, Any]] | None:
    try:
        found = site.tree(checkpoint.tree_id).children(ids.from_text(checkpoint.checkpoint_id), CHILDREN)
    except HoldfastError:
        return None
    if found is None:
        return None
    return [
        {"checkpoint_id": ids.to_text(row.id), "session_id": row.session_id, "sequence": row.sequence} for row in found
    ]


def _files(site: Site, checkpoint: Checkpoint, damage: list[str]) -> dict[str, Any]:
    try:
        snapshot = site.client.snapshot_of(checkpoint.checkpoint_id)
    except HoldfastError:
        snapshot = None
    if snapshot is not None:
        return {"files": snapshot_fields(snapshot), "files_from": checkpoint.checkpoint_id}
    return {
        "files": None,
        "files_from": _read_or_note(lambda: files_from(site, checkpoint.checkpoint_id), None, damage),
    }


def files_from(site: Site, id_: str) -> str | None:
    """Return the nearest checkpoint, at or before this one, that has a snapshot."""
    ctx = site.client._ctx
    stored = site.run(lookup.load_live_record(ctx, ids.from_text(id_)))
    for _ in range(SCANNED):
        if snapshot_read.reference_of(stored) is not None:
            return ids.to_text(stored.id)
        if stored.parent is None:
            return None
        stored = site.run(lookup.find_nearest_live(ctx, stored.parent, stored.tree))
        if stored is None:
            return None
    return None


def show_state(site: Site, ask: Ask) -> dict[str, Any]:
    checkpoint = site.restore(ask.path["ref"])
    query = ask.query
    part, steps = query["part"], cutting.read_path(query["path"])
    whole = getattr(checkpoint, part)
    value = cutting.find(dict(whole) if part == "metadata" else whole, steps)
    kind, size = cutting.kind_of(value)
    limits = cutting.CutLimits(depth=query["depth"], items=query["items"], text=query["text"])
    return {
        "checkpoint_id": checkpoint.checkpoint_id,
        "part": part,
        "path": list(steps),
        "of": kind,
        "size": size,
        "value": cut(value, limits, query["offset"]),
    }


def search_state(site: Site, ask: Ask) -> dict[str, Any]:
    wanted, limit = ask.query["q"], ask.query["limit"]
    if not wanted:
        raise RefusedRequest(400, "bad_request", "q is empty: give a text to look for")
    checkpoint = site.restore(ask.path["ref"])
    first = int(ask.query["after"] or 0) if (ask.query["after"] or "0").isdecimal() else 0
    matches = list(islice(_matches(checkpoint, wanted), first, first + limit + 1))
    return {
        "checkpoint_id": checkpoint.checkpoint_id,
        "found": matches[:limit],
        "next": str(first + limit) if len(matches) > limit else None,
    }


def _matches(checkpoint: Checkpoint, wanted: str) -> Iterator[dict[str, Any]]:
    for part in PARTS[:2]:
        for search_match in search(getattr(checkpoint, part), wanted):
            yield {
                "part": part,
                "path": list(search_match.steps),
                "text_path": search_match.path,
                "is_key": search_match.is_key,
                "value": cut(search_match.value, SMALL._replace(depth=1, items=5, text=200)),
                "around": cut_around(search_match.text, wanted),
            }


def conversation(checkpoint: Checkpoint) -> list[TranscriptMessage]:
    """Return the conversation in neutral form, empty if there is none or it is in no known form."""
    try:
        return list(to_transcript(checkpoint).messages)
    except (AttributeError, LookupError, TypeError, ValueError, HoldfastError):
        return []


def shown_part(part: MessagePart) -> dict[str, Any]:
    """Return a part of a message, with its values cut."""
    return {name: cut(value, MESSAGE) for name, value in part.to_json().items()}


def shown_messages(site: Site, checkpoint: Checkpoint, first: int, count: int) -> tuple[list[dict[str, Any]], int]:
    """Return a page of a conversation, tool calls with their ledger entries, and its length."""
    found = conversation(checkpoint)
    recorded = effects_of_tree(site, checkpoint.tree_id, []) if found else []
    shown = []
    for index, message in enumerate(found[first : first + count], first):
        fields: dict[str, Any] = {"index": index}
        for name, value in message.to_json().items():
            if name != "parts":
                fields[name] = cut(value)
        parts = []
        for part in message.parts:
            values = shown_part(part)
            if isinstance(part, ToolCallPart):
                values["effect"] = _ledger_entry(part, recorded)
            parts.append(values)
        shown.append({**fields, "parts": parts})
    return shown, len(found)


def _ledger_entry(call: ToolCallPart, recorded: list[EffectRecord]) -> dict[str, Any] | None:
    """Return the effect that a tool call led to: by its id if the ledger has it, else by its arguments."""
    same = [record for record in recorded if record.tool == call.name]
    by_id = [
        record for record in same if call.id and call.id in (*record.identity.values(), *record.arguments.values())
    ]
    arguments = dict(call.arguments or {})
    found = by_id or [record for record in same if dict(record.arguments) == arguments]
    if not found:
        return None
    record = found[0]
    return {
        "effect_id": record.effect_id, "short_id": record.short_id, "state": str(record.state),
        "in_doubt": record.is_in_doubt
    }  # fmt: skip


def list_messages(site: Site, ask: Ask) -> dict[str, Any]:
    checkpoint = site.restore(ask.path["ref"])
    limit, after = ask.query["limit"], ask.query["after"]
    if after is not None and not (after.isdecimal() and len(after) < 10):
        raise RefusedRequest(400, "bad_request", f"after is {after!r:.60}: give the `next` of the page before")
    first = int(after or 0)
    if ask.query["tail"]:
        first = max(len(conversation(checkpoint)) - limit, 0)
    shown, total = shown_messages(site, checkpoint, first, limit)
    return {
        "checkpoint_id": checkpoint.checkpoint_id,
        "messages": shown,
        "total": total,
        "next": str(first + limit) if first + limit < total else None,
        "previous": str(max(first - limit, 0)) if first else None,
    }


ROUTES = (
    Endpoint("/checkpoints/{ref}", show_checkpoint, "Show a checkpoint without its state."),
    Endpoint(
        "/checkpoints/{ref}/state",
        show_state,
        "A part of the state, cut.",
        (
            Parameter("part", "choice", "The part.", default=PARTS[0], choices=PARTS),
            Parameter("path", "text", "A JSON array of keys and indexes, or a path as on the command line."),
            Parameter("depth", "number", "Levels to show.", default=6, least=1, most=32),
            Parameter("items", "number", "Items of a list or dict to show.", default=100, least=1),
            Parameter("text", "number", "Characters of a text to show.", default=2000, least=1, most=1_000_000),
            Parameter("offset", "number", "First item or character to show.", default=0, most=2**40),
        ),
    ),
    Endpoint(
        "/checkpoints/{ref}/search",
        search_state,
        "Search the state and the context for a text.",
        (Parameter("q", "text", "The text, ignoring case.", default=""), LIMIT, AFTER),
    ),
    Endpoint(
        "/checkpoints/{ref}/messages",
        list_messages,
        "The conversation in neutral form, with the ledger entries of its tool calls.",
        (LIMIT._replace(default=50), AFTER, Parameter("tail", "flag", "The last page.", default=False)),
    ),
)
