"""Going on: a save of a run that adds to its journal, in the session where the run's last save left it.

It is a save like any other, made with less ado: what the general one finds out (`save.py`) is known here, or else it is
left to that one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ormsgpack

from holdfast.backends.port import Commit, CommitConflict, Labels, RecordWrite, RowKey, RowWrite
from holdfast.codec import tags
from holdfast.errors import StoreError, UnsupportedValueError
from holdfast.model import ids
from holdfast.model.framework import Framework
from holdfast.model.migrations import FIRST_VERSION
from holdfast.objects import continuing, record, rows
from holdfast.objects.manifest import Path
from holdfast.objects.record import Stored
from holdfast.operations import state_versions
from holdfast.operations.arguments import SaveRequest
from holdfast.operations.memory import Line
from holdfast.operations.services import Services

_packb = ormsgpack.packb
_new = tuple.__new__  # see `objects/continuing.py`
_CUSTOM = Framework.CUSTOM.value


class Way:
    """What is the same in all saves of a run: whose they are, how its session's head is found, the path of its list."""

    __slots__ = ("crc", "first_fields", "key", "last_fields", "lease", "path", "request", "session", "tag", "tree")

    def __init__(self, request: SaveRequest, tree: bytes, path: Path) -> None:
        """`request` has what is the same, and nothing else."""
        assert request.lease is not None
        self.request = request
        self.lease = request.lease
        self.session = rows.session_key(request.session_id)
        self.tree = tree
        self.tag = ids.tree_tag(tree)
        self.key: RowKey = rows.head_key(self.session, tree)
        self.crc = rows.key_crc(self.key)
        self.path = path
        # Of a header, before and after those that differ; without the version of the state, which may be of a migration
        # that is registered meanwhile.
        self.first_fields: dict[str, Any] = {"agent": request.agent_id, "session": request.session_id}
        if request.framework is not Framework.CUSTOM:
            self.first_fields["fw"] = request.framework.value
        self.last_fields = {} if request.app_version is None else {"app": request.app_version}


class Going(NamedTuple):
    """What is saved this time: these plain elements, after those of the list at the way's path, and a context that ends with
    `part` (see `objects/continuing.py`)."""

    name: str | None
    state: Any
    context: dict[str, Any]
    tasks: Any
    elements: Sequence[list[Any]]
    part: bytes
    beside: Callable[[Stored], Sequence[RowWrite]] | None


async def go_on(services: Services, way: Way, line: Line, going: Going) -> Stored | None:
    """Saves it as the child of where the line stands. None if nothing was saved, because it takes a closer look or because
    somebody else was first."""
    planned = _planned(services, way, line, going)
    if planned is None:
        return None
    stored, commit, next_line = _child(services, way, line, going, *planned)
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
    services: Services, way: Way, line: Line, going: Going
) -> tuple[dict[str, Any], continuing.Continued] | None:
    """The header fields and the content, if the session stands where it may be gone on from."""
    tip, known, head = line.tip, line.lists.get(way.path), line.head
    if tip is None or known is None or line.manifest is None or line.tree != way.tree:
        return None
    followed = tip.header
    if head.checkpoint != followed["id"] or "to" in followed:  # a handoff: who takes it is to be written down
        return None
    held = head.lease
    if held is None or head.fence != way.lease.token or services.now_us() >= held.expires_at_us:
        return None
    name, state, context, tasks, elements, part, _ = going
    codec = services.codec
    limits = codec.limits
    try:
        fields = _fields(services, way, name, tasks)
        fresh = [_packb(element, None, tags.PACK_OPTIONS) for element in elements]
        skeleton = continuing.skeleton(codec, state, context, part)
    except (TypeError, ValueError, UnsupportedValueError):
        return None  # what is wrong with it is for the general way to say
    if fields.get("sv") != followed.get("sv") or fields["agent"] != followed["agent"]:
        return None
    if skeleton is None or max(map(len, fresh), default=0) > min(limits.max_bytes, limits.max_items):
        return None
    has_bytes = known.entry.has_bytes or any(map(codec.holds_bytes, fresh))
    planned = continuing.continued(line.manifest, known, skeleton, fresh, has_bytes=has_bytes)
    return None if planned is None else (fields, planned)


def _fields(services: Services, way: Way, name: str | None, tasks: Any) -> dict[str, Any]:
    """What `child.fields_of` gives."""
    fields = way.first_fields.copy()
    if name is not None:
        fields["name"] = name
    if tasks is not None:
        fields["tasks"] = services.codec.encode(tasks, "tasks")
    if way.last_fields:
        fields |= way.last_fields
    version = state_versions.of_save(services, way.request)
    if version != FIRST_VERSION:
        fields["sv"] = version
    return fields


def _child(
    services: Services,
    way: Way,
    line: Line,
    going: Going,
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
    if going.beside is not None:
        writes += going.beside(stored)
    framework = fields.get("fw", _CUSTOM)
    labels = _new(Labels, (fields["agent"], framework, step, going.name, head.checkpoint, now_us, None))
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
