"""Data losses in restores of other tools, by their issue trackers: each test is named after one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from restore_trees import on_disk

from holdfast import SyncClient
from holdfast.errors import CorruptError, UsageError, WorkspaceChangedError
from holdfast.operations import snapshot_read
from holdfast.workspace.sync import SyncWorkspace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    return root


@pytest.fixture
def workspace(quick: SyncClient, root: Path) -> SyncWorkspace:
    return quick.workspace(root)


def git(root: Path, *args: str) -> str:
    run = ["git", "-C", str(root), "-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=main"]
    return subprocess.run([*run, *args], check=True, capture_output=True, text=True).stdout


def needs_git() -> None:
    if not shutil.which("git"):
        pytest.skip("git is not installed")


def test_gemini_cli_13331_a_restore_to_an_early_point_deletes_nearly_all_files(workspace, root):
    """What came later goes, since it is in later snapshots; what never was in one stays; and all of it comes back."""
    (root / "first").write_text("1")
    first = workspace.snapshot()
    for n in range(50):
        (root / f"file-{n}").write_text("work")
    workspace.snapshot()
    (root / "mine").write_text("not in any snapshot")
    everything = on_disk(root)
    with pytest.raises(WorkspaceChangedError, match="mine"):
        workspace.restore(first.checkpoint_id)
    assert on_disk(root) == everything
    workspace.restore(first.checkpoint_id, keep="user")
    assert set(on_disk(root)) == {b"first", b"mine"}
    workspace.undo()
    assert on_disk(root) == everything


def test_roo_6209_files_are_cleaned_first_and_then_the_reset_fails(workspace, root, monkeypatch):
    """A content that can't be read: everything stays as it was."""
    (root / "a").write_text("one")
    (root / "d").mkdir()
    (root / "d" / "b").write_text("one")
    first = workspace.snapshot()
    shutil.rmtree(root / "d")
    (root / "a").write_text("two")
    (root / "new").write_text("two")
    workspace.snapshot()
    before = on_disk(root)
    entry = next(one for one in workspace.entries(first.checkpoint_id) if one.path == b"d/b")
    read = snapshot_read.frames_of

    async def damaged(ctx, hashes):
        if entry.content in hashes:
            raise CorruptError("the blob is damaged")
        return await read(ctx, hashes)

    with monkeypatch.context() as patched:
        patched.setattr(snapshot_read, "frames_of", damaged)
        with pytest.raises(CorruptError):
            workspace.restore(first.checkpoint_id)
    assert on_disk(root) == before
    workspace.restore(first.checkpoint_id)
    assert (root / "d" / "b").read_text() == "one"


def test_copilot_cli_1675_a_clean_takes_the_results_of_a_long_run(workspace, root):
    """What rules ignore is never deleted, nor are the directories that hold it."""
    (root / ".gitignore").write_text("results/\n*.log\n")
    (root / "code").write_text("one")
    first = workspace.snapshot()
    (root / "results").mkdir()
    (root / "results" / "model.bin").write_bytes(b"a week of work")
    (root / "run").mkdir()
    (root / "run" / "train.log").write_text("log")
    (root / "code").write_text("two")
    workspace.snapshot()
    report = workspace.restore(first.checkpoint_id)
    assert (root / "code").read_text() == "one"
    assert (root / "results" / "model.bin").read_bytes() == b"a week of work"
    assert (root / "run" / "train.log").read_text() == "log"
    assert [one.path for one in report.left] == [b"run"]


def test_cline_14367_the_old_gitignore_comes_back_and_what_it_did_not_ignore_is_cleaned(workspace, root):
    (root / ".gitignore").write_text("")
    (root / "code").write_text("one")
    first = workspace.snapshot()
    (root / ".gitignore").write_text("results/\n")
    (root / "results").mkdir()
    (root / "results" / "r").write_text("ignored now, not then")
    (root / "code").write_text("two")
    workspace.snapshot()
    workspace.restore(first.checkpoint_id)
    assert (root / ".gitignore").read_text() == ""
    assert (root / "results" / "r").read_text() == "ignored now, not then"


def test_cline_14367_and_the_other_way_round_what_was_ignored_then_is_not_deleted_now(workspace, root):
    (root / ".gitignore").write_text("results/\n")
    (root / "results").mkdir()
    (root / "results" / "old").write_text("there all the time")
    (root / "code").write_text("one")
    first = workspace.snapshot()
    (root / ".gitignore").write_text("")
    (root / "results" / "new").write_text("made meanwhile")
    (root / "code").write_text("two")
    workspace.snapshot()  # it has the results
    report = workspace.restore(first.checkpoint_id)
    assert (root / "code").read_text() == "one"
    assert (root / "results" / "old").read_text() == "there all the time"
    assert (root / "results" / "new").read_text() == "made meanwhile"
    assert {one.path for one in report.left} >= {b"results/old", b"results/new"}


def test_what_is_ignored_now_is_not_overwritten_by_what_was_there_when_it_was_not(workspace, root):
    (root / "settings").write_text("of the agent")
    first = workspace.snapshot()
    (root / ".gitignore").write_text("settings\n")
    (root / "settings").write_text("of the user")
    workspace.snapshot()
    report = workspace.restore(first.checkpoint_id)
    assert (root / "settings").read_text() == "of the user"
    assert b"settings" in {one.path for one in report.left}
    (root / "settings").unlink()
    workspace.snapshot()
    (root / ".gitignore").write_text("settings\n")
    workspace.snapshot()
    workspace.restore(first.checkpoint_id)
    assert not (root / "settings").exists()


def test_opencode_3148_undo_deletes_files_that_were_edited(workspace, root):
    (root / "edited").write_text("one")
    before = workspace.snapshot()
    (root / "edited").write_text("two")
    workspace.snapshot()
    workspace.restore(before.checkpoint_id)
    assert (root / "edited").read_text() == "one"


def test_opencode_7775_files_in_other_directories_stay_stale(workspace, root, monkeypatch):
    """Wherever the process stands: everything goes back."""
    for name in ("one", "two"):
        (root / name).mkdir()
        (root / name / "f").write_text("one")
    first = workspace.snapshot()
    for name in ("one", "two"):
        (root / name / "f").write_text("two")
    workspace.snapshot()
    monkeypatch.chdir(root / "one")
    workspace.restore(first.checkpoint_id)
    assert [(root / name / "f").read_text() for name in ("one", "two")] == ["one", "one"]


def test_opencode_46947_undo_through_a_symlink_deletes_a_file_outside(workspace, root, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("not ours")
    first = workspace.snapshot()
    (root / "d").mkdir()
    (root / "d" / "precious").write_text("the agent's")
    second = workspace.snapshot()
    shutil.rmtree(root / "d")
    (root / "d").symlink_to(outside)
    third = workspace.snapshot()
    workspace.restore(first.checkpoint_id)
    assert not (root / "d").is_symlink()
    workspace.restore(second.checkpoint_id)
    workspace.restore(third.checkpoint_id)
    workspace.restore(second.checkpoint_id)
    assert (outside / "precious").read_text() == "not ours"
    assert (root / "d" / "precious").read_text() == "the agent's"


def test_codex_8214_the_users_index_and_branch_are_clobbered(workspace, root):
    """The user's own repository is not read and not written."""
    needs_git()
    git(root, "init", "-q")
    (root / "f").write_text("one")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    (root / "staged").write_text("staged")
    git(root, "add", "staged")
    first = workspace.snapshot()
    (root / "f").write_text("two")
    git(root, "commit", "-qam", "second")
    (root / "staged too").write_text("staged")
    git(root, "add", "staged too")
    workspace.snapshot()
    repository = on_disk(root / ".git")
    workspace.restore(first.checkpoint_id)
    workspace.undo()
    assert on_disk(root / ".git") == repository


def test_zed_28676_a_restore_can_not_be_undone(workspace, root):
    (root / "f").write_text("one")
    first = workspace.snapshot()
    (root / "f").write_text("hours of work")
    workspace.restore(first.checkpoint_id, force=True)
    workspace.undo()
    assert (root / "f").read_text() == "hours of work"


def test_vscode_262313_what_the_user_typed_since_is_overwritten(workspace, root):
    (root / "f").write_text("one")
    first = workspace.snapshot()
    (root / "f").write_text("the agent's")
    workspace.snapshot()
    (root / "f").write_text("the agent's, and the user's")
    with pytest.raises(WorkspaceChangedError):
        workspace.restore(first.checkpoint_id)
    assert (root / "f").read_text() == "the agent's, and the user's"


def test_cline_9317_and_2868_nested_repositories_are_left_renamed(workspace, root):
    (root / "nested" / ".git").mkdir(parents=True)
    (root / "nested" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (root / "nested" / "code").write_text("one")
    inode = (root / "nested" / ".git").stat().st_ino
    first = workspace.snapshot()
    (root / "nested" / "code").write_text("two")
    (root / "nested" / ".git" / "HEAD").write_text("ref: refs/heads/other\n")
    workspace.snapshot()
    workspace.restore(first.checkpoint_id)
    assert sorted(os.listdir(root / "nested")) == [".git", "code"]
    assert (root / "nested" / ".git").stat().st_ino == inode
    assert (root / "nested" / ".git" / "HEAD").read_text() == "ref: refs/heads/main\n"
    assert (root / "nested" / "code").read_text() == "one"


def test_opencode_26893_a_repository_without_a_commit_makes_every_snapshot_a_stale_one(workspace, root):
    needs_git()
    (root / "nested").mkdir()
    git(root / "nested", "init", "-q")
    (root / "work").write_text("day one")
    first = workspace.snapshot()
    (root / "work").write_text("day two")
    second = workspace.snapshot()
    workspace.restore(first.checkpoint_id)
    assert (root / "work").read_text() == "day one"
    workspace.restore(second.checkpoint_id)
    assert (root / "work").read_text() == "day two"


def test_hermes_webui_4410_a_restore_writes_through_a_symlink(workspace, root, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("theirs")
    (root / "f").write_text("ours")
    first = workspace.snapshot()
    (root / "f").unlink()
    (root / "f").symlink_to(secret)
    second = workspace.snapshot()
    assert workspace.entries(second.checkpoint_id)[0].content == os.fsencode(secret)  # the text, not what it leads to
    workspace.restore(first.checkpoint_id)
    assert secret.read_text() == "theirs"
    assert (root / "f").read_text() == "ours"


def test_hermes_files_that_were_made_later_stay(workspace, root):
    """`git checkout X -- .` leaves them; here they go, since a snapshot has them."""
    (root / "a").write_text("one")
    first = workspace.snapshot()
    (root / "later").write_text("x")
    workspace.snapshot()
    workspace.restore(first.checkpoint_id)
    assert os.listdir(root) == ["a"]


def test_claude_code_a_restore_of_binary_files_is_not_byte_exact(workspace, root):
    data = bytes(range(256)) * 3
    (root / "b").write_bytes(data)
    first = workspace.snapshot()
    (root / "b").write_bytes(b"\xff")
    workspace.snapshot()
    workspace.restore(first.checkpoint_id)
    assert (root / "b").read_bytes() == data


def test_gemini_and_opencode_files_that_are_not_in_git_are_not_covered(workspace, root):
    """No repository, no .gitignore, large untracked files: all the same."""
    (root / "large.bin").write_bytes(os.urandom(3_000_000))
    data = (root / "large.bin").read_bytes()
    first = workspace.snapshot()
    (root / "large.bin").write_bytes(b"gone")
    workspace.snapshot()
    workspace.restore(first.checkpoint_id)
    assert (root / "large.bin").read_bytes() == data


def test_opencode_3176_reverting_in_one_package_destroys_work_in_another(quick, tmp_path):
    """A workspace is a directory, not the repository that it is in: what is beside it is nobody's business here."""
    repository = tmp_path / "monorepo"
    package, beside = repository / "packages" / "app", repository / "packages" / "library"
    for one in (package, beside):
        one.mkdir(parents=True)
        (one / "code").write_text("committed")
    (repository / "README").write_text("committed")
    if shutil.which("git"):
        git(repository, "init", "-q")
        git(repository, "add", "-A")
        git(repository, "commit", "-qm", "first")
    workspace = quick.workspace(package)
    first = workspace.snapshot()
    (package / "code").write_text("the agent's")
    workspace.snapshot()
    for mine in (beside / "code", beside / "new", repository / "README"):
        mine.write_text("my own work, in no commit")
    outside = {path: kept for path, kept in on_disk(repository).items() if not path.startswith(b"packages/app/")}

    workspace.restore(first.checkpoint_id)
    assert (package / "code").read_text() == "committed"
    workspace.undo()
    assert (package / "code").read_text() == "the agent's"
    after = {path: kept for path, kept in on_disk(repository).items() if not path.startswith(b"packages/app/")}
    assert after == outside


def test_opencode_31044_and_roo_10636_several_repositories_below_a_directory_that_is_none(workspace, root):
    """No repository is needed, and those that are there are files like others."""
    needs_git()
    for name in ("backend", "web", "mobile"):
        (root / name).mkdir()
        git(root / name, "init", "-q")
        (root / name / "code").write_text("one")
        git(root / name, "add", "-A")
        git(root / name, "commit", "-qm", "first")
    before = on_disk(root)
    first = workspace.snapshot()
    for name in ("backend", "web"):
        (root / name / "code").write_text("two")
        git(root / name, "commit", "-qam", "second")
    shutil.rmtree(root / "mobile")
    workspace.snapshot()
    workspace.restore(first.checkpoint_id)
    assert on_disk(root) == before
    for name in ("backend", "web", "mobile"):
        assert git(root / name, "status", "--porcelain") == ""
        assert git(root / name, "log", "--format=%s") == "first\n"


def test_opencode_20442_and_claude_code_10107_the_snapshots_are_of_themselves(root):
    """The store is in the directory, where it is by default: it does not grow by what it holds."""
    (root / "data").write_bytes(os.urandom(200_000))
    with SyncClient.sqlite(root / ".holdfast" / "store.db") as client:
        workspace = client.workspace(root)
        kept = [{entry.path for entry in workspace.entries(workspace.snapshot().checkpoint_id)} for _ in range(5)]
        size = sum(file.stat().st_size for file in (root / ".holdfast").rglob("*") if file.is_file())
    assert kept == [{b"data"}] * 5
    assert size < 1_000_000


def test_hermes_107149_a_lock_that_a_process_left_stops_every_snapshot_after_it(workspace, root):
    """Nothing of git's is asked, so its locks, left in the root's repository or in one below, stop nothing."""
    for repository in (root / ".git", root / "nested" / ".git"):
        repository.mkdir(parents=True)
        (repository / "HEAD").write_text("ref: refs/heads/main\n")
        (repository / "index.lock").write_text("")
    (root / "code").write_text("one")
    first = workspace.snapshot()
    (root / "code").write_text("two")
    assert workspace.snapshot().changed == 1
    workspace.restore(first.checkpoint_id)
    assert (root / "code").read_text() == "one"
    assert (root / ".git" / "index.lock").exists()


def test_claude_code_94657_what_a_shell_did_can_not_be_taken_back(workspace, root):
    """Moves, deletions, modes and links by a shell are found by looking, like everything else."""
    (root / "kept").write_text("kept")
    (root / "moved").write_text("moved")
    (root / "d").mkdir()
    (root / "d" / "deleted").write_text("deleted")
    before = on_disk(root)
    first = workspace.snapshot()
    script = "mv moved elsewhere; rm -r d; chmod 755 kept; ln -s kept link; echo more >> elsewhere"
    subprocess.run(["sh", "-c", script], cwd=root, check=True)
    workspace.snapshot()
    workspace.restore(first.checkpoint_id)
    assert on_disk(root) == before


def test_hermes_50000_files_are_too_many_and_nobody_is_told(quick, root):
    """Too much is said in the checkpoint, and never taken for a snapshot."""
    from holdfast.workspace.limits import WorkspaceLimits

    for n in range(6):
        (root / f"file-{n}").write_text("x")
    limited = quick.workspace(root, limits=WorkspaceLimits(max_files=5))
    saved = quick.save("agent", session_id="s", execution_state={"n": 1}, workspace=limited)
    snapshot = quick.snapshot_of(saved)
    assert snapshot is not None
    assert snapshot.not_taken is not None
    assert "more than 5 files" in snapshot.not_taken.reason
    with pytest.raises(UsageError, match="more than 5 files"):
        limited.restore(saved)
