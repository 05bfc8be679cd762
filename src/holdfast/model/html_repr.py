"""HTML of checkpoints, timelines, trees and diffs for notebooks.

All values from a store are escaped. There are no scripts, no external requests and no fixed
background: text takes the notebook's own colour, and the few colours can be read on light and on
dark.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.model.safe_repr import safe_repr
from holdfast.model.tree import BOXES, format_lane

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.diff import Diff
    from holdfast.model.listing import Timeline, Tree

ROWS = 200  # of a table
ITEMS = 100  # of a dict or a list
DEPTH = 6  # of nested values
TEXT = 400  # characters of one value

_MONO = "font-family:ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere"
_CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"
_FAINT = "opacity:.65"
_COLOURS = {"+": "#2da44e", "-": "#e5534b", "~": "#bf8700"}


def checkpoint(item: Checkpoint) -> str:
    """Return a checkpoint's fields, and its state as a collapsed section."""
    facts = {
        "checkpoint": item.checkpoint_id,
        "session": item.session_id,
        "agent": item.agent_id,
        "step": f"{_step(item)} {item.step_name or ''}".strip(),
        "parent": item.parent_id or "none: the first of its tree",
        "created": f"{item.created_at:%Y-%m-%d %H:%M:%S} UTC",
        "framework": str(item.framework),
        "handed to": item.handoff_target or "",
        "expires": f"{item.expires_at:%Y-%m-%d %H:%M:%S} UTC" if item.expires_at else "",
    }
    rows = [(_code(name, faint=True), _code(value)) for name, value in facts.items() if value]
    parts: dict[str, Any] = {"metadata": dict(item.metadata), "tasks": item.tasks}
    if item.has_state:
        parts = {"state": item.execution_state, "context": item.agent_context, **parts}
    opened = "".join(_value(name, value, DEPTH) for name, value in parts.items() if value or name == "state")
    return f"<div>{_table((), rows)}{opened}</div>"


def timeline(entries: Timeline) -> str:
    """Return a row for each checkpoint, newest first."""
    rows = [
        (
            _code(_step(entry)),
            _code(entry.step_name or ""),
            _code(entry.short_id),
            _code(entry.agent_id),
            _code(f"{entry.created_at:%Y-%m-%d %H:%M:%S}"),
            _code(f"for {entry.handoff_target}" if entry.handoff_target else "", faint=True),
        )
        for entry in entries[:ROWS]
    ]
    return _table(("step", "name", "checkpoint", "agent", "created (UTC)", ""), rows, left_out=len(entries) - len(rows))


def tree(whole: Tree) -> str:
    """Return the lanes, drawn, with a row for each checkpoint; heads are marked."""
    by_id = {entry.checkpoint_id: entry for entry in whole.entries}
    heads: dict[str, list[str]] = {}
    for session, head in whole.heads.items():
        heads.setdefault(head, []).append(session)
    rows = []
    for row in whole.lanes()[:ROWS]:
        item = by_id[str(row.node)]
        marks = ", ".join(heads.get(item.checkpoint_id, ()))
        rows.append(
            (
                (
                    f"<span style='font-family:ui-monospace,monospace;white-space:pre'>"
                    f"{html.escape(format_lane(row, BOXES))}</span>"
                ),
                _code(item.short_id),
                _code(f"{_step(item)} {item.step_name or ''}".strip()),
                _code(item.session_id),
                _code(f"{item.created_at:%Y-%m-%d %H:%M:%S}"),
                _code(f"{BOXES.head} head of {marks}" if marks else "", faint=True),
            )
        )
    titles = ("", "checkpoint", "step", "session", "created (UTC)", "")
    return _table(titles, rows, left_out=len(whole.entries) - len(rows))


def diff(found: Diff) -> str:
    """Return one or a few lines for each edit, coloured and signed: colour alone says nothing."""
    lines = list(found.lines())
    shown = "".join(
        f"<div style='{_MONO};color:{_COLOURS.get(sign, 'inherit')}'>{html.escape(f'{sign} {line}')}</div>"
        for sign, line in lines[:ROWS]
    )
    title = f"{found.a.short_id} → {found.b.short_id}: {len(found.edits)} edits"
    return f"<div>{_code(title, faint=True)}{shown}{_count_more(len(lines) - ROWS)}</div>"


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, left_out: int = 0) -> str:
    """Return a table of cells that are HTML already; titles are text."""
    head = "".join(f"<th style='{_CELL};{_FAINT}'>{html.escape(title)}</th>" for title in titles)
    cells = (("".join(f"<td style='{_CELL}'>{cell}</td>" for cell in row)) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    first = f"<tr>{head}</tr>" if titles else ""
    return f"<table style='border-collapse:collapse'>{first}{body}</table>{_count_more(left_out)}"


def _count_more(count: int) -> str:
    return _code(f"… and {count} more", faint=True) if count > 0 else ""


def _code(text: str, *, faint: bool = False) -> str:
    shown = text if len(text) <= TEXT else f"{text[:TEXT]}…"
    return f"<span style='{_MONO}{';' + _FAINT if faint else ''}'>{html.escape(shown)}</span>"


def _value(name: str, value: Any, depth: int) -> str:
    """Return a value with its name; containers can be opened, as deep as `depth`."""
    title = f"{_code(f'{name}:', faint=True)} {_code(_outline(value))}"
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    if not depth or not (isinstance(value, Mapping | list | tuple) and value):
        return f"<div style='margin-left:1em'>{title}</div>"
    inner = []
    for number, (key, item) in enumerate(items):
        if number == ITEMS:
            inner.append(_count_more(len(value) - ITEMS))
            break
        inner.append(_value(key if isinstance(key, str) else safe_repr(key)[:TEXT], item, depth - 1))
    return f"<details style='margin-left:1em'><summary>{title}</summary>{''.join(inner)}</details>"


def _outline(value: Any) -> str:
    """Return a value in a line, without ever building the text of a large one."""
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return f"{type(value).__name__} of {len(value)}"
    if isinstance(value, str | bytes | bytearray) and len(value) > TEXT:
        return f"{value[:TEXT]!r}… ({len(value)} in all)"
    if isinstance(value, int) and value.bit_length() > 1000:
        return f"int of {value.bit_length()} bits"
    return safe_repr(value)


def _step(item: Checkpoint) -> str:
    return "" if item.step_index is None else str(item.step_index)
