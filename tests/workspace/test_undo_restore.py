"""Restores of files in the operation log: undone, redone, or refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from stores import Store

from holdfast import (
    CheckpointExpiredError,
    CheckpointNotFoundError,
    ConflictError,
    SyncClient,
    UsageError,
)
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.port import Commit, RowWrite
from holdfast.errors import WorkspaceChangedError
from holdfast.workspace.restore import apply, directory


class Project:
    """A directory and a session with three checkpoints, each with other files."""

    def __init__(self, client: SyncClient, root: Path) -> None:
        self.client, self.root = client, root
        root.mkdir()
        self.points = [self.save(step) for step in range(3)]

    def save(self, step: int) -> str:
        (self.root / "code").write_text(f"step {step}")
        (self.root / f"made-{step}").write_text("x")
        return self.client.save("a", execution_state={"step": step}, session_id="s", workspace=self.root)

    def seen(self) -> tuple[dict[str, str], str]:
        files = {str(one.relative_to(self.root)): one.read_text() for one in self.root.rglob("*") if one.is_file()}
        return files, self.client.latest(session_id="s").checkpoint_id

    @property
    def workspace(self):
        return self.client.workspace(self.root)


@pytest.fixture
def project(client: SyncClient, tmp_path: Path) -> Project:
    return Project(client, tmp_path / "project")


ACTS = {
    "restore": lambda project: project.workspace.restore(project.points[0]),
    "restore of a path": lambda project: project.workspace.restore(project.points[0], paths=[project.root / "code"]),
    "restore of both": lambda project: project.workspace.restore(project.points[0], scope="both"),
    "rollback of the state": lambda project: project.workspace.restore(project.points[0], scope="state"),
    "rollback": lambda project: project.client.rollback("s", to=project.points[1], workspace=project.root),
}


@pytest.mark.parametrize("act", ACTS)
def test_is_undone_and_redone(project: Project, act: str):
    client, before = project.client, project.seen()
    ACTS[act](project)
    after = project.seen()
    assert after != before
    [made] = client.operations()
    assert act.startswith(made.kind)
    for _ in range(2):
        assert client.undo().operation.operation_id == made.operation_id
        assert project.seen() == before
        assert client.redo().kind == "redo"
        assert project.seen() == after
    assert client.verify().ok


def test_an_adoption_is_one_operation_files_and_state(project: Project, tmp_path: Path):
    client = project.client
    forked = project.workspace.fork(project.points[1], tmp_path / "way", session_id="way")
    (forked.directory / "code").write_text("the better one")
    client.save("a", execution_state={"way": 1}, session_id="way", workspace=forked.directory)
    before = project.seen()
    project.workspace.adopt(forked)
    after = project.seen()
    assert after[0]["code"] == "the better one"
    assert client.latest(session_id="s").execution_state == {"way": 1}
    made, fork = client.operations()
    assert (made.kind, fork.kind) == ("adopt", "fork")
    assert {one.kind for one in made.changes} == {"files", "head"}
    for _ in range(2):
        report = client.undo()
        assert (report.files is not None, report.state is not None) == (True, True)
        assert project.seen() == before
        client.redo()
        assert project.seen() == after
    project.workspace.undo()  # the directory's own way back takes the session along, too
    assert project.seen() == before
    assert [one.is_undone for one in client.operations() if one.kind == "adopt"] == [True]


def test_step_by_step_through_several_restores(project: Project):
    client, pictures = project.client, [project.seen()]
    for point in (0, 2, 1):
        project.workspace.restore(project.points[point])
        pictures.append(project.seen())
    for picture in pictures[-2::-1]:
        client.undo()
        assert project.seen() == picture
    for picture in pictures[1:]:
        client.redo()
        assert project.seen() == picture


def test_another_client_undoes_it(store: Store, tmp_path: Path):
    project = Project(store.client(), tmp_path / "project")
    before = project.seen()
    project.workspace.restore(project.points[0])
    other = store.client()
    report = other.undo(by="ann")
    assert report.files is not None
    assert (report.files.changed, other.operations()[0].by) == (3, "ann")
    assert project.seen() == before


def test_the_client_and_the_workspace_have_one_history(project: Project):
    client, workspace, pictures = project.client, project.workspace, [project.seen()]
    for point in (0, 1):
        workspace.restore(project.points[point])
        pictures.append(project.seen())
    client.tag("good", project.points[0])
    assert workspace.undo().operation.kind == "tag"  # the newest operation, whatever it is about
    assert client.tags() == []
    assert workspace.undo().operation.kind == "restore"
    assert project.seen() == pictures[1]
    assert client.undo().operation.kind == "restore"
    assert project.seen() == pictures[0]
    for undo in (workspace.undo, client.undo):  # never back again: that is what redo is for
        with pytest.raises(CheckpointNotFoundError, match="nothing to undo"):
            undo()
    client.redo()
    assert project.seen() == pictures[1]
    workspace.redo()
    assert project.seen() == pictures[2]
    workspace.redo()
    assert [one.name for one in client.tags()] == ["good"]
    for redo in (workspace.redo, client.redo):
        with pytest.raises(CheckpointNotFoundError, match="nothing to redo"):
            redo()


def test_a_new_operation_ends_what_can_be_redone(project: Project):
    client, workspace = project.client, project.workspace
    workspace.restore(project.points[0])
    undone = workspace.undo().operation
    client.pin(project.points[1])
    for redo in (workspace.redo, client.redo):
        with pytest.raises(CheckpointNotFoundError, match="nothing was undone since the last operation"):
            redo()
    assert workspace.redo(undone.operation_id).kind == "redo"
    assert (project.root / "code").read_text() == "step 0"


def test_the_report_says_which_way_things_went(project: Project):
    client, points = project.client, project.points
    client.rollback("s", to=points[0])
    [undone] = client.undo().changes
    assert (undone.kind, undone.name, undone.before, undone.after) == ("head", "s", points[0], points[2])
    [redone] = client.redo().changes
    assert (redone.before, redone.after) == (points[2], points[0])


@pytest.mark.parametrize("scope", ["files", "state", "both"])
def test_a_restore_that_changes_nothing_is_no_operation(project: Project, scope: str):
    client = project.client
    client.tag("good", project.points[0])
    report = project.workspace.restore(project.points[2], scope=scope)
    assert (report.changed, report.safety_id) == (0, None)
    assert [one.kind for one in client.operations()] == ["tag"]
    assert project.workspace.undo().operation.kind == "tag"


def test_an_undo_that_finds_nothing_to_change_is_one_all_the_same(project: Project):
    client, workspace = project.client, project.workspace
    workspace.restore(project.points[1])
    workspace.restore(project.points[0])
    (project.root / "code").write_text("step 1")  # by hand, as it was before the restore
    (project.root / "made-1").write_text("x")
    report = client.undo()
    assert report.files.actions == ()
    assert client.operations()[0].operation_id == report.operation_id  # what it says that it is is there
    client.undo()  # and the next one is the one before
    assert (project.root / "code").read_text() == "step 2"


def test_an_older_restore_waits_for_the_later_one(project: Project):
    client = project.client
    project.workspace.restore(project.points[0])
    first = client.operations()[0]
    project.workspace.restore(project.points[1])
    second, after = client.operations()[0], project.seen()
    with pytest.raises(ConflictError, match=f"{second.operation_id}.*undo that one first"):
        client.undo(first.operation_id)
    assert project.seen() == after
    client.undo(second.operation_id)
    client.undo(first.operation_id)
    assert project.seen()[0]["code"] == "step 2"


def test_what_the_user_changed_since_is_not_overwritten(project: Project):
    client = project.client
    project.workspace.restore(project.points[0])
    (project.root / "code").write_text("by hand")
    with pytest.raises(WorkspaceChangedError):
        client.undo()
    assert (project.root / "code").read_text() == "by hand"
    client.undo(keep="user")
    assert project.seen()[0] == {"code": "by hand", "made-0": "x", "made-1": "x", "made-2": "x"}
    client.redo()
    assert client.undo(force=True).files is not None


def test_a_session_that_went_on_is_left_with_its_files(project: Project):
    client = project.client
    project.workspace.restore(project.points[0], scope="both")
    following = project.save(7)
    before = project.seen()
    with pytest.raises(ConflictError, match=f"has gone on since: it stands at {following}"):
        client.undo()
    assert project.seen() == before


def test_a_dry_run_says_what_would_be_done(project: Project):
    client = project.client
    project.workspace.restore(project.points[0])
    after, log = project.seen(), client.operations()
    report = client.undo(dry_run=True)
    assert report.files is not None
    assert sorted(action.path for action in report.files.actions) == [b"code", b"made-1", b"made-2"]
    assert (project.seen(), client.operations()) == (after, log)


def test_what_is_about_another_directory_is_passed_by(client: SyncClient, project: Project, tmp_path: Path):
    client.tag("one", project.points[0])
    project.workspace.restore(project.points[0])
    after = project.seen()
    other = tmp_path / "other"
    other.mkdir()
    assert client.undo(workspace=other).operation.kind == "tag"
    restored = client.operations()[1]
    with pytest.raises(UsageError, match="about the files of"):
        client.undo(restored.operation_id, workspace=other)
    assert project.seen() == after
    os.rename(project.root, tmp_path / "moved")
    with pytest.raises(CheckpointNotFoundError, match="is not there"):
        client.undo(restored.operation_id)


def test_one_that_was_cut_off_is_written_down_by_who_finishes_it(project: Project, monkeypatch: pytest.MonkeyPatch):
    class Ended(BaseException):
        pass

    def ended(*_given: object) -> None:
        raise Ended

    client, before = project.client, project.seen()
    with monkeypatch.context() as patched:
        patched.setattr(apply.Applier, "delete", ended)
        with pytest.raises(Ended):
            project.workspace.restore(project.points[0])
    assert client.operations() == []
    project.workspace.resume()
    assert [one.kind for one in client.operations()] == ["restore"]
    client.undo()
    assert project.seen() == before
    with monkeypatch.context() as patched:
        patched.setattr(apply.Applier, "delete", ended)
        with pytest.raises(Ended):
            client.redo()
    project.workspace.resume()
    assert [one.kind for one in client.operations()] == ["redo", "undo", "restore"]
    client.undo()
    assert project.seen() == before


def test_one_whose_safety_snapshot_is_gone_says_so(project: Project, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(directory, "SAFETY_KEPT", 1)
    client = project.client
    for point in (0, 1, 2, 0):
        project.workspace.restore(project.points[point])
    client.gc()
    client.undo()
    with pytest.raises(CheckpointExpiredError, match="safety snapshot"):
        for _ in range(3):
            client.undo()


def test_without_a_log_a_restore_is_undone_by_its_journal(project: Project):
    """As in a store from before there was one."""
    client, before = project.client, project.seen()
    project.workspace.restore(project.points[0])
    backend = client._ctx.backend
    for key, _ in run_inline(backend.scan("operation")):
        run_inline(_committed(backend, Commit(tree=key.tree, rows=[RowWrite(key, None)])))
    assert client.operations() == []
    with pytest.raises(CheckpointNotFoundError):
        client.undo()
    project.workspace.undo()
    assert project.seen() == before
    with pytest.raises(CheckpointNotFoundError, match="nothing to undo"):
        project.workspace.undo()
    project.workspace.redo()
    assert project.seen()[0]["code"] == "step 0"
    with pytest.raises(CheckpointNotFoundError, match="nothing to redo"):
        project.workspace.redo()
    project.workspace.undo()
    assert project.seen() == before


async def _committed(backend, commit) -> None:
    await backend.commit(commit)
