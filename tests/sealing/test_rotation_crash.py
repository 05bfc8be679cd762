"""Processes that die at each commit of `rekey`, `encrypt` and an import of keys: everything stays readable."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from stores import Recorder

from holdfast import KeyMissingError, KeyRing, SyncClient, TamperedError
from holdfast.backends.sqlite.backend import SqliteBackend
from holdfast.sealing import temporary_file
from holdfast.sealing.key_ring import RawKey
from holdfast.sealing.temporary_file import BLOCK, SealedTemporaryFile

OLD, NEW = (KeyRing([RawKey(name, random.Random(name).randbytes(32))]) for name in ("old", "new"))
DIED = 9
MOST_COMMITS = 60


def fill(client: SyncClient) -> dict[str, object]:
    saved: dict[str, object] = {}
    for session in ("one", "two", "three"):
        for number in range(3):
            state = {"list": [{"n": n, "text": f"{session} " * 30} for n in range(20 + number)], "blob": session * 3000}
            saved[client.save("a", session_id=session, execution_state=state)] = state
    client.tag("named", next(iter(saved)))
    return saved


def die_at(path: Path, commit: int, is_done: bool, work: Callable[[SyncClient], object], keys: KeyRing) -> bool:
    """Does the work in a child that dies before or after its nth commit; whether it died."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            recorder = Recorder(SqliteBackend(path, durability="fast"))
            count = 0

            def before(commits: Sequence[object]) -> None:
                nonlocal count
                count += 1
                if count == commit:
                    if is_done:
                        recorder.inner.commit_all(commits)
                    os._exit(DIED)

            recorder.before_commit = before
            work(SyncClient(recorder, keys=keys))
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, DIED)
    return status == DIED


def all_is_there(path: Path, saved: dict[str, object], keys: KeyRing) -> None:
    with SyncClient.sqlite(path, keys=keys) as client:
        assert all(client.restore(each).execution_state == state for each, state in saved.items())
        assert client.tagged("named") is not None
        assert client.verify().ok


@pytest.mark.slow
@pytest.mark.parametrize("is_done", [False, True])
def test_a_rekey_that_dies_leaves_the_old_key_or_the_new_one(tmp_path: Path, is_done: bool):
    path = tmp_path / "s.db"
    with SyncClient.sqlite(path, keys=OLD) as client:
        saved = fill(client)
    assert die_at(path, 1, is_done, lambda client: client.rekey(), NEW + OLD)
    all_is_there(path, saved, NEW + OLD)
    all_is_there(path, saved, NEW if is_done else OLD)
    assert not die_at(path, 2, is_done, lambda client: client.rekey(), NEW + OLD)  # it is one commit
    with SyncClient.sqlite(path, keys=NEW + OLD) as client:
        assert client.rekey().is_current
    all_is_there(path, saved, NEW)
    with pytest.raises(KeyMissingError):
        all_is_there(path, saved, OLD)


@pytest.mark.slow
@pytest.mark.parametrize("is_done", [False, True])
def test_an_encryption_that_dies_at_any_commit_is_finished_by_the_next_one(tmp_path: Path, is_done: bool):
    plain, sealed = tmp_path / "plain.db", tmp_path / "sealed.db"
    with SyncClient.sqlite(plain) as client:
        saved = fill(client)

    def encrypt(target: SyncClient) -> None:
        with SyncClient.sqlite(plain) as source:
            source.copy_to(target)

    commits = 0
    while die_at(sealed, commits + 1, is_done, encrypt, NEW):
        commits += 1
        assert commits < MOST_COMMITS
        with SyncClient.sqlite(plain) as client:
            assert client.verify().ok
        if commits > 1 or is_done:  # the first commit makes the key of the store
            with SyncClient.sqlite(sealed, keys=NEW) as client:
                assert client.verify().ok
        for path in tmp_path.glob("sealed.db*"):
            if commits % 3:  # now and then go on from where it died, else begin again
                path.unlink()
    assert commits > 3
    all_is_there(sealed, saved, NEW)


# -- temporary files -------------------------------------------------------------------------------------------------


def test_a_temporary_file_of_a_copy_is_encrypted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    kept = (tmp_path / "kept").open("w+b")
    monkeypatch.setattr(temporary_file.tempfile, "TemporaryFile", lambda **_: kept)
    content = random.Random(1).randbytes(3 * BLOCK) + b"canary" * 1000
    with SealedTemporaryFile() as file:
        for start in range(0, len(content), 10_000):
            assert file.write(content[start : start + 10_000]) == len(content[start : start + 10_000])
        assert file.seek(0, os.SEEK_END) == len(content)
        for at, count in ((0, 5), (BLOCK - 3, 10), (2 * BLOCK, BLOCK), (len(content) - 4, 100), (7, 2 * BLOCK)):
            file.seek(at)
            assert file.read(count) == content[at : at + count]
        file.seek(0)
        assert file.read() == content
        with pytest.raises(OSError, match="once"):
            file.write(b"x")
        stored = os.pread(kept.fileno(), 10 * BLOCK, 0)
        assert b"canary" not in stored
        kept.seek(5)
        kept.write(bytes((stored[5] ^ 1,)))
        kept.flush()
        file.seek(0)
        with pytest.raises(TamperedError):
            file.read(10)


def test_a_copy_between_sealed_stores_writes_no_plain_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    written: list[bytes] = []
    original = SealedTemporaryFile._put
    monkeypatch.setattr(
        SealedTemporaryFile, "_put", lambda self, block: (written.append(block), original(self, block))[1]
    )
    with SyncClient.memory() as plain, SyncClient.memory(keys=NEW) as sealed:
        saved = fill(plain)
        plain.copy_to(sealed)
        assert written
        assert sealed.restore(next(iter(saved))).execution_state == next(iter(saved.values()))
