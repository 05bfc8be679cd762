"""Limits of a snapshot: what it refuses, where it stops, and what it reports."""

from __future__ import annotations

import os
import pwd
import resource
import shutil
from pathlib import Path

import pytest
from stores import Store
from trees import in_snapshot, on_disk, session, write

import holdfast
from holdfast import SyncClient, UsageError
from holdfast.workspace import limits as guards
from holdfast.workspace.limits import WorkspaceLimits


def test_the_root_of_the_file_system_is_refused(quick: SyncClient) -> None:
    with pytest.raises(UsageError, match="root of the file system"):
        quick.workspace("/")


def test_the_home_directory_and_what_contains_it_are_refused(quick: SyncClient, tmp_path: Path, monkeypatch) -> None:
    home = tmp_path / "homes" / "me"
    (home / "project").mkdir(parents=True)
    entry = pwd.getpwuid(os.getuid())
    monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd((*entry[:5], str(home), entry[6])))
    for path in (home, home.parent, tmp_path):
        with pytest.raises(UsageError, match="home directory"):
            quick.workspace(path)
    (tmp_path / "link").symlink_to(home)
    with pytest.raises(UsageError, match="home directory"):
        quick.workspace(tmp_path / "link")
    assert quick.workspace(home / "project").snapshot().snapshot.files == 0


def test_what_is_no_directory_is_refused(quick: SyncClient, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "absent"):
        with pytest.raises(UsageError, match="is no directory"):
            quick.workspace(path)
    with pytest.raises(UsageError, match="workspace is a int"):
        quick.save("a", workspace=3)  # type: ignore[arg-type]  # that is the point


def test_a_store_in_its_default_place_is_left_out(root: Path) -> None:
    write(root, b"a", b"1")
    write(root, b"sub/b", b"1")
    for place in (root / ".holdfast/store.db", root / "sub/.holdfast/store.db"):
        with SyncClient.sqlite(place, durability="fast") as client:
            workspace = client.workspace(root)
            for _ in range(3):
                report = workspace.snapshot()
                left_out = (b".holdfast", b"sub/.holdfast")
                assert in_snapshot(workspace, report.checkpoint_id) == on_disk(root, without=left_out)


@pytest.mark.parametrize("place", [".holdfast", "sub/.holdfast", ".holdfast/store"])
def test_a_store_of_files_may_be_that_directory_itself(root: Path, place: str) -> None:
    write(root, b"a", b"1")
    for number in range(3):
        with SyncClient.files(root / place, durability="fast") as client:
            workspace = client.workspace(root)
            (root / "a").write_text(str(number))
            report = workspace.snapshot()
            assert report.changed == 1 or number == 0
            left_out = (b".holdfast", b"sub/.holdfast")
            assert in_snapshot(workspace, report.checkpoint_id) == on_disk(root, without=left_out)
            assert set(os.listdir(root)) <= {"a", "sub", ".holdfast"}
            client.gc()
            assert client.verify().ok


@pytest.mark.parametrize("place", ["store.db", "sub/store.db", ".holdfast"])
def test_a_root_that_contains_the_store_is_refused(root: Path, place: str) -> None:
    with (
        SyncClient.sqlite(root / place, durability="fast") as client,
        pytest.raises(UsageError, match="inside the workspace"),
    ):
        client.workspace(root)


def test_a_link_to_the_store_does_not_hide_it(root: Path, tmp_path: Path) -> None:
    (root / "real").mkdir()
    (tmp_path / "outside").symlink_to(root / "real")
    with (
        SyncClient.sqlite(tmp_path / "outside/store.db", durability="fast") as client,
        pytest.raises(UsageError, match="inside the workspace"),
    ):
        client.workspace(root)


def test_a_link_in_the_place_of_the_store_does_not_hide_it_either(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(root / "store.db")
    with SyncClient.sqlite(tmp_path / "link.db", durability="fast") as client:
        session(client)
        assert (root / "store.db").is_file()
        with pytest.raises(UsageError, match="inside the workspace"):
            client.workspace(root)


def test_a_link_to_a_store_in_its_default_place_leads_to_what_is_left_out(root: Path, tmp_path: Path) -> None:
    (root / "sub/.holdfast").mkdir(parents=True)
    (tmp_path / "link.db").symlink_to(root / "sub/.holdfast/store.db")
    with SyncClient.sqlite(tmp_path / "link.db", durability="fast") as client:
        session(client)
        assert client.workspace(root).snapshot().snapshot.files == 0


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (WorkspaceLimits(max_files=5), "max_files"),
        (WorkspaceLimits(max_bytes=50), "max_bytes"),
        (WorkspaceLimits(max_file_bytes=9), "max_file_bytes"),
        (WorkspaceLimits(max_seconds=-1), "max_seconds"),
        (WorkspaceLimits(min_free_bytes=1 << 60), "min_free_bytes"),
    ],
)
def test_beyond_a_limit_the_state_is_saved_and_says_why_the_files_are_not(
    sqlite_store: Store, root: Path, limits: WorkspaceLimits, why: str
) -> None:
    for number in range(10):
        write(root, b"%d" % number, b"0123456789")
    client = sqlite_store.client()
    saved = client.save(
        "agent", session_id="s", execution_state={"n": 1}, workspace=client.workspace(root, limits=limits)
    )
    assert client.restore(saved).execution_state == {"n": 1}
    reference = client.get(saved).workspace
    assert reference is not None
    from holdfast.backends.bridge.step import run_inline
    from holdfast.operations import snapshot_read

    snapshot = run_inline(snapshot_read.load(client._ctx, reference))
    assert snapshot.tree is None
    assert snapshot.not_taken is not None
    assert why in snapshot.not_taken.reason
    assert client.verify().ok
    client.gc()
    assert [session.session_id for session in client.sessions()] == ["s"]
    later = client.save("agent", session_id="s", workspace=client.workspace(root))
    assert in_snapshot(client.workspace(root), later) == on_disk(root)


def test_where_none_was_taken_older_files_are_not_taken_for_those_of_then(
    client: SyncClient, root: Path, tmp_path: Path
) -> None:
    write(root, b"a", b"1")
    older = client.save("agent", session_id="s", workspace=root)
    write(root, b"a", b"22")
    saved = client.save("agent", session_id="s", workspace=client.workspace(root, limits=WorkspaceLimits(max_bytes=1)))
    after = client.save("agent", session_id="s")  # which was asked for no files
    workspace = client.workspace(root)
    for at in (saved, after):
        not_taken = workspace.snapshot_at(at).not_taken
        assert not_taken is not None
        assert "max_bytes" in not_taken.reason
        for refused in (
            lambda at=at: workspace.restore(at, force=True),
            lambda at=at: client.rollback("s", at, workspace=workspace),
            lambda at=at: workspace.fork(at, tmp_path / "fork"),
            lambda at=at: workspace.diff(older, at),
            lambda at=at: workspace.diff(at),
            lambda at=at: workspace.entries(at),
            lambda at=at: workspace.read(at, "a"),
            lambda at=at: client.read_file(at, "a"),
        ):
            with pytest.raises(UsageError, match=r"not known: no snapshot was taken: .*max_bytes"):
                refused()
    assert on_disk(root) == {b"a": ("file", 0o644, b"22")}
    assert not (tmp_path / "fork").exists()


def test_a_directory_that_is_gone_is_said_to_be_and_comes_back(client: SyncClient, root: Path) -> None:
    """An agent may well delete the directory that it works in."""
    write(root, b"d/a", b"1")
    workspace = client.workspace(root)
    first = workspace.snapshot().checkpoint_id
    shutil.rmtree(root)
    for refused in (
        workspace.status,
        workspace.snapshot,
        workspace.undo,
        workspace.resume,
        workspace.interrupted,
        lambda: workspace.restore(first),
        lambda: client.save("a", session_id="s", workspace=workspace),
    ):
        with pytest.raises(UsageError, match="is not there any more"):
            refused()
    root.mkdir()
    workspace.restore(first)
    assert (root / "d" / "a").read_bytes() == b"1"


def test_limits_of_another_kind_are_told_apart(quick: SyncClient, root: Path) -> None:
    with pytest.raises(UsageError, match=r"holdfast\.WorkspaceLimits"):
        quick.workspace(root, limits=holdfast.Limits())
    quick.workspace(root, limits=holdfast.WorkspaceLimits(max_files=1))


def test_too_many_open_files_are_a_limit_and_no_reason_to_keep_half_of_it(quick: SyncClient, root: Path) -> None:
    for depth in range(1, 60):
        write(root, b"d/" * depth + b"f", b"1")
    workspace = quick.workspace(root)
    first = workspace.snapshot()
    was = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(root, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 30, was[1]))
    try:
        taken = workspace.snapshot(deep=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, was)
    assert taken.snapshot.not_taken is not None
    assert "no more files can be opened" in taken.snapshot.not_taken.reason
    assert workspace.snapshot(deep=True).snapshot.reference == first.snapshot.reference


def test_directories_too_deep_to_be_looked_at_are_a_limit_too(quick: SyncClient, root: Path) -> None:
    at = os.open(root, os.O_RDONLY)
    for _ in range(401):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    saved = quick.save("agent", session_id="s", execution_state={"n": 1}, workspace=quick.workspace(root))
    assert quick.restore(saved).execution_state == {"n": 1}
    not_taken = quick.workspace(root).snapshot_at(saved).not_taken
    assert not_taken is not None
    assert "deeper than 400 directories" in not_taken.reason
    with pytest.raises(UsageError, match="deeper than 400 directories"):
        quick.workspace(root).status()


def test_a_limit_that_is_met_on_the_way_leaves_what_was_known(sqlite_store: Store, root: Path) -> None:
    client = sqlite_store.client()
    write(root, b"a", b"1")
    workspace = client.workspace(root, limits=WorkspaceLimits(max_files=3))
    workspace.snapshot()
    for name in (b"b", b"c", b"d"):
        write(root, name, b"1")
    assert workspace.snapshot().snapshot.not_taken is not None
    (root / "d").unlink()
    report = workspace.snapshot()
    assert report.changed == 2
    assert in_snapshot(workspace, report.checkpoint_id) == on_disk(root)


SECRETS = (b".env", b".env.production", b"server.pem", b"id_rsa", b".netrc")


def test_secrets_are_kept_skipped_or_refused(quick: SyncClient, root: Path) -> None:
    for name in (*SECRETS, b".env.example", b"code.py"):
        write(root, b"d/" + name, b"1", mode=0o600)
    everything = [entry.path for entry in on_entries(quick, root)]
    assert everything == sorted(b"d/" + name for name in (*SECRETS, b".env.example", b"code.py"))
    report = quick.workspace(root, secrets="skip").snapshot()
    assert {(one.path, one.reason) for one in report.snapshot.skipped} == {
        (b"d/" + name, "a secret") for name in SECRETS
    }
    assert report.snapshot.files == 2
    with pytest.raises(UsageError, match="looks like a secret"):
        quick.workspace(root, secrets="refuse").snapshot()
    with pytest.raises(UsageError, match="'keep', 'skip', 'refuse'"):
        quick.workspace(root, secrets="hide")


def on_entries(client: SyncClient, root: Path):
    workspace = client.workspace(root)
    report = workspace.snapshot()
    return [entry for entry in workspace.entries(report.checkpoint_id) if entry.kind == "file"]


def test_names_of_secrets() -> None:
    assert all(map(guards.is_secret, SECRETS))
    assert not any(map(guards.is_secret, (b".env.example", b"environment.py", b"keys.py", b"pem", b"envfile")))


def test_what_is_stored_is_for_its_owner_only(sqlite_store: Store, root: Path) -> None:
    write(root, b".env", b"SECRET=1", mode=0o600)
    sqlite_store.client().workspace(root).snapshot()
    directory = sqlite_store.where / "store.db-workspaces"
    assert directory.stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_mode & 0o077 == 0 for file in directory.iterdir())


def test_nothing_outside_the_root_is_read_through_a_link(quick: SyncClient, root: Path, tmp_path: Path) -> None:
    write(tmp_path, b"outside/secret", b"1")
    (root / "link").symlink_to(tmp_path / "outside")
    workspace = quick.workspace(root)
    report = workspace.snapshot()
    assert [(entry.path, entry.kind) for entry in workspace.entries(report.checkpoint_id)] == [(b"link", "symlink")]
    with pytest.raises(UsageError, match="is not in the workspace"):
        workspace.snapshot(hints=["../outside/secret"])


def test_paths_lead_into_the_workspace_by_whichever_link(quick: SyncClient, root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    (tmp_path / "above").symlink_to(tmp_path)
    for name in (b"a", b"sub/b", b"gone/c"):
        write(root, name, b"1")
    (root / "points").symlink_to(tmp_path)  # is itself in the workspace, wherever it leads
    workspace = quick.workspace(tmp_path / "link")
    first = workspace.snapshot().checkpoint_id
    for name in (b"a", b"sub/b"):
        write(root, name, b"2")
    shutil.rmtree(root / "gone")
    (root / "points").unlink()
    hints = [
        tmp_path / "link/a",
        tmp_path / "above/project/sub/b",
        str(tmp_path / "link/gone"),
        tmp_path / "link/points",
    ]
    assert workspace.snapshot(hints=hints).changed == 5
    for path in ("link/a", "above/project/sub/b", "link/gone/c", "above/link/points"):
        assert len(workspace.restore(first, paths=[tmp_path / path]).actions) in (1, 2)
    assert workspace.plan(first, paths=[tmp_path / "link"]).actions == ()
    assert workspace.plan(first).actions == ()
    assert workspace.read(first, str(tmp_path / "link/a")) == b"1"
    for path in (tmp_path / "a", tmp_path / "link/../a", "../a", tmp_path / "other/a"):
        with pytest.raises(UsageError, match="is not in the workspace"):
            workspace.restore(first, paths=[path])
