"""What was there is there again, exactly: bytes, modes, links, empty directories, nested repositories, odd names.

The cases are those in which copies of a directory in a shadow git repository come back different, and more.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from restore_trees import Tree, on_disk, put, trees
from stores import Store

from holdfast import SyncClient
from holdfast.errors import WorkspaceChangedError

BINARY = bytes(range(256)) * 40


def make_project(root: Path) -> None:
    """One of everything."""
    put(
        root,
        {
            b"key.pem": ("file", 0o600, b"-----BEGIN KEY-----\n"),
            b".env": ("file", 0o640, b"TOKEN=x\n"),
            b"ro.txt": ("file", 0o444, b"read only\n"),
            b"grp.sh": ("file", 0o750, b"#!/bin/sh\n"),
            b"suid": ("file", 0o4755, b"\x7fELF"),
            b"nobody": ("file", 0o000 if os.geteuid() == 0 else 0o400, b"not even the owner\n"),  # only root reads it
            b"crlf.txt": ("file", 0o644, b"one\r\ntwo\r\n"),
            b"mixed.txt": ("file", 0o644, b"one\r\ntwo\nthree\r"),
            b".gitattributes": ("file", 0o644, b"* text=auto eol=lf\n*.ident ident\n"),
            b"a.ident": ("file", 0o644, b"$Id$\n"),
            b"empty": ("file", 0o644, b""),
            b"zeros": ("file", 0o644, bytes(100_000)),
            b"binary": ("file", 0o644, BINARY),
            b"data.csv": ("file", 0o644, b"a,b\n"),
            b"uv.lock": ("file", 0o644, b"locked\n"),
            b"picture.png": ("file", 0o644, b"\x89PNG\r\n\x1a\n"),
            b"private": ("dir", 0o700, b""),
            b"private/in": ("file", 0o600, b"x"),
            b"sticky": ("dir", 0o1777, b""),
            b"setgid": ("dir", 0o2775, b""),
            b"read-only-dir": ("dir", 0o555, b""),
            b"read-only-dir/file": ("file", 0o444, b"x"),
            b"empty-dir": ("dir", 0o755, b""),
            b"empty-dir/deeper": ("dir", 0o711, b""),
            b"link": ("symlink", 0o777, b"key.pem"),
            b"dangling": ("symlink", 0o777, b"no/such/file"),
            b"out": ("symlink", 0o777, b"/etc/hostname"),
            b"to-dir": ("symlink", 0o777, b"private"),
            b"loop": ("symlink", 0o777, b"loop"),
            b"not-utf8-\xff\xfe": ("file", 0o644, b"x"),
            b"new\nline": ("file", 0o644, b"x"),
            b"-rf": ("file", 0o644, b"x"),
            b" space ": ("file", 0o644, b"x"),
            b"quo\"te'": ("file", 0o644, b"x"),
            "Ünïcödé".encode(): ("file", 0o644, b"composed"),
            "U\u0308ni\u0308co\u0308de\u0301".encode(): ("file", 0o644, b"decomposed"),
            b"CASE": ("file", 0o644, b"upper"),
            b"case": ("file", 0o644, b"lower"),
            b"x" * 255: ("file", 0o644, b"the longest name"),
            b"\\backslash": ("file", 0o644, b"x"),
            b".hidden": ("file", 0o644, b"x"),
        },
    )
    deep = root / "/".join(f"level{n}" for n in range(40))
    deep.mkdir(parents=True)
    (deep / "bottom").write_bytes(b"deep")
    os.link(root / "binary", root / "hard-link")
    with (root / "sparse").open("wb") as file:
        file.seek(5_000_000)
        file.write(b"end")
    (root / "large").write_bytes(os.urandom(1_500_000))
    for name in ("nested", "nested-without-commit"):
        make_repository(root / name, commit=name == "nested")


def make_repository(place: Path, *, commit: bool) -> None:
    """A repository below the workspace: plain files to us."""
    if shutil.which("git"):
        run = ["git", "-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=main", "-C", str(place)]
        place.mkdir()
        subprocess.run([*run, "init", "-q"], check=True)
        (place / "code.py").write_bytes(b"print()\n")
        if commit:
            subprocess.run([*run, "add", "-A"], check=True)
            subprocess.run([*run, "commit", "-qm", "first"], check=True)
        return
    (place / ".git" / "refs").mkdir(parents=True)
    (place / ".git" / "HEAD").write_bytes(b"ref: refs/heads/main\n")
    (place / "code.py").write_bytes(b"print()\n")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    make_project(root)
    return root


def shatter(root: Path) -> None:
    """Everything becomes something else, or nothing."""
    for place in sorted(root.iterdir(), reverse=True)[::2]:
        if place.is_dir() and not place.is_symlink():
            place.chmod(0o700)  # who is not root can't empty a directory that may only be read
            shutil.rmtree(place)
            place.write_bytes(b"was a directory")
        else:
            place.unlink()
            place.mkdir()
            (place / "new").write_bytes(b"new")
    for place in root.iterdir():
        if place.is_symlink():
            place.unlink()
            place.symlink_to("elsewhere")
        elif place.is_file():
            place.chmod(0o666)
            place.write_bytes(b"overwritten")
    (root / "added").mkdir()
    (root / "added" / "file").write_bytes(b"x")


def test_in_place_there_is_no_difference(store: Store, project: Path):
    with store.client() as client:
        workspace = client.workspace(project)
        before = on_disk(project)
        taken = workspace.snapshot()
        shatter(project)
        shattered = on_disk(project)
        workspace.snapshot()
        report = workspace.restore(taken.checkpoint_id)
        assert on_disk(project) == before
        assert report.complete
        assert workspace.plan(taken.checkpoint_id).actions == ()
        assert workspace.status() == []  # it stands at what was restored
        workspace.undo()
        assert on_disk(project) == shattered
        assert workspace.status() == []


def test_into_an_empty_directory_there_is_no_difference(store: Store, project: Path, tmp_path: Path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with store.client() as client:
        taken = client.workspace(project).snapshot()
        report = client.workspace(elsewhere).restore(taken.checkpoint_id)
        assert on_disk(elsewhere) == on_disk(project)
        assert report.complete
        assert {flag.path for flag in report.flags if flag.kind == "escapes"} == {b"out"}
        assert {flag.path for flag in report.flags if flag.kind == "unicode"} != set()
        # The same directory has the same snapshot: a restore of a restore is the identity.
        assert client.workspace(elsewhere).snapshot().snapshot.reference == taken.snapshot.reference


def test_a_nested_repository_works_as_before(tmp_path: Path, sqlite_store: Store):
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    root = tmp_path / "root"
    root.mkdir()
    make_repository(root / "nested", commit=True)
    with sqlite_store.client() as client:
        workspace = client.workspace(root)
        taken = workspace.snapshot()
        (root / "nested" / "code.py").write_bytes(b"changed\n")
        run = ["git", "-C", str(root / "nested"), "-c", "user.name=n", "-c", "user.email=e"]
        subprocess.run([*run, "commit", "-qam", "second"], check=True)
        workspace.snapshot()
        workspace.restore(taken.checkpoint_id)
    log = subprocess.run([*run, "log", "--format=%s"], check=True, capture_output=True, text=True).stdout
    assert log == "first\n"
    assert subprocess.run([*run, "status", "--porcelain"], check=True, capture_output=True).stdout == b""


def test_hard_links_come_back_as_separate_files_with_the_same_bytes(tmp_path: Path, quick: SyncClient):
    root = tmp_path / "root"
    root.mkdir()
    (root / "one").write_bytes(b"x")
    os.link(root / "one", root / "two")
    workspace = quick.workspace(root)
    taken = workspace.snapshot()
    (root / "one").unlink()
    workspace.snapshot()
    workspace.restore(taken.checkpoint_id)
    assert (root / "one").read_bytes() == (root / "two").read_bytes() == b"x"
    assert (root / "one").stat().st_nlink == 1


def test_what_is_no_file_is_left_and_said(tmp_path: Path, quick: SyncClient):
    root = tmp_path / "root"
    (root / "d").mkdir(parents=True)
    (root / "f").write_bytes(b"x")
    workspace = quick.workspace(root)
    empty = workspace.snapshot()
    os.mkfifo(root / "d" / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        cwd = Path.cwd()
        os.chdir(root)
        try:
            listening.bind("socket")
        finally:
            os.chdir(cwd)
    (root / "f").write_bytes(b"y")
    (root / "new").mkdir()
    os.mkfifo(root / "new" / "fifo")
    taken = workspace.snapshot()
    assert [one.path for one in taken.snapshot.skipped] == [b"d/fifo", b"new/fifo", b"socket"]
    report = workspace.restore(empty.checkpoint_id)
    assert (root / "f").read_bytes() == b"x"
    assert [one.path for one in report.left] == [b"new"]
    assert (root / "d" / "fifo").is_fifo()
    assert (root / "new" / "fifo").is_fifo()
    assert (root / "socket").is_socket()


def test_directories_that_nobody_may_write_to_are_filled_all_the_same():
    """As a user that is not root: modes count."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    from stores import python

    code = """
        import os, sys
        from pathlib import Path
        from holdfast import SyncClient

        def look(root):
            found = {}
            for place in [root, root / "d", root / "d" / "e"]:
                found[str(place)] = (oct(place.stat().st_mode), sorted(os.listdir(place)))
            return found, (root / "d" / "e" / "f").read_bytes()

        def cycle(root):
            (root / "d" / "e").mkdir(parents=True)
            (root / "d" / "e" / "f").write_bytes(b"one")
            (root / "d" / "e").chmod(0o555)
            (root / "d").chmod(0o500)
            with SyncClient.memory() as client:
                workspace = client.workspace(root)
                first = workspace.snapshot()
                before = look(root)
                for place in (root / "d", root / "d" / "e"):
                    place.chmod(0o755)
                (root / "d" / "e" / "f").write_bytes(b"two")
                (root / "d" / "e" / "more").write_bytes(b"x")
                (root / "d" / "e").chmod(0o555)
                (root / "d").chmod(0o555)
                workspace.snapshot()
                workspace.restore(first.checkpoint_id)
                assert look(root) == before, (look(root), before)
                workspace.undo()
                assert look(root)[1] == b"two"
                workspace.redo()
                assert look(root) == before, (look(root), before)

        cycle(Path(sys.argv[1], "as-root"))  # and everything is imported, which the other one may not read
        os.setgid(65534)
        os.setuid(65534)
        cycle(Path(sys.argv[1], "as-nobody"))
        print("held")
    """
    with tempfile.TemporaryDirectory() as root:  # pytest's own directories are closed to others
        os.chmod(root, 0o777)
        assert python(code, root).stdout == "held\n"


def test_a_file_stays_the_users_when_root_restores_it(tmp_path: Path, quick: SyncClient):
    if os.geteuid() != 0:
        pytest.skip("needs root to give a file away")
    root = tmp_path / "root"
    root.mkdir()
    (root / "f").write_bytes(b"one")
    workspace = quick.workspace(root)
    taken = workspace.snapshot()
    (root / "f").write_bytes(b"two")
    os.chown(root / "f", 65534, 65534)
    workspace.snapshot()
    workspace.restore(taken.checkpoint_id)
    assert (root / "f").read_bytes() == b"one"
    assert (root / "f").stat().st_uid == 65534


@given(trees(depth=2), st.lists(trees(depth=2), min_size=1, max_size=3), st.data())
def test_any_history_of_a_directory_can_be_gone_back_through(first: Tree, others: list[Tree], data: st.DataObject):
    """Edits, snapshots, restores to any of them, undo: each time exactly what was there."""
    with tempfile.TemporaryDirectory() as folder, SyncClient.memory() as client:
        root = Path(folder, "root")
        root.mkdir()
        workspace = client.workspace(root)
        history = []
        for tree in (first, *others):
            for place in root.iterdir():
                shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()
            put(root, tree)
            history.append((workspace.snapshot().checkpoint_id, on_disk(root)))
        for _ in range(3):
            before = on_disk(root)
            target, expected = data.draw(st.sampled_from(history))
            report = workspace.restore(target)
            assert on_disk(root) == expected
            if report.changed and data.draw(st.booleans()):
                workspace.undo()
                assert on_disk(root) == before


def test_the_state_goes_with_the_files_or_alone(client: SyncClient, tmp_path: Path):
    root = tmp_path / "root"
    root.mkdir()
    workspace = client.workspace(root)
    points = []
    for step in range(3):
        (root / "f").write_text(f"step {step}")
        points.append(client.save("a", execution_state={"step": step}, session_id="s", workspace=workspace))
    report = workspace.restore(points[0], scope="both")
    assert report.state is not None
    assert (report.state.from_id, report.state.to_id) == (points[2], points[0])
    assert client.latest(session_id="s").execution_state == {"step": 0}
    assert (root / "f").read_text() == "step 0"
    workspace.undo()
    assert client.latest(session_id="s").execution_state == {"step": 2}
    assert (root / "f").read_text() == "step 2"
    workspace.restore(points[1], scope="state")
    assert client.latest(session_id="s").execution_state == {"step": 1}
    assert (root / "f").read_text() == "step 2"
    workspace.restore(points[0])
    assert client.latest(session_id="s").execution_state == {"step": 1}
    assert (root / "f").read_text() == "step 0"


def test_what_was_edited_after_the_agents_last_snapshot_is_refused(client: SyncClient, tmp_path: Path):
    root = tmp_path / "root"
    root.mkdir()
    workspace = client.workspace(root)
    (root / "f").write_text("one")
    first = client.save("a", session_id="s", workspace=workspace)
    (root / "f").write_text("two")
    client.save("a", session_id="s", workspace=workspace)
    (root / "f").write_text("by hand")
    for _ in range(2):  # refused again and again: a safety snapshot does not make it the agent's
        with pytest.raises(WorkspaceChangedError) as refused:
            workspace.restore(first)
        assert refused.value.paths == (b"f",)
    assert (root / "f").read_text() == "by hand"
    assert workspace.restore(first, keep="user").left[0].path == b"f"
    workspace.restore(first, force=True)
    assert (root / "f").read_text() == "one"
    workspace.undo()
    assert (root / "f").read_text() == "by hand"


def test_a_path_may_be_longer_than_the_system_takes_at_once(store: Store, tmp_path: Path):
    """Programs get there step by step, and so must we."""
    root = tmp_path / "project"
    root.mkdir()

    def descend(directory: int, *, make: bool) -> int:
        for _ in range(30):
            if make:
                os.mkdir("d" * 200, dir_fd=directory)
            below = os.open("d" * 200, os.O_RDONLY, dir_fd=directory)
            os.close(directory)
            directory = below
        return directory

    def bottom(text: bytes | None = None) -> bytes:
        directory = descend(os.open(root, os.O_RDONLY), make=False)
        try:
            if text is not None:
                with open(os.open("bottom", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, dir_fd=directory), "wb") as file:
                    file.write(text)
            with open(os.open("bottom", os.O_RDONLY, dir_fd=directory), "rb") as file:
                return file.read()
        finally:
            os.close(directory)

    os.close(descend(os.open(root, os.O_RDONLY), make=True))
    bottom(b"first")
    workspace = store.client().workspace(root)
    first = workspace.snapshot()
    bottom(b"second")
    workspace.snapshot()
    workspace.restore(first.checkpoint_id)  # over what is there
    assert bottom() == b"first"
    shutil.rmtree(root / ("d" * 200))
    workspace.snapshot()
    workspace.restore(first.checkpoint_id)  # anew
    assert bottom() == b"first"
    assert workspace.fork(first.checkpoint_id, tmp_path / "fork").paths == 31
    assert store.client().workspace(tmp_path / "fork").snapshot().snapshot.reference == first.snapshot.reference
