"""Going on: a save of a run that adds to its journal, in the session where the run's last save left it.

It is a save like any other, made with less ado: what the general one finds out (`save.py`) is known here, or else it is
left to that one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import ormsgpack

from holdfast.backends.port import AtOnce, Commit, CommitConflict, Labels, RecordWrite, RowKey, RowWrite
from holdfast.codec import tags
from holdfast.errors import StoreError, UnsupportedValueError
from holdfast.model import ids
from holdfast.model.framework import Framework
from holdfast.model.migrations import FIRST_VERSION
from holdfast.objects import continuing, record, rows
from holdfast.objects.manifest import Path
from holdfast.objects.record import Stored
from holdfast.operations import state_versions
from holdfast.operations.arguments import MAX_STEP, SaveRequest
from holdfast.operations.memory import Line
from holdfast.operations.services import Services

_packb = ormsgpack.packb
_new = tuple.__new__  # see `objects/continuing.py`


class Way:
    """What is the same in all saves of a run: whose they are, how its session's head is found, the path of its list."""

    __slots__ = (
        "crc", "first_fields", "framework", "key", "last_fields", "lease", "leased", "most", "path", "request", "session",
        "tag", "trail", "tree",
    )  # fmt: skip

    def __init__(self, services: Services, request: SaveRequest, tree: bytes, path: Path) -> None:
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
        self.trail = continuing.Trail()
        self.leased: tuple[rows.Lease, list[Any]] | None = None  # the lease as it was last, and as a head has it
        limits = services.codec.limits
        self.most = min(limits.max_bytes, limits.max_items)  # bytes: each item takes at least one
        # Of a header, before and after those that differ; without the version of the state, which may be of a migration
        # that is registered meanwhile.
        self.first_fields: dict[str, Any] = {"agent": request.agent_id, "session": request.session_id}
        self.framework = request.framework.value
        if request.framework is not Framework.CUSTOM:
            self.first_fields["fw"] = self.framework
        self.last_fields = {} if request.app_version is None else {"app": request.app_version}

    def head_value(self, id_: bytes, sequence: int, fence: int, held: rows.Lease) -> bytes:
        """What `Head.pack` gives."""
        leased = self.leased
        if leased is None or leased[0] is not held:
            leased = self.leased = held, [held.expires_at_us, held.holder, *held.process]
        content = _packb([id_, sequence, fence, leased[1]])
        return content + crc32(content, self.crc).to_bytes(4, "big")


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


class Prepared(NamedTuple):
    stored: Stored
    commit: Commit
    line: Line  # that it leads to


async def go_on(services: Services, way: Way, line: Line, going: Going) -> Prepared | None:
    """Saves it as the child of where the line stands. None if nothing was saved, because it takes a closer look or because
    somebody else was first."""
    prepared = prepare(services, way, line, going)
    if prepared is None:
        return None
    services.memory.put(way.session, prepared.line)
    try:
        await services.backend.commit(prepared.commit)
    except BaseException as error:
        if is_overtaken(services, way, prepared, error):
            return None
        raise
    return prepared


def go_on_at_once(services: Services, at_once: AtOnce, way: Way, line: Line, going: Going) -> Prepared | None:
    """`go_on` from a line that was remembered when this process last looked, on a store that is asked on the spot."""
    prepared = prepare(services, way, line, going)
    if prepared is None or not services.memory.follow(way.session, line, prepared.line):
        return None
    try:
        at_once.commit_at_once(prepared.commit)
    except BaseException as error:
        if is_overtaken(services, way, prepared, error):
            return None
        raise
    return prepared


def is_overtaken(services: Services, way: Way, prepared: Prepared, error: BaseException) -> bool:
    """Whether a commit failed because somebody else was first. What it would have led to is forgotten either way."""
    services.memory.drop_failed(way.session, prepared.line)
    if isinstance(error, StoreError):
        error.checkpoint_id = ids.to_text(prepared.stored.id)
    return isinstance(error, CommitConflict)


def prepare(services: Services, way: Way, line: Line, going: Going) -> Prepared | None:
    """What `child.py` makes of it: the record, the commit that makes it the head, and the line it leads to; None if the session
    does not stand where it may be gone on from."""
    tip, known, head, manifest = line.tip, line.lists.get(way.path), line.head, line.manifest
    if tip is None or known is None or manifest is None or line.tree != way.tree:
        return None
    followed, parent, held, now_us = tip.header, head.checkpoint, head.lease, services.now_us()
    if parent != followed["id"] or "to" in followed:  # a handoff: who takes it is to be written down
        return None
    if held is None or head.fence != way.lease.token or now_us >= held.expires_at_us:
        return None
    name, state, context, tasks, elements, part, beside = going
    codec = services.codec
    sequence = head.sequence + 1
    header: dict[str, Any] = {"id": None, "seq": sequence, "at": now_us, **way.first_fields}
    if name is not None:
        header["name"] = name
    try:
        if tasks is not None:
            header["tasks"] = codec.encode(tasks, "tasks")
        fresh = [_packb(element, None, tags.PACK_OPTIONS) for element in elements]
        skeleton = continuing.skeleton(way.trail, codec, state, context, part)
    except (TypeError, ValueError, UnsupportedValueError):
        return None  # what is wrong with it is for the general way to say
    if way.last_fields:
        header |= way.last_fields
    version = state_versions.of_save(services, way.request)
    if version != FIRST_VERSION:
        header["sv"] = version
    if header.get("sv") != followed.get("sv") or header["agent"] != followed["agent"]:
        return None
    step = followed.get("step", 0) + 1
    if step > MAX_STEP:
        return None  # as above
    if skeleton is None or sum(map(len, fresh)) > way.most:
        return None
    has_bytes = known.entry.has_bytes or any(map(codec.holds_bytes, fresh))
    planned = continuing.continued(way.trail, manifest, known, skeleton, fresh, has_bytes=has_bytes)
    if planned is None:
        return None
    manifest, body, root, runs, known = planned
    id_ = header["id"] = services.new_id(way.tag)  # now that it is needed
    header["tree"] = way.tree
    if step:
        header["step"] = step
    header["parent"] = parent
    header["psum"] = tip.checksum
    data, stored = record.pack_body(codec, header, body, root)
    value = way.head_value(id_, sequence, head.fence, held)
    writes = [_new(RowWrite, (way.key, value, line.version, line.head_value))]
    if beside is not None:
        writes += beside(stored)
    labels = _new(Labels, (header["agent"], way.framework, step, name, parent, now_us, None))
    entry, span = known.entry, manifest.skeleton.span
    spans = entry.spans if span is None else (span, *entry.spans)
    write = _new(RecordWrite, (id_, way.session, sequence, data, labels, None, None, spans))
    next_head = _new(rows.Head, (id_, sequence, head.fence, held))
    lists = {way.path: known}
    next_line = Line(way.tree, line.version + 1, next_head, value, stored, manifest, lists, line.reading, None, way.key)
    return _new(Prepared, (stored, Commit(way.tree, write, (), runs, {}, writes), next_line))
