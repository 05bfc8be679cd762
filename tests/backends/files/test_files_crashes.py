"""The files backend beyond the contract: crashes, several processes, failing disks."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from files_support import SPACES, Crash, commit, content, crash_after, first_commit, held, second_commit

from holdfast.backends.files import FilesBackend
from holdfast.backends.files.disk import Disk
from holdfast.backends.files.write_set import Changes
from holdfast.backends.port import Commit, RowKey
from holdfast.errors import StoreError
from holdfast.testing import dump
from holdfast.testing.harness import TREE, hash_bytes, head, record

# -- crashes -----------------------------------------------------------------------------------------------------------


pytestmark = pytest.mark.slow  # in sum: processes, terminals, waits


@pytest.mark.parametrize("durability", ["full", "fast"])
def test_a_crash_at_any_point_leaves_all_or_nothing(where: Path, durability: str):
    backend = FilesBackend(where, durability)
    commit(backend, first_commit())
    before = content(where)
    shutil.copytree(where, where.with_name("copy"))
    commit(backend, second_commit())
    after = content(where)
    assert before != after
    backend.close()

    seen: list[str] = []
    for calls in range(1, 100):
        shutil.rmtree(where)
        shutil.copytree(where.with_name("copy"), where)
        backend, other = FilesBackend(where, durability), FilesBackend(where)
        points = crash_after(backend, calls)
        try:
            commit(backend, second_commit())
        except Crash:
            committed = "committed" in points
            # Readers that were there all the time, and those that start now, see the same, and write nothing.
            left = everything(where)
            assert dump(other, SPACES) == content(where) == (after if committed else before), points
            assert everything(where) == left
            assert (where / "journal").exists() == committed
            # The next writer carries out what was committed, and nothing else has changed by that.
            other.compact()
            assert dump(other, SPACES) == content(where) == (after if committed else before), points
            assert list((where / "staged").iterdir()) == []
            assert not (where / "journal").exists()
            seen = points
        else:
            assert content(where) == after
            break
    assert {"staged", "prepared", "committed", "moved", "removed", "applied"} <= set(seen)
    assert len(seen) > 15


def everything(where: Path) -> dict[str, tuple[int, int, bytes]]:
    """Each path with inode, time and content."""
    return {
        str(path): (path.stat().st_ino, path.stat().st_mtime_ns, b"" if path.is_dir() else path.read_bytes())
        for path in [where, *where.rglob("*")]
    }


def test_a_handle_that_was_open_sees_a_crashed_commit_whole(where: Path):
    other = FilesBackend(where)
    backend = FilesBackend(where)
    commit(backend, first_commit())
    crash_after(backend, 4)
    with pytest.raises(Crash):
        commit(backend, second_commit())
    assert (where / "journal").exists()
    left = everything(where)
    assert [got.sequence for got in other.session_records(b"run-001")] == [2]
    assert other.rows([RowKey("lease", b"a", TREE), RowKey("lease", b"b")]) == [None, (b"b", 1)]
    assert everything(where) == left  # a reader leaves that to the next writer


@pytest.mark.parametrize("calls", [3, 4, 6])
def test_a_pending_commit_is_whole_also_in_a_copy_without_empty_folders(where: Path, calls: int):
    """As git makes one: the folders that were made for the files of the commit are not in it."""
    backend = FilesBackend(where)
    commit(backend, first_commit())
    crash_after(backend, calls)
    with pytest.raises(Crash):
        commit(backend, second_commit())
    expected = content(where)
    copy = where.with_name("copy")
    for path in [path for path in where.rglob("*") if path.is_file()]:
        (copy / path.relative_to(where)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy / path.relative_to(where))
    left = everything(copy)
    assert not content(copy).differences(expected)
    assert everything(copy) == left
    backend = FilesBackend(copy)
    backend.compact()
    assert not content(copy).differences(expected)
    assert not (copy / "journal").exists()


def test_a_reader_without_a_lock_reads_again_if_a_writer_came(where: Path):
    writer = FilesBackend(where)
    commit(writer, first_commit())
    writer.close()
    (where / "lock").unlink()
    reader = FilesBackend(where)
    seen: list[int] = []

    def read() -> int:
        seen.append(reader._disk.info("lock") is not None)
        if len(seen) == 1:
            commit(FilesBackend(where), Commit(TREE, record(3)))
        return len(seen)

    assert reader._lock.hold(read, exclusive=False) == 2
    assert seen == [False, True]


def test_a_store_that_was_replaced_has_another_lock(where: Path):
    backend = FilesBackend(where, timeout=0.05)
    commit(backend, first_commit())
    shutil.rmtree(where)
    other = FilesBackend(where)
    with held(other), pytest.raises(StoreError, match="held by others"):
        commit(backend, first_commit())
    commit(backend, first_commit())
    assert len(content(where).records) == 1


def test_reading_a_store_that_is_gone_is_an_error_and_no_empty_answer(where: Path):
    backend = FilesBackend(where)
    commit(backend, first_commit())
    shutil.rmtree(where)
    with pytest.raises(StoreError, match="the directory is gone"):
        backend.records([])


def test_a_writer_brings_a_crashed_commit_to_its_end_first(where: Path):
    backend = FilesBackend(where)
    commit(backend, first_commit())
    crash_after(backend, 4)
    with pytest.raises(Crash):
        commit(backend, second_commit())
    commit(FilesBackend(where), Commit(TREE, record(3), rows=[head(b"3", 2)]))
    assert sorted(got.sequence for got in content(where).records.values()) == [2, 3]


def test_a_crash_while_replaying_is_replayed(where: Path):
    backend = FilesBackend(where)
    commit(backend, first_commit())
    crash_after(backend, 3)
    with pytest.raises(Crash):
        commit(backend, second_commit())
    for calls in range(1, 8):
        crash_after(backend, calls)
        with pytest.raises(Crash):
            backend.compact()
    assert [got.data for got in content(where).records.values()] == [b"record 2"]


WRITER = """
import sys
from holdfast.backends.files import FilesBackend
from holdfast.backends.port import Commit, RowKey
from holdfast.testing.harness import TREE, append, hash_bytes, head, record

backend = FilesBackend(sys.argv[1], sys.argv[2])
(row,) = backend.rows([RowKey("head", b"run-001", TREE)])
number = int(row.value) if row else 0
while True:
    number += 1
    blob = b"%d" % number * 1000
    (outcome,) = backend.commit_all([Commit(
        TREE, record(number), segments=[append(1, number - 1, b"x")], blobs={hash_bytes(blob): blob},
        rows=[head(b"%d" % number, number - 1)],
    )])
    if outcome:
        raise outcome
    print(number, flush=True)
"""


def python(script: str, *arguments: str) -> "subprocess.Popen[str]":
    source = Path(__file__).parents[3] / "src"
    environment = {**os.environ, "PYTHONPATH": str(source)}
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True, env=environment
    )


@pytest.mark.parametrize("durability", ["full", "fast"])
def test_kill_9_loses_nothing_that_was_acknowledged(where: Path, durability: str):
    last = 0
    for delay in (0.0, 0.013, 0.031, 0.05):
        with python(WRITER, str(where), durability) as child:
            assert child.stdout is not None
            acknowledged = [int(child.stdout.readline()), int(child.stdout.readline())]
            time.sleep(delay)
            child.send_signal(signal.SIGKILL)
            acknowledged += [int(line) for line in child.stdout]
        found = content(where)
        last = int(found.rows[RowKey("head", b"run-001", TREE)].value)
        assert last >= acknowledged[-1]
        assert sorted(got.sequence for got in found.records.values()) == list(range(1, last + 1))
        assert sum(run.length for run in found.segments[1]) == last
        assert set(found.blobs) == {hash_bytes(b"%d" % number * 1000) for number in range(1, last + 1)}
    assert last > 4


COUNTER = """
import sys
from holdfast.backends.files import FilesBackend
from holdfast.backends.port import Commit, CommitConflict, RowKey
from holdfast.testing.harness import TREE, head

backend = FilesBackend(sys.argv[1])
for _ in range(25):
    while True:
        (row,) = backend.rows([RowKey("head", b"run-001", TREE)])
        value, version = (int(row.value), row.version) if row else (0, 0)
        (outcome,) = backend.commit_all([Commit(TREE, rows=[head(b"%d" % (value + 1), version)])])
        if outcome is None:
            break
        if not isinstance(outcome, CommitConflict):
            raise outcome
"""


def test_processes_racing_for_a_row_lose_no_update(where: Path):
    children = [python(COUNTER, str(where)) for _ in range(4)]
    for child in children:
        child.communicate(timeout=240)
        assert child.returncode == 0
    assert content(where).rows[RowKey("head", b"run-001", TREE)] == (b"100", 100)


FORKER = """
import os, sys, threading, warnings
from holdfast.backends.files import FilesBackend
from holdfast.backends.port import Commit
from holdfast.testing.harness import TREE, head

warnings.simplefilter("ignore")
backend = FilesBackend(sys.argv[1])
holding, forked = threading.Event(), threading.Event()

def hold():
    backend._lock.hold(lambda: (holding.set(), forked.wait()), exclusive=True)

thread = threading.Thread(target=hold)
thread.start()
holding.wait()
kept_out, was_kept_out = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(kept_out)
    backend._lock.timeout = 0.2
    try:
        backend.rows([])
        os._exit(1)  # the parent's lock must keep the child out ...
    except Exception as error:
        os.write(1, type(error).__name__.encode())
    backend._lock.timeout = 30
    os.write(1, b" waiting\\n")
    os.close(was_kept_out)
    (outcome,) = backend.commit_all([Commit(TREE, rows=[head(b"child", -1)])])  # ... and let it in when it is free
    os._exit(0 if outcome is None else 2)
os.close(was_kept_out)
os.read(kept_out, 1)  # until the child has closed its end, or has ended
forked.set()
thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_forked_child_takes_locks_of_its_own(where: Path):
    with python(FORKER, str(where)) as child:
        assert child.stdout is not None
        said = child.stdout.read()
    assert child.returncode == 0
    assert said.split() == ["StoreBusyError", "waiting"]
    assert content(where).rows[RowKey("head", b"run-001", TREE)].value == b"child"


def test_a_lock_that_is_held_for_too_long_is_an_error(where: Path):
    backend, stuck = FilesBackend(where, timeout=0.05), FilesBackend(where)
    with held(stuck, exclusive=False):
        assert backend.rows([]) == []
        with pytest.raises(StoreError, match=r"held by others for 0\.05 seconds"):
            commit(backend, first_commit())
    with held(stuck), pytest.raises(StoreError, match="fuser"):
        backend.rows([])
    commit(backend, first_commit())


def test_a_thread_that_never_pauses_keeps_no_other_out(where: Path):
    backend = FilesBackend(where, timeout=20)
    is_over = threading.Event()
    counts = [0, 0]

    def read(number: int, pause: float) -> None:
        while not is_over.is_set():
            backend._lock.hold(lambda: time.sleep(0.002), exclusive=True)
            counts[number] += 1
            time.sleep(pause)

    threads = [threading.Thread(target=read, args=(number, pause)) for number, pause in enumerate((0, 0.001))]
    for thread in threads:
        thread.start()
    while max(counts) < 100:
        time.sleep(0.01)
    is_over.set()
    for thread in threads:
        thread.join()
    assert min(counts) > 25, counts


def test_closing_while_others_wait(where: Path):
    backend = FilesBackend(where)
    errors: list[BaseException] = []

    def read() -> None:
        try:
            backend.rows([])
        except StoreError as error:
            errors.append(error)

    with held(backend):
        waiting = threading.Thread(target=read)
        closing = threading.Thread(target=backend.close)
        waiting.start()
        time.sleep(0.02)
        closing.start()
    waiting.join(240)
    closing.join(240)
    with pytest.raises(StoreError, match="was closed"):
        backend.rows([])
    assert backend._lock._descriptor is None


# -- failing disks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EACCES])
@pytest.mark.slow
def test_a_disk_that_fails_at_any_call_leaves_all_or_nothing(where: Path, number: int, monkeypatch):
    backend = FilesBackend(where)
    commit(backend, first_commit())
    before = content(where)
    shutil.copytree(where, where.with_name("copy"))
    calls, fail_at = 0, 0

    def failing(name: str):
        plain = getattr(Disk, name)

        def method(self, *arguments):
            nonlocal calls
            calls += 1
            if calls == fail_at:
                raise OSError(number, os.strerror(number), self.resolve(arguments[0]))
            return plain(self, *arguments)

        return method

    outcomes = []
    for fail_at in range(1, 200):
        shutil.rmtree(where)
        shutil.copytree(where.with_name("copy"), where)
        backend = FilesBackend(where)
        with monkeypatch.context() as patch:
            for name in (
                "create",
                "link",
                "move",
                "touch",
                "remove",
                "prune",
                "make_folder",
                "sync_folder",
                "write_at",
            ):
                patch.setattr(Disk, name, failing(name))
            calls = 0
            (outcome,) = backend.commit_all([second_commit()])
            if calls < fail_at:
                break
        outcomes.append(outcome)
        found = dump(backend, SPACES)
        if outcome is None:
            assert [got.sequence for got in found.records.values()] == [2]
        else:
            assert isinstance(outcome, StoreError)
            assert os.strerror(number) in str(outcome)
            assert not before.differences(found)
            commit(backend, second_commit())
        assert content(where) == dump(backend, SPACES)
        assert len(content(where).records) == 1
    assert sum(outcome is not None for outcome in outcomes) > 10  # before the commit
    assert sum(outcome is None for outcome in outcomes) > 10  # after it


def test_one_commit_that_can_not_be_written_fails_alone(where: Path, monkeypatch):
    backend = FilesBackend(where)
    plain = Disk.create

    def create(self, path, data, time_us=None):
        if len(data) > 10_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        plain(self, path, data, time_us)

    monkeypatch.setattr(Disk, "create", create)
    big = b"x" * 20_000
    outcomes = backend.commit_all(
        [Commit(TREE, record(1)), Commit(TREE, record(2), blobs={hash_bytes(big): big}), Commit(TREE, record(3))]
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), StoreError, type(None)]
    assert "the disk is full" in str(outcomes[1])
    assert sorted(got.sequence for got in content(where).records.values()) == [1, 3]


def test_a_directory_without_permission(where: Path):
    where.mkdir()
    where.chmod(0o500)
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    with pytest.raises(StoreError, match="permission is denied"):
        FilesBackend(where)


def test_a_twin_is_staged_after_what_it_is_a_twin_of(where: Path):
    FilesBackend(where).close()
    changes = Changes(Disk(str(where), durable=True), int)
    changes.remove("sessions/s/1")
    changes.put("records/aa/aa", b"x")
    changes.link("sessions/s/1", "records/aa/aa")
    assert list(changes.by_path) == ["records/aa/aa", "sessions/s/1"]
    assert changes.read("sessions/s/1") == b"x"


def test_a_file_in_the_way(where: Path):
    where.write_text("not a directory")
    with pytest.raises(StoreError, match="could not be opened"):
        FilesBackend(where)
