"""Stores with every kind of content, and the comparison of two stores."""

from __future__ import annotations

import copy
import io
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from stores import messages

import holdfast
from holdfast import SyncClient
from holdfast.model.handoff import HandoffStatus
from holdfast.model.listing import Tree


@holdfast.register
@dataclass
class Plan:
    """A type of one's own: importing must do without it."""

    goal: str
    steps: list[Any]


def exported(client: SyncClient, session_id: str | Sequence[str] | None = None, **options: Any) -> bytes:
    file = io.BytesIO()
    client.export(file, session_id, **options)
    return file.getvalue()


def imported(client: SyncClient, data: bytes, **options: Any) -> holdfast.model.transfer_report.ImportReport:
    return client.import_(io.BytesIO(data), **options)


def fill(client: SyncClient, steps: int = 40, prefix: str = "") -> list[str]:
    """Long lists that grow and are edited, blobs, forks, handoffs, tombstones, rollbacks, odd types, metadata."""
    main, side = f"{prefix}main", f"{prefix}side/é"
    history = messages(20)
    ids: list[str] = []
    for step in range(steps):
        history += messages(1 + step % 3, 1000 + 10 * step)
        if step % 7 == 3:
            del history[step % 11 : step % 11 + 2]
        state: dict[Any, Any] = {
            "messages": copy.deepcopy(history),
            "when": datetime(2026, 1, 1, tzinfo=UTC),
            "note": (b"large %d " % (step // 5)) * 700,
            1: {"set": {1, 2, step}},
        }
        if step % 4 == 0:
            state["plan"] = Plan("go on", messages(12, 5000 + step))
        ids.append(client.save("writer", "custom", state, main, step_name=f"step {step}", attempt=step))
    client.handoff(ids[-2], "reviewer", "review/1")
    forked = client.fork(ids[steps // 2], side).checkpoint_id
    ids.append(client.save("other", execution_state={"messages": history[:15] + messages(9, 9000)}, session_id=side))
    client.save("small", execution_state={"n": 1}, session_id=f"{prefix}small")
    client.save("small", execution_state={"n": 2}, session_id=f"{prefix}small", ttl_seconds=1e9)
    client.rollback(main, ids[steps - 4])
    ids.append(client.save("writer", execution_state={"messages": history[:30]}, session_id=main))
    client.pin(ids[1], "the first good one")
    client.tag(f"{prefix}release", ids[5])
    for gone in ids[2 : steps // 3 : 2]:
        client.expire(gone)
    return [*ids, forked]


def without_claims(tree: Tree) -> Tree:
    """Leases stay where they are: a handoff that somebody has there is open here."""
    given_back = {
        id_: replace(handoff, status=HandoffStatus.OPEN, by=None, since=None)
        if handoff.status in (HandoffStatus.CLAIMED, HandoffStatus.TIMED_OUT)
        else handoff
        for id_, handoff in tree.handoffs.items()
    }
    return replace(tree, handoffs=given_back)


def equal_stores(a: SyncClient, b: SyncClient, same: Callable[[Any, Any], bool] = operator.eq) -> None:
    """Every session, timeline, tree and restore of one is that of the other."""
    sessions = {one.session_id: one for one in a.sessions()}
    assert {name: one.head.checkpoint_id for name, one in sessions.items()} == {
        one.session_id: one.head.checkpoint_id for one in b.sessions()
    }
    assert a.pins() == b.pins()
    assert a.tags() == b.tags()
    for name, one in sessions.items():
        here, there = a.timeline(session_id=name, limit=None), b.timeline(session_id=name, limit=None)
        assert [entry.checksum for entry in here] == [entry.checksum for entry in there]
        assert one.saves == (b.session(name) or one).saves
        assert without_claims(a.tree(name)) == without_claims(b.tree(name))
        for entry in here:
            mine, theirs = a.restore(entry.checkpoint_id), b.restore(entry.checkpoint_id)
            assert same(mine.execution_state, theirs.execution_state)
            assert same(mine.agent_context, theirs.agent_context)
            assert (mine.metadata, mine.created_at, mine.sequence, mine.checksum) == (
                theirs.metadata,
                theirs.created_at,
                theirs.sequence,
                theirs.checksum,
            )
