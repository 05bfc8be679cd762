"""What a snapshot holds is what was in the directory, exactly; what it leaves out, it says."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from stores import Store
from trees import in_snapshot, on_disk, remove, write

from holdfast import SyncClient
from holdfast.model.snapshot import CHUNK_BYTES, WHOLE_BYTES

ODD_NAMES = (
    b"with space", b"new\nline", b"\xff\xfe not utf-8", "\u00e9".encode(), "e\u0301".encode(), b"*", b"-rf", b"'\"\\",
    b"\x01",
    b"a" * 255,
)  # fmt: skip


def test_every_kind_of_file_is_kept_exactly(store: Store, root: Path) -> None:
    for number, name in enumerate(ODD_NAMES):
        write(root, b"odd/" + name, b"%d" % number)
    for mode in (0o600, 0o444, 0o750, 0o755, 0o4755, 0o2644, 0o1777):
        write(root, b"modes/%o" % mode, b"x", mode=mode)
    write(root, b"closed", None, mode=0o700)
    write(root, b"sticky", None, mode=0o1777)
    write(root, b"empty/deeper", None)
    write(root, b"crlf.txt", b"a\r\nb\r\n")
    write(root, b".gitattributes", b"* text=auto\n")
    write(root, b"nothing", b"")
    write(root, b"zeros", bytes(5000))
    os.symlink("crlf.txt", root / "link")
    os.symlink("../../outside/\udcff", root / "broken")
    os.symlink("empty", root / "to-directory")
    write(root, b"nested/.git/HEAD", b"ref: refs/heads/main\n")
    write(root, b"nested/.git/objects/pack", None)
    write(root, b"nested/code.py", b"print()\n")
    os.link(root / "crlf.txt", root / "hard")
    client = store.client()
    workspace = client.workspace(root)
    report = workspace.snapshot()
    expected = on_disk(root)
    assert in_snapshot(workspace, report.checkpoint_id) == expected
    kinds = [kind for kind, _, _ in expected.values()]
    snapshot = report.snapshot
    assert (snapshot.files, snapshot.directories, snapshot.symlinks) == tuple(
        kinds.count(kind) for kind in ("file", "dir", "symlink")
    )
    assert snapshot.size == sum(len(content) for kind, _, content in expected.values() if kind == "file")
    assert report.changed == len(expected)
    assert workspace.verify().ok
    assert client.verify().ok


@pytest.mark.parametrize("size", [WHOLE_BYTES - 1, WHOLE_BYTES, WHOLE_BYTES + 1, 5 * CHUNK_BYTES, 5 * CHUNK_BYTES + 7])
def test_large_files_are_kept_in_chunks(quick: SyncClient, root: Path, size: int) -> None:
    content = os.urandom(size)
    (root / "large").write_bytes(content)
    workspace = quick.workspace(root)
    first = workspace.snapshot()
    assert workspace.read(first.checkpoint_id, "large") == content
    changed = content[: size // 2] + b"!" + content[size // 2 + 1 :]
    (root / "large").write_bytes(changed)
    before = quick.stats().blob_bytes
    second = workspace.snapshot()
    assert workspace.read(second.checkpoint_id, "large") == changed
    assert workspace.read(first.checkpoint_id, "large") == content
    if size > WHOLE_BYTES:
        assert quick.stats().blob_bytes - before < 2 * CHUNK_BYTES  # the chunk that changed, and what leads to it


def test_holes_cost_nothing(quick: SyncClient, root: Path) -> None:
    with (root / "sparse").open("wb") as file:
        file.truncate(1 << 30)
        file.seek(300_000_000)
        file.write(b"in the middle")
    workspace = quick.workspace(root)
    report = workspace.snapshot()
    assert report.snapshot.size == 1 << 30
    assert quick.stats().blob_bytes < 10_000
    [entry] = workspace.entries(report.checkpoint_id)
    assert entry.is_chunked
    assert workspace.verify().ok


def test_what_can_not_be_kept_is_reported(quick: SyncClient, root: Path, tmp_path: Path, monkeypatch) -> None:
    os.mkfifo(root / "pipe")
    monkeypatch.chdir(root)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("sock")
        report = quick.workspace(root).snapshot()
    assert {(one.path, one.reason) for one in report.snapshot.skipped} == {(b"pipe", "a FIFO"), (b"sock", "a socket")}
    assert report.snapshot.files == 0


@pytest.mark.skipif(os.getuid() == 0, reason="root reads everything")
def test_what_can_not_be_read_is_reported_and_the_rest_kept(quick: SyncClient, root: Path) -> None:
    write(root, b"closed/file", b"1")
    write(root, b"secret", b"1", mode=0)
    write(root, b"open", b"1")
    (root / "closed").chmod(0)
    try:
        report = quick.workspace(root).snapshot()
    finally:
        (root / "closed").chmod(0o700)
    assert [one.path for one in report.snapshot.skipped] == [b"closed", b"secret"]
    assert report.snapshot.files == 1


def test_the_repository_of_the_root_is_left_out_and_can_be_taken_in(quick: SyncClient, root: Path) -> None:
    write(root, b".git/HEAD", b"ref: x\n")
    write(root, b"code", b"1")
    left = quick.workspace(root).snapshot()
    assert [one.path for one in left.snapshot.excluded] == [b".git"]
    workspace = quick.workspace(root, include_git=True, session_id="other")
    taken = workspace.snapshot()
    assert in_snapshot(workspace, taken.checkpoint_id) == on_disk(root)


def test_a_snapshot_is_saved_with_the_state_or_not_at_all(store: Store, root: Path) -> None:
    client = store.client()
    write(root, b"a", b"1")
    workspace = client.workspace(root)
    first = client.save("agent", session_id="s", execution_state={"n": 1}, workspace=workspace)
    write(root, b"a", b"22")
    second = client.save("agent", session_id="s", execution_state={"n": 2}, workspace=root)
    assert client.restore(second).execution_state == {"n": 2}
    assert workspace.read(first, "a") == b"1"
    assert workspace.read(second, "a") == b"22"
    blobs = client.stats().blob_bytes
    write(root, b"a", b"333")
    with pytest.raises(Exception, match="stands at"):
        client.save("agent", session_id="s", execution_state={}, workspace=workspace, expect_head=first)
    assert client.stats().blob_bytes == blobs
    assert [change.path for change in workspace.diff(second, None)] == [b"a"]  # what was refused was not forgotten
    third = client.save("agent", session_id="s", execution_state={"n": 3}, workspace=workspace)
    assert workspace.read(third, "a") == b"333"
    assert client.verify().ok


def test_a_repeated_save_is_a_no_op(quick: SyncClient, root: Path) -> None:
    write(root, b"a", b"1")
    id_ = "01939c5e-7c1b-7000-8a2f-0c4c1d9be2f1"
    for _ in range(2):
        assert quick.save("agent", session_id="s", checkpoint_id=id_, workspace=root) == id_
    assert len(quick.timeline(session_id="s")) == 1


def test_an_equal_directory_has_an_equal_snapshot_whatever_its_history(store: Store, tmp_path: Path) -> None:
    client = store.client()
    one, two = tmp_path / "one", tmp_path / "two"
    for root in (one, two):
        write(root, b"b/c", b"1")
        write(root, b"a", b"1")
    write(two, b"gone", b"1")
    client.workspace(two).snapshot()
    remove(two, b"gone")
    first, second = client.workspace(one).snapshot(), client.workspace(two).snapshot()
    assert first.snapshot.reference == second.snapshot.reference


def test_a_snapshot_is_found_before_a_checkpoint_that_has_none(quick: SyncClient, root: Path) -> None:
    write(root, b"a", b"1")
    workspace = quick.workspace(root)
    quick.save("agent", session_id="s", workspace=workspace)
    later = quick.save("agent", session_id="s")
    assert workspace.read(later, "a") == b"1"


def test_forks_and_handoffs_keep_the_files(store: Store, root: Path) -> None:
    client = store.client()
    write(root, b"a", b"1")
    workspace = client.workspace(root)
    saved = client.save("agent", session_id="s", workspace=workspace)
    forked = client.fork(saved, "f").checkpoint_id
    handed = client.handoff(saved, "other")
    assert workspace.read(forked, "a") == workspace.read(handed, "a") == b"1"
    client.expire(saved)
    client.gc()
    assert workspace.read(forked, "a") == b"1"


def test_a_checkpoint_can_not_claim_files_that_nobody_has_checked(quick: SyncClient, store: Store, root: Path) -> None:
    from dataclasses import replace

    write(root, b"a", b"1")
    saved = quick.restore(quick.save("agent", session_id="s", workspace=root))
    with pytest.raises(ValueError, match="that its parent does not have"):
        store.client().save_checkpoint(replace(saved, parent_id=None, session_id="elsewhere"))
