"""Going on: a save of a run that adds to its journal, in the session where the run's last save left it.

It is a save like any other, made with less ado: what the general one finds out (`save.py`) is known here, or else it is
left to that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ormsgpack

from holdfast.backends.port import Commit, CommitConflict, Labels, RecordWrite, RowKey, RowWrite
from holdfast.codec import tags
from holdfast.errors import StoreError, UnsupportedValueError
from holdfast.model import ids
from holdfast.model.framework import Framework
from holdfast.objects import continuing, record, rows
from holdfast.objects.manifest import Path
from holdfast.objects.record import Stored
from holdfast.operations.arguments import SaveRequest
from holdfast.operations.child import fields_of
from holdfast.operations.memory import Line
from holdfast.operations.services import Services

_packb = ormsgpack.packb
_new = tuple.__new__  # see `objects/continuing.py`
_CUSTOM = Framework.CUSTOM.value


class Way:
    """What is the same in all saves of a run: how its session's head is found, and the path of its list."""

    __slots__ = ("crc", "key", "path", "session", "tag", "tree")

    def __init__(self, session_id: str, tree: bytes, path: Path) -> None:
        self.session = rows.session_key(session_id)
        self.tree = tree
        self.tag = ids.tree_tag(tree)
        self.key: RowKey = rows.head_key(self.session, tree)
        self.crc = rows.key_crc(self.key)
        self.path = path


async def go_on(
    services: Services, way: Way, line: Line, request: SaveRequest, elements: Sequence[list[Any]], part: bytes
) -> Stored | None:
    """Saves the request with these plain elements after those of the list at the way's path, whose context ends with `part`
    (see `objects/continuing.py`). None if nothing was saved, because it takes a closer look or because somebody else was
    first."""
    planned = _planned(services, way, line, request, elements, part)
    if planned is None:
        return None
    stored, commit, next_line = _child(services, way, line, request, *planned)
    memory = services.memory
    memory.put(way.session, next_line)
    try:
        await services.backend.commit(commit)
    except CommitConflict:
        memory.drop_failed(way.session, next_line)
        return None
    except StoreError as error:
        memory.drop_failed(way.session, next_line)
        error.checkpoint_id = ids.to_text(stored.id)
        raise
    except BaseException:
        memory.drop_failed(way.session, next_line)
        raise
    return stored


def _planned(
    services: Services, way: Way, line: Line, request: SaveRequest, elements: Sequence[list[Any]], part: bytes
) -> tuple[dict[str, Any], continuing.Continued] | None:
    """The header fields and the content, if the session stands where it may be gone on from."""
    tip, known, head, lease = line.tip, line.lists.get(way.path), line.head, request.lease
    if tip is None or known is None or line.manifest is None or line.tree != way.tree:
        return None
    followed = tip.header
    if head.checkpoint != followed["id"] or "to" in followed:  # a handoff: who takes it is to be written down
        return None
    held = head.lease
    if lease is None or held is None or head.fence != lease.token or services.now_us() >= held.expires_at_us:
        return None
    fields = fields_of(services, request)
    if fields.get("sv") != followed.get("sv") or fields["agent"] != followed["agent"]:
        return None
    codec = services.codec
    limits = codec.limits
    try:
        fresh = [_packb(element, None, tags.PACK_OPTIONS) for element in elements]
        skeleton = continuing.skeleton(codec, request.execution_state, request.agent_context, part)
    except (TypeError, ValueError, UnsupportedValueError):
        return None  # what is wrong with it is for the general way to say
    if skeleton is None or max(map(len, fresh), default=0) > min(limits.max_bytes, limits.max_items):
        return None
    has_bytes = known.entry.has_bytes or any(map(codec.holds_bytes, fresh))
    planned = continuing.continued(line.manifest, known, skeleton, fresh, has_bytes=has_bytes)
    return None if planned is None else (fields, planned)


def _child(
    services: Services,
    way: Way,
    line: Line,
    request: SaveRequest,
    fields: dict[str, Any],
    planned: continuing.Continued,
) -> tuple[Stored, Commit, Line]:
    """What `child.py` makes of it: the record, the commit that makes it the head, and the line it leads to."""
    tip, head = line.tip, line.head
    assert tip is not None
    id_, sequence, now_us = services.new_id(way.tag), head.sequence + 1, services.now_us()
    header: dict[str, Any] = {"id": id_, "seq": sequence, "at": now_us, **fields, "tree": way.tree}
    step = tip.header.get("step", 0) + 1
    if step:
        header["step"] = step
    header["parent"] = head.checkpoint
    header["psum"] = tip.checksum
    data, stored = record.pack_body(services.codec, header, planned.body, planned.root)
    next_head = _new(rows.Head, (id_, sequence, head.fence, head.lease))
    value = next_head.packed_after(way.crc)
    writes = [_new(RowWrite, (way.key, value, line.version, line.head_value))]
    if request.beside is not None:
        writes += request.beside(stored)
    framework = fields.get("fw", _CUSTOM)
    labels = _new(Labels, (fields["agent"], framework, step, request.step_name, head.checkpoint, now_us, None))
    spans = planned.known.entry.spans
    if planned.manifest.skeleton.span is not None:
        spans = (planned.manifest.skeleton.span, *spans)
    write = _new(RecordWrite, (id_, way.session, sequence, data, labels, None, None, spans))
    commit = Commit(tree=way.tree, record=write, runs=planned.runs, rows=writes)
    next_line = Line(
        way.tree,
        line.version + 1,
        next_head,
        value,
        stored,
        planned.manifest,
        {way.path: planned.known},
        line.reading,
        key=way.key,
    )
    return stored, commit, next_line
