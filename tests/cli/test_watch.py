"""watch: takes a snapshot when a directory has come to rest."""

import json
import signal
import subprocess
import sys
import time

import pytest

from holdfast import SyncClient

PATIENCE = 240
pytestmark = pytest.mark.slow


class Watching:
    def __init__(self, root, *args):
        self.root = root
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "watch", str(root), "--json", *args],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root,
        )  # fmt: skip

    def snapshot(self):
        """The next one, which must come."""
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        return json.loads(line)

    def end(self, by=signal.SIGINT):
        self.process.send_signal(by)
        said, errors = self.process.communicate(timeout=PATIENCE)
        return [json.loads(line) for line in said.splitlines()], errors


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    (root / "f").write_text("one")
    return root


@pytest.mark.usefixtures("interruptible")
def test_a_step_ends_when_nothing_changes_any_more(root):
    watching = Watching(root, "--quiet", "0.3", "--session", "w")
    first = watching.snapshot()
    assert first["session_id"] == "w"
    (root / "f").write_text("two")
    (root / "made").write_text("x")
    later = [watching.snapshot()]
    while later[-1]["changed"] + sum(one["changed"] for one in later[:-1]) < 2:  # a busy machine may see two steps
        later.append(watching.snapshot())
    _, errors = watching.end()
    assert "watching" in errors
    with SyncClient.sqlite(root / ".holdfast" / "store.db") as client:
        workspace = client.workspace(root)
        assert workspace.read(first["checkpoint_id"], "f") == b"one"
        assert workspace.read(later[-1]["checkpoint_id"], "f") == b"two"
        workspace.restore(first["checkpoint_id"])
        assert sorted(one.name for one in root.iterdir()) == [".holdfast", "f"]


@pytest.mark.usefixtures("interruptible")
def test_what_goes_on_all_the_time_is_kept_now_and_then(root):
    watching = Watching(root, "--quiet", "3600", "--longest", "0.3", "--count", "2")
    watching.snapshot()
    deadline = time.monotonic() + PATIENCE
    n = 0
    while watching.process.poll() is None:
        n += 1
        (root / "f").write_text(f"{n}")
        time.sleep(0.01)
        assert time.monotonic() < deadline
    assert watching.snapshot()["changed"] == 1
    watching.process.communicate()


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_was_not_yet_kept_is_when_it_ends(root, by):
    watching = Watching(root, "--quiet", "3600")
    watching.snapshot()
    (root / "f").write_text("two")
    rest, _ = watching.end(by)
    assert [one["changed"] for one in rest] == [1]
    assert watching.process.returncode == 0


@pytest.mark.usefixtures("interruptible")
def test_beyond_a_limit_it_says_so_and_goes_on(root):
    (root / "holdfast.toml").write_text("[workspace]\nmax_files = 4\n")
    watching = Watching(root, "--quiet", "0.3", "--session", "w")
    assert watching.snapshot()["not_taken"] is None
    for n in range(6):
        (root / f"more-{n}").write_text("x")
    skipped = watching.snapshot()
    while skipped["not_taken"] is None:  # a busy machine may see two steps
        skipped = watching.snapshot()
    assert "max_files" in skipped["not_taken"]
    (root / "f").write_text("two")  # before there is room again, so that the next one has it
    for n in range(6):
        (root / f"more-{n}").unlink()
    later = watching.snapshot()
    while later["not_taken"] is not None or later["changed"] == 0:
        later = watching.snapshot()
    for n in range(6):
        (root / f"more-{n}").write_text("x")
    _, errors = watching.end()
    assert watching.process.returncode == 0, errors
    assert "no snapshot was taken: there are more than 4 files (max_files)" in errors
    with SyncClient.sqlite(root / ".holdfast" / "store.db") as client:
        assert client.snapshot_of(skipped["checkpoint_id"]).not_taken is not None
        assert client.read_file(later["checkpoint_id"], "f") == b"two"
        assert client.snapshot_of("w").not_taken is not None  # the last one, when it was ended


@pytest.mark.usefixtures("interruptible")
def test_a_limit_is_said_once_for_as_long_as_it_stands_against_a_snapshot(root):
    (root / "holdfast.toml").write_text("[workspace]\nmin_free_bytes = 1_000_000_000_000_000_000\n")
    watching = Watching(root, "--quiet", "0.1")
    assert "min_free_bytes" in watching.snapshot()["not_taken"]
    time.sleep(1.5)
    rest, _ = watching.end()
    assert rest == []
