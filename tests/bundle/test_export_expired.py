"""Exports leave out checkpoints that have outlived their time to live, as those that have expired."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from bundles import exported, imported
from stores import Clock, Store

from holdfast import CheckpointExpiredError, Client, SyncClient

pytestmark = pytest.mark.every_store


def by_clock(client: SyncClient, clock: Clock) -> SyncClient:
    clock.rules(client)
    return client


def filled(client: SyncClient) -> tuple[str, str, str]:
    goes = client.save("a", session_id="s", execution_state={"secret": "x" * 9000}, ttl_seconds=60)
    stays = client.save("a", session_id="s", execution_state={"n": 2})
    head = client.save("a", session_id="s", execution_state={"n": 3}, ttl_seconds=60)
    return goes, stays, head


def test_they_are_left_out_and_their_children_stay(store: Store, clock: Clock) -> None:
    client = by_clock(store.client(), clock)
    goes, stays, head = filled(client)
    clock.forward(61)
    target = io.BytesIO()
    report = client.export(target)
    assert (report.expired_by_ttl, report.checkpoints, report.tombstones) == (2, 1, 2)
    assert report.blobs == 0  # the one that was saved with it
    there = by_clock(SyncClient.memory(), clock)
    imported(there, target.getvalue())
    assert there.restore(stays).execution_state == {"n": 2}
    assert there.session("s").head.checkpoint_id == stays
    for id_ in (goes, head):
        with pytest.raises(CheckpointExpiredError, match="time to live"):
            there.restore(id_)
    assert there.verify().ok
    there.save("a", session_id="s", execution_state={"n": 4})
    assert [one.execution_state for one in [there.latest("s")]] == [{"n": 4}]


def test_each_export_has_the_same_bytes(store: Store, clock: Clock) -> None:
    client = by_clock(store.client(), clock)
    filled(client)
    clock.forward(61)
    first = exported(client)
    clock.forward(1000)
    assert exported(client) == first
    there = by_clock(SyncClient.memory(), clock)
    imported(there, first)
    assert exported(there) == first
    assert imported(client, first).skipped == ()


def test_what_is_pinned_or_not_over_stays(store: Store, clock: Clock) -> None:
    client = by_clock(store.client(), clock)
    goes, _, head = filled(client)
    report = client.export(io.BytesIO())
    assert (report.expired_by_ttl, report.checkpoints) == (0, 3)
    client.pin(goes)
    client.tag("good", head)
    clock.forward(61)
    report = client.export(io.BytesIO())
    assert (report.expired_by_ttl, report.checkpoints) == (0, 3)


def test_a_fork_of_one_is_whole(store: Store, clock: Clock) -> None:
    client = by_clock(store.client(), clock)
    source = client.save("a", session_id="s", execution_state={"m": [f"{n} " * 400 for n in range(20)]}, ttl_seconds=60)
    client.save("a", session_id="t", parent_id=source, execution_state={"m": [f"{n} " * 400 for n in range(21)]})
    clock.forward(61)
    target = io.BytesIO()
    assert client.export(target, "t").expired_by_ttl == 1
    there = by_clock(SyncClient.memory(), clock)
    imported(there, target.getvalue())
    found = there.latest("t")
    assert found is not None
    assert len(found.execution_state["m"]) == 21
    assert there.verify().ok


def test_a_session_of_which_nothing_is_left(store: Store, clock: Clock) -> None:
    client = by_clock(store.client(), clock)
    client.save("a", session_id="s", execution_state={"n": 1}, ttl_seconds=60)
    clock.forward(61)
    report = client.export(io.BytesIO(), "s")
    assert (report.expired_by_ttl, report.checkpoints) == (1, 0)


def test_awaited(disk_store: Store, clock: Clock, tmp_path: Path) -> None:
    async def made() -> int:
        async with Client.open(disk_store.url) as client:
            clock.rules(client)
            await client.save("a", session_id="s", execution_state={"n": 1}, ttl_seconds=60)
            await client.save("a", session_id="s", execution_state={"n": 2})
            clock.forward(61)
            return (await client.export(tmp_path / "all.holdfast")).expired_by_ttl

    assert asyncio.run(made()) == 1
