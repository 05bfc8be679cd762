"""FileCheckpoints under crashes, races, full disks and damage: the old checkpoint or the new one,
or an error that says so."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.backends.files.disk import Disk
from holdfast.checkpoint_store.json_files import SyncFileCheckpoints
from holdfast.errors import CorruptError, NewerVersionError, StoreError


@pytest.fixture
def store(tmp_path: Path) -> SyncFileCheckpoints:
    return SyncFileCheckpoints(tmp_path / "checkpoints")


# -- crashes -----------------------------------------------------------------------------------------------------------


def _no_space(*_):
    raise OSError(28, "No space left on device")


class Crash(BaseException):
    pass


@pytest.mark.parametrize("step", range(12))
def test_a_crash_at_any_step_of_a_save_leaves_the_old_or_the_new_one(store, monkeypatch, step):
    store.save("s", {"step": 1})
    count = 0

    def crashing(method):
        def call(*args):
            nonlocal count
            count += 1
            if count == step:
                raise Crash
            return method(*args)

        return call

    with monkeypatch.context() as patch:
        for name in ("create", "move", "sync_folder", "make_folder"):
            patch.setattr(Disk, name, crashing(getattr(Disk, name)))
        try:
            store.save("s", {"step": 2})
        except Crash:
            pass
        else:
            assert not 1 <= step <= 7
    state, metadata = store.load("s"), store.load_metadata("s")
    assert metadata is not None
    assert state in ({"step": 1}, {"step": 2})
    assert metadata.step == state["step"], "the data wins, and its metadata comes from it"
    store.save("s", {"step": 3})
    assert (store.load("s"), store.list()) == ({"step": 3}, ["s"])
    after = store.load_metadata("s")
    assert after is not None
    assert after.step == 3


def test_killed_processes_leave_whole_checkpoints(store, tmp_path):
    child = f"""
import itertools
from holdfast.checkpoint_store.json_files import SyncFileCheckpoints
store = SyncFileCheckpoints({str(tmp_path / "checkpoints")!r})
for step in itertools.count(1):
    store.save("s", {{"step": step, "text": str(step % 10) * 50_000}})
    print(step, flush=True)
"""
    for delay in (0.05, 0.02, 0.03):
        process = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        acknowledged = [int(line) for line in process.stdout.read().split()] or [1]
        process.wait()
        process.stdout.close()
        state, metadata = store.load("s"), store.load_metadata("s")
        assert metadata is not None
        assert state["step"] in (acknowledged[-1], acknowledged[-1] + 1)
        assert set(state["text"]) == {str(state["step"] % 10)}
        assert metadata.step == state["step"]


@pytest.mark.slow
def test_processes_that_race_never_tear_a_checkpoint(store, tmp_path):
    child = f"""
import sys
from holdfast.checkpoint_store.json_files import SyncFileCheckpoints
store = SyncFileCheckpoints({str(tmp_path / "checkpoints")!r})
for step in range(40):
    store.save("s", {{"step": step, "who": sys.argv[1], "text": sys.argv[1] * 20_000}})
    state, metadata = store.load("s"), store.load_metadata("s")
    assert set(state["text"]) == {{state["who"]}} and metadata is not None
"""
    processes = [subprocess.Popen([sys.executable, "-c", child, who]) for who in "abcd"]
    assert [process.wait() for process in processes] == [0] * 4
    state, metadata = store.load("s"), store.load_metadata("s")
    assert metadata is not None
    assert (state["step"], metadata.step) == (39, 39)


def test_a_full_disk_is_an_error_and_the_store_works_afterwards(store, monkeypatch):
    store.save("s", {"step": 1})
    with monkeypatch.context() as patch:
        patch.setattr(Disk, "create", _no_space)
        with pytest.raises(StoreError, match="disk is full"):
            store.save("s", {"step": 2})
    assert store.load("s") == {"step": 1}
    store.save("s", {"step": 3})
    assert store.load("s") == {"step": 3}


def test_a_later_save_that_failed_leaves_the_earlier_one_its_turn(store, monkeypatch):
    store.save("s", {"step": 0})
    first = store._files.begin_save("s", {"step": 1})
    second = store._files.begin_save("s", {"step": 2})
    with monkeypatch.context() as patch:
        patch.setattr(Disk, "create", _no_space)
        with pytest.raises(StoreError, match="disk is full"):
            second()
    first()
    assert store.load("s") == {"step": 1}


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session_id", ["s", "A b", "x" * 300])
@pytest.mark.slow
def test_every_flipped_bit_raises_or_changes_nothing(store, session_id):
    store.save(session_id, {"step": 1, "metadata": {"agent_id": "w"}, "list": [1.5, "é", None]})
    before = store.load(session_id), store.load_metadata(session_id)
    [folder] = [path for path in Path(store._files.root).iterdir() if path.is_dir()]
    for path in (folder / "checkpoint.json", folder / "metadata.json"):
        good = path.read_bytes()
        for place in range(len(good)):
            path.write_bytes(good[:place] + bytes([good[place] ^ 1 << place % 8]) + good[place + 1 :])
            for call, expected in ((store.load, before[0]), (store.load_metadata, before[1])):
                try:
                    assert call(session_id) == expected, (path.name, place)
                except (CorruptError, NewerVersionError):
                    continue
        path.write_bytes(good)
    assert (store.load(session_id), store.load_metadata(session_id)) == before


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b'{"a": NaN}', b"[" * 100_000, b"null x"])
def test_unreadable_files_are_corrupt_and_not_absent(store, tmp_path, damage):
    store.save("s", {"step": 1})
    folder = tmp_path / "checkpoints" / "s"
    good = (folder / "checkpoint.json").read_bytes()
    (folder / "checkpoint.json").write_bytes(damage)
    with pytest.raises(CorruptError, match=r"checkpoint\.json"):
        store.load("s")
    with pytest.raises(CorruptError, match=r"checkpoint\.json"):
        store.load_metadata("s")
    (folder / "checkpoint.json").write_bytes(good)
    (folder / "metadata.json").write_bytes(damage)
    with pytest.raises(CorruptError, match=r"metadata\.json"):
        store.load_metadata("s")
    assert store.load("s") == {"step": 1}
    store.delete("s")
    assert store.list() == []


def test_a_file_in_the_place_of_another_sessions_is_noticed(store, tmp_path):
    store.save("a", {"step": 1})
    store.save("b", {"step": 2})
    root = tmp_path / "checkpoints"
    (root / "a" / "checkpoint.json").write_bytes((root / "b" / "checkpoint.json").read_bytes())
    with pytest.raises(CorruptError, match="another session"):
        store.load("a")


def test_a_checkpoint_of_a_newer_holdfast_says_so(store, tmp_path):
    store.save("s", {})
    path = tmp_path / "checkpoints" / "s" / "checkpoint.json"
    path.write_text(path.read_text().replace('"holdfast": 1', '"holdfast": 2'))
    with pytest.raises(NewerVersionError, match="Upgrade"):
        store.load("s")
