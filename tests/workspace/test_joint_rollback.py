"""A rollback of state and files: both, or neither."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import Client, SyncClient
from holdfast.errors import ConflictError, LeaseHeldError, UnacknowledgedError, UsageError, WorkspaceChangedError


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    return root


def two_steps(client: SyncClient, project: Path) -> tuple[str, str]:
    notes = project / "notes"
    notes.write_text("one")
    first = client.save("writer", session_id="s", execution_state={"step": 1}, workspace=project)
    notes.write_text("two")
    (project / "new").write_text("new")
    second = client.save("writer", session_id="s", execution_state={"step": 2}, workspace=project)
    return first, second


def standing(client: SyncClient, project: Path) -> tuple[object, dict[str, str]]:
    latest = client.latest(session_id="s")
    assert latest is not None
    return latest.execution_state, {path.name: path.read_text() for path in project.iterdir()}


def test_state_and_files_go_back_with_one_report_and_come_back_with_one_undo(client: SyncClient, project: Path):
    first, second = two_steps(client, project)
    report = client.rollback("s", first, workspace=project)
    assert standing(client, project) == ({"step": 1}, {"notes": "one"})
    assert (report.from_id, report.to_id) == (second, first)
    assert report.files is not None
    assert report.files.changed == 2
    assert report.files.safety_id is not None
    client.workspace(project).undo()
    assert standing(client, project) == ({"step": 2}, {"notes": "two", "new": "new"})


def test_without_a_workspace_the_files_stay(client: SyncClient, project: Path):
    first, _ = two_steps(client, project)
    assert client.rollback("s", first).files is None
    assert standing(client, project) == ({"step": 1}, {"notes": "two", "new": "new"})


def test_a_dry_run_says_both_and_does_neither(client: SyncClient, project: Path):
    first, second = two_steps(client, project)
    report = client.rollback("s", first, workspace=project, dry_run=True)
    assert (report.from_id, report.to_id) == (second, first)
    assert report.files is not None
    assert [action.path for action in report.files.actions] == [b"new", b"notes"]
    assert client.rollback("s", first, dry_run=True).from_id == second
    assert standing(client, project) == ({"step": 2}, {"notes": "two", "new": "new"})


def test_files_that_somebody_changed_stop_the_state_too(client: SyncClient, project: Path):
    first, _ = two_steps(client, project)
    (project / "notes").write_text("by hand")
    with pytest.raises(WorkspaceChangedError):
        client.rollback("s", first, workspace=project)
    assert standing(client, project) == ({"step": 2}, {"notes": "by hand", "new": "new"})
    kept = client.rollback("s", first, workspace=project, keep="user")
    assert kept.files is not None
    assert [one.path for one in kept.files.left] == [b"notes"]
    assert standing(client, project) == ({"step": 1}, {"notes": "by hand"})


def test_a_head_that_moved_stops_the_files_too(client: SyncClient, project: Path):
    first, _ = two_steps(client, project)
    with pytest.raises(ConflictError, match="moved"):
        client.rollback("s", first, workspace=project, expect_head=first)
    assert standing(client, project) == ({"step": 2}, {"notes": "two", "new": "new"})


def test_a_lease_stops_the_files_of_those_who_do_not_hold_it(client: SyncClient, project: Path):
    first, _ = two_steps(client, project)
    with client.lease("s") as lease:
        with pytest.raises(LeaseHeldError):
            client.rollback("s", first, workspace=project)
        assert standing(client, project) == ({"step": 2}, {"notes": "two", "new": "new"})
        client.rollback("s", first, workspace=project, lease=lease)
    assert standing(client, project) == ({"step": 1}, {"notes": "one"})


def test_effects_that_nobody_acknowledged_stop_both(quick: SyncClient, project: Path):
    (project / "notes").write_text("one")
    with quick.run("s", agent_id="buyer", workspace=project) as run:
        before = run.save("before")
        run.effect("pay", lambda amount: f"paid {amount}", amount=5, identity=("amount",), kind="irreversible")
        (project / "notes").write_text("two")
        run.save("after")
    with pytest.raises(UnacknowledgedError) as refused:
        quick.rollback("s", before, workspace=project, strict=True)
    assert (project / "notes").read_text() == "two"
    given = [effect.effect_id for effect in refused.value.report.effects]
    report = quick.rollback("s", before, workspace=project, strict=True, acknowledge=given)
    assert [effect.effect_id for effect in report.effects] == given
    assert (project / "notes").read_text() == "one"


def test_nothing_is_compensated_for_a_rollback_that_the_files_refuse(quick: SyncClient, project: Path):
    (project / "notes").write_text("one")
    refunded: list[str] = []

    def refund(result: str) -> None:
        refunded.append(result)

    with quick.run("s", agent_id="buyer", workspace=project) as run:
        before = run.save("before")
        run.effect("pay", lambda amount: f"paid {amount}", amount=5, identity=("amount",), kind="reversible")
        (project / "notes").write_text("two")
        run.save("after")
    (project / "notes").write_text("by hand")
    with pytest.raises(WorkspaceChangedError):
        quick.rollback("s", before, workspace=project, compensate={"pay": refund})
    assert refunded == []
    report = quick.rollback("s", before, workspace=project, compensate={"pay": refund}, force=True)
    assert len(refunded) == len(report.compensated) == 1
    assert (project / "notes").read_text() == "one"


def test_where_the_session_stands_there_already_only_files_go(quick: SyncClient, project: Path):
    first, _ = two_steps(quick, project)
    quick.rollback("s", first)
    report = quick.rollback("s", first, workspace=project)
    assert report.from_id == report.to_id == first
    assert standing(quick, project) == ({"step": 1}, {"notes": "one"})


def test_what_is_about_files_needs_a_workspace(quick: SyncClient, project: Path):
    first, _ = two_steps(quick, project)
    with pytest.raises(UsageError, match="workspace"):
        quick.rollback("s", first, force=True)


def test_the_same_with_await(tmp_path: Path, project: Path):
    async def program() -> None:
        async with Client.sqlite(tmp_path / "store.db") as client:
            workspace = client.workspace(project)
            (project / "notes").write_text("one")
            first = await client.save("writer", session_id="s", execution_state={"step": 1}, workspace=workspace)
            (project / "notes").write_text("two")
            await client.save("writer", session_id="s", execution_state={"step": 2}, workspace=workspace)
            report = await client.rollback("s", first, workspace=workspace)
            assert report.files is not None
            assert (project / "notes").read_text() == "one"
            await workspace.undo()
            assert (project / "notes").read_text() == "two"

    asyncio.run(program())


def test_the_report_names_what_somebody_changed_under_us(client: SyncClient, project: Path):
    first, second = two_steps(client, project)
    (project / "notes").write_text("by hand")
    (project / "mine").write_text("in no snapshot")
    changed = (b"mine", b"notes")
    assert client.rollback("s", first, workspace=project, dry_run=True).files_changed == changed
    kept = client.rollback("s", first, workspace=project, keep="user")
    assert kept.files is not None
    assert (kept.files_changed, kept.files.overwritten) == (changed, ())
    forced = client.rollback("s", second, workspace=project, force=True)
    assert forced.files is not None
    assert (forced.files_changed, forced.files.overwritten) == (changed, changed)
    assert client.rollback("s", first, workspace=project).files_changed == ()
    assert client.rollback("s", second).files_changed == ()
