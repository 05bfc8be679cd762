"""retain: lets go what a policy does not keep. Expires it, and collects.

What is chosen is chosen from a survey, and may have changed since. So the conditions stand in the commits that expire: a
checkpoint that was pinned, or that a session stands at by then, is left.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.backends.port import Usage
from holdfast.model import ids, retention
from holdfast.model.reports import RetentionReport, SessionRetention
from holdfast.model.retention import Entry, Retention
from holdfast.objects import holds, inbox, record, rows
from holdfast.objects.collect import Marks
from holdfast.objects.graves import ABOUT_BYTES
from holdfast.objects.oplog import Origin
from holdfast.objects.usage import left_after_collection
from holdfast.operations import reading, tags
from holdfast.operations.collect import collect
from holdfast.operations.expire import BURIED_AT_ONCE, bury_all
from holdfast.operations.services import Services
from holdfast.operations.survey import Live, Survey, survey

BY_POLICY = "retention"


async def retain(
    services: Services,
    policy: Retention,
    *,
    session_id: str | None = None,
    agent_id: str | None = None,
    dry_run: bool = True,
    origin: Origin | None = None,
) -> RetentionReport:
    """Lets go what the policy does not keep; with `dry_run` only says what that is. `session_id` and `agent_id` narrow what
    may go, to the checkpoints of that session and to those that the agent made."""
    if not dry_run:
        await tags.settle_all(services)
    protected = await _protected(services)
    found = await survey(services)
    entries = [
        Entry(
            live.id,
            live.session,
            live.sequence,
            live.created_at_us,
            is_protected=live.id in protected
            or session_id not in (None, live.session)
            or agent_id not in (None, live.agent_id),
        )
        for live in found.live
    ]
    going = retention.may_go(policy, entries, services.now_us())
    estimate = _Estimate(found, [entry.id for entry in going])
    if policy.max_bytes is not None:
        limit = policy.max_bytes
        going = going[: retention.fewest_to_go(len(going), lambda count: estimate.left(count) <= limit)]
    chosen = {entry.id for entry in going}
    if dry_run:
        return _report(policy, found, going, estimate.left(len(going)))
    if origin is not None:
        origin = origin._replace(id=services.new_id(None))
    gone = await _expire(services, [live for live in found.live if live.id in chosen], origin)
    await collect(services)
    after = await services.backend.usage()
    return _report(policy, found, [entry for entry in going if entry.id in gone], content_bytes(after), after)


def content_bytes(usage: Usage) -> int:
    return usage.record_bytes + usage.run_bytes + usage.blob_bytes + usage.row_bytes


async def freed_by(services: Services, checkpoints: Sequence[bytes]) -> int:
    """About how many bytes are freed once these have expired and all has been collected, more than without them."""
    found = await survey(services)
    there = {live.id for live in found.live}
    estimate = _Estimate(found, [id_ for id_ in dict.fromkeys(checkpoints) if id_ in there])
    return max(estimate.left(0) - estimate.left(len(checkpoints)), 0)


async def _protected(services: Services) -> set[bytes]:
    """What no policy chooses: what sessions stand at, what is pinned or tagged, and handoffs that wait for somebody to go
    on from them."""
    protected = {key.key for key, _ in await services.backend.scan(holds.PIN)}
    protected |= {inbox.handoff_id(key) for key, _ in await services.backend.scan(inbox.INBOX) if inbox.is_waiting(key)}
    for key, row in await services.backend.scan(rows.HEAD):
        tip = await reading.nearest_live(services, rows.unpack_head(key, row).checkpoint)
        if tip is not None:
            protected.add(tip.id)
    return protected


class _Estimate:
    """About what is left once the first of some candidates have expired and all has been collected."""

    def __init__(self, found: Survey, candidates: Sequence[bytes]) -> None:
        self._found = found
        by_id = {live.id: live for live in found.live}
        self._candidates: list[Live] = [by_id.pop(id_) for id_ in candidates]
        self._staying = list(by_id.values())
        self._before = content_bytes(found.usage)
        self._stored = sum(run.size for run in found.runs) + sum(blob.size for blob in found.blobs)

    def left(self, gone: int) -> int:
        found = self._found
        marks = Marks()
        left = [*self._staying, *self._candidates[gone:]]
        for live in left:
            marks.add(live.spans, ())
        marks.add((), found.blobs_of(left))
        freed = self._stored - left_after_collection(found.runs, found.blobs, marks)
        freed += found.ended_bytes + sum(found.tombstones.values()) + found.undoable_bytes
        freed += sum(live.size for live in self._candidates[:gone])
        freed -= (found.ended + gone) * ABOUT_BYTES  # what is left of them when they are collected
        return max(self._before - freed, 0)


async def _expire(services: Services, going: Sequence[Live], origin: Origin | None) -> set[bytes]:
    by_tree: dict[bytes, list[bytes]] = {}
    for live in going:
        by_tree.setdefault(live.tree, []).append(live.id)
    gone: set[bytes] = set()
    for tree, of_tree in by_tree.items():
        for start in range(0, len(of_tree), BURIED_AT_ONCE):
            again = await services.backend.records(of_tree[start : start + BURIED_AT_ONCE])
            read = [(one, record.unpack(services.codec, one.data, expected_id=one.id)) for one in again if one]
            batch = [(one, stored) for one, stored in read if not stored.is_tombstone]
            gone.update(await bury_all(services, tree, batch, BY_POLICY, keep_heads=True, origin=origin))
            origin = origin and origin._replace(part=origin.part + 1)
    return gone


def _report(
    policy: Retention, found: Survey, going: Sequence[Entry], bytes_after: int, after: Usage | None = None
) -> RetentionReport:
    live: dict[str, int] = {}
    for one in found.live:
        live[one.session] = live.get(one.session, 0) + 1
    by_session: dict[str, list[str]] = {}
    for entry in going:
        by_session.setdefault(entry.session, []).append(ids.to_text(entry.id))
    return RetentionReport(
        dry_run=after is None,
        sessions=tuple(
            SessionRetention(session_id=name, going=tuple(of_session), kept=live[name] - len(of_session))
            for name, of_session in sorted(by_session.items())
        ),
        going=len(going),
        kept=len(found.live) - len(going),
        bytes_before=content_bytes(found.usage),
        bytes_after=bytes_after,
        store_bytes_before=found.usage.total_bytes,
        store_bytes_after=after.total_bytes if after else None,
        max_bytes=policy.max_bytes,
    )
