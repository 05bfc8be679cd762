"""A new checkpoint: one record, the head that moves to it, and the commit that does both or neither."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.backends.port import ABSENT, Commit, RecordWrite, RowKey, RowWrite, SegmentWrite
from holdfast.format.rows import head as rows
from holdfast.format.rows import inbox
from holdfast.format.state import record
from holdfast.format.state.manifest import Manifest
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.model.framework import Framework
from holdfast.model.state_migration import FIRST_VERSION
from holdfast.operations import state_version, validate
from holdfast.operations.context import StoreContext
from holdfast.operations.message_write import MessageWrite, feed_of, message_records
from holdfast.operations.session_cache import SessionTip
from holdfast.operations.validate import SaveRequest


def header_fields(ctx: StoreContext, request: SaveRequest) -> dict[str, Any]:
    """Return the header fields that the caller decides; empty ones are left out."""
    fields: dict[str, Any] = {"agent": request.agent_id, "session": request.session_id}
    if request.framework is not Framework.CUSTOM:
        fields["fw"] = request.framework.value
    if request.step_name is not None:
        fields["name"] = request.step_name
    if request.ttl_seconds is not None:
        fields["ttl"] = request.ttl_seconds
    if request.depends_on is not None:
        fields["with"] = request.depends_on
    if request.handoff_target is not None:
        fields["to"] = request.handoff_target
    if request.handoff_schema is not None:
        fields["toschema"] = request.handoff_schema
    if request.origin is not None:
        fields["origin"] = list(request.origin)
    if request.answer is not None:
        fields["answer"] = list(request.answer)
    if request.message is not None:
        fields |= request.message
    if request.publish:
        fields["sent"] = [write.sent for write in request.publish]
    if request.taken:
        fields["took"] = [consumption.took for consumption in request.taken]
    if request.metadata:
        fields["meta"] = ctx.codec.encode(dict(request.metadata), "metadata")
    if request.tasks is not None:
        fields["tasks"] = ctx.codec.encode(request.tasks, "tasks")
    if request.workspace is not None:
        fields["ws"] = request.workspace
    if request.home is not None:
        fields["dir"] = list(request.home)
    if request.app_version is not None:
        fields["app"] = request.app_version
    version = state_version.choose_version(ctx, request)
    if version != FIRST_VERSION:
        fields["sv"] = version
    if request.created_at_us is not None:
        fields["at"] = request.created_at_us
    return fields


def build_commit(
    ctx: StoreContext,
    tip: SessionTip,
    parent: StoredRecord | None,
    fields: dict[str, Any],
    manifest: Manifest,
    *,
    id_: bytes | None = None,
    step_index: int | None = None,
    lease: rows.LeaseRow | None = None,
    claimed: bytes | None = None,
    segments: Sequence[SegmentWrite] = (),
    blobs: Mapping[bytes, bytes] | None = None,
    messages: Sequence[MessageWrite] = (),
) -> tuple[Commit, StoredRecord, SessionTip]:
    """Return the commit that makes a child of `parent` the head; the record, and the tip after it.

    The commit is under `lease`, which was taken with the handoff `claimed`. `messages` are
    published with it: they take the next sequence numbers.
    """
    tree, followed = tip.tree, None
    if parent is not None:
        tree, followed = tree or parent.tree, parent.id
        if step_index is None:
            step_index = parent.header.get("step", 0) + 1
            if step_index > validate.MAX_STEP:
                raise validate.make_last_step_error()
    if id_ is None:
        id_ = ctx.new_id(None if tree is None else ids.tree_tag(tree))
    sequence = tip.head.sequence + 1
    header: dict[str, Any] = {"id": id_, "seq": sequence, "at": ctx.now_us(), **fields}
    if tree is None:
        tree = id_
    elif tree != id_:
        header["tree"] = tree
    if step_index:
        header["step"] = step_index
    if parent is not None:
        header["parent"] = followed
        header["psum"] = parent.checksum
    data, stored = record.pack(ctx.codec, header, manifest)

    key = tip.key or rows.head_key(rows.session_key(fields["session"]), tree)
    session = key.key
    head = rows.Head(id_, sequence + len(messages), tip.head.fence, lease)
    value = head.pack(key)
    row_writes = [RowWrite(key, value, tip.version, tip.head_value)]
    if tip.tree is None:
        session_row = RowKey(rows.SESSION, session)
        row_writes.append(RowWrite(session_row, rows.protect(session_row, tree), ABSENT))
    if "to" in header or (parent is not None and "to" in parent.header):
        row_writes += inbox.changes(stored, parent, claimed=claimed, holder=lease.holder if lease else None)
    expires_at_us = stored.expires_at_us if "ttl" in header else None
    commit = Commit(
        tree=tree,
        record=RecordWrite(
            id_, session, sequence, data, stored.labels(), expires_at_us, None, manifest.spans(), feed_of(header)
        ),
        segments=segments,
        blobs=blobs or {},
        rows=row_writes,
        # A parent that is the head can't expire unseen: that would move the head.
        require=() if followed is None or followed == tip.head.checkpoint else [(followed, record.LIVE)],
    )
    if messages:
        commit.more_records = message_records(ctx.codec, stored, messages)
        commit.rows = [*row_writes, *dict.fromkeys(hint for message in messages for hint in message.hints)]
        commit.segments = [*segments, *(segment for message in messages for segment in message.plan.segments)]
        commit.blobs = {
            **commit.blobs,
            **{hash_: data for message in messages for hash_, data in message.plan.blobs.items()},
        }
    next_tip = SessionTip(
        tree=tree,
        version=tip.version + 1,
        head=head,
        head_value=value,
        checkpoint=stored,
        manifest=manifest,
        reading=tip.reading,
        key=key,
    )
    return commit, stored, next_tip
