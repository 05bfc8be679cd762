"""The change log of the files backend: after crashes, in older stores, damaged, and when it grows."""

import json
import shutil
from pathlib import Path

import pytest
from files_support import Crash, commit, content, crash_after, first_commit, held, second_commit

from holdfast.backends.files import FilesBackend, change_log
from holdfast.backends.files.disk import Disk
from holdfast.backends.files.journal import CommitJournal
from holdfast.backends.port import Commit
from holdfast.errors import CorruptError
from holdfast.testing.harness import TREE, record, record_id


def numbers(backend: FilesBackend, after: int = 0) -> list[tuple[int, int]]:
    return [(change.position, change.record.sequence) for change in backend.changes(after, 1000)]


def test_a_crash_at_any_point_gives_a_record_its_position_or_leaves_both_out(where: Path):
    backend = FilesBackend(where)
    commit(backend, first_commit())
    backend.close()
    shutil.copytree(where, where.with_name("copy"))
    seen: list[str] = []
    for calls in range(1, 100):
        shutil.rmtree(where)
        shutil.copytree(where.with_name("copy"), where)
        backend = FilesBackend(where)
        other = FilesBackend(where)
        points = crash_after(backend, calls)
        try:
            commit(backend, second_commit())
        except Crash:
            expected = [(2, 2)] if "committed" in points else [(1, 1)]
            assert numbers(other) == numbers(FilesBackend(where)) == expected, points
            assert other.last_change() == (2 if "committed" in points else 1)
            commit(other, Commit(TREE, record(3)))
            assert numbers(other) == [*expected, (expected[-1][0] + 1, 3)]
            seen = points
        else:
            break
    assert {"staged", "committed", "moved", "ordered", "applied"} <= set(seen)


def test_room_is_made_as_it_is_needed(where: Path):
    backend = FilesBackend(where, "fast")
    for first in range(1, 700, 50):
        commit(backend, *(Commit(TREE, record(number)) for number in range(first, first + 50)))
    assert numbers(backend) == [(number, number) for number in range(1, 701)]
    assert backend.last_change() == 700
    assert (where / "order").stat().st_size == 800 * change_log.SIZE
    assert numbers(backend, 698) == [(699, 699), (700, 700)]
    assert numbers(backend, 800) == []


def test_room_that_was_made_for_a_commit_that_never_came_is_used(where: Path):
    backend = FilesBackend(where, "fast")
    commit(backend, *(Commit(TREE, record(number)) for number in range(1, 199)))
    crash_after(backend, 1)
    with pytest.raises(Crash):
        commit(backend, *(Commit(TREE, record(number)) for number in range(1001, 1600)))
    size = (where / "order").stat().st_size
    assert size % change_log.SIZE == 0 and size > 400 * change_log.SIZE
    with (where / "order").open("r+b") as file:
        file.truncate(size - 7)  # and of this, something was left out
    commit(FilesBackend(where), Commit(TREE, record(199)))
    assert numbers(backend)[-2:] == [(198, 198), (199, 199)]
    assert backend.last_change() == 199
    commit(FilesBackend(where, "fast"), *(Commit(TREE, record(number)) for number in range(200, 1000)))
    assert numbers(backend, 0)[-1] == (999, 999)


def test_a_store_without_an_order_gets_one(where: Path):
    """As one has that is older than orders: its records don't know their positions either."""
    backend = FilesBackend(where)
    for number in (1, 2, 3):
        commit(backend, Commit(TREE, record(number)))
    backend.close()
    (where / "order").unlink()
    for path in [*where.glob("records/*/*"), *where.glob("sessions/*/*")]:
        forget_position(path)
    backend = FilesBackend(where)
    assert numbers(backend) == [(1, 1), (2, 2), (3, 3)]
    commit(backend, Commit(TREE, delete_records=[(record_id(3, TREE), b"record 3")]))
    commit(backend, Commit(TREE, record(3)))
    assert numbers(backend) == [(1, 1), (2, 2), (4, 3)]


def forget_position(path: Path) -> None:
    from holdfast.backends.files import envelope

    _, line, data = path.read_bytes().split(b"\n", 2)
    about = json.loads(line)
    if about.pop("position", None):
        path.write_bytes(envelope.wrap("record", about, data, cover_content=False))


def test_an_order_that_was_moved_away_is_built_again_with_the_same_positions(where: Path):
    backend = FilesBackend(where)
    for number in (5, 3, 9, 1, 7):
        commit(backend, Commit(TREE, record(number)))
    commit(backend, Commit(TREE, delete_records=[(record_id(3, TREE), b"record 3")]))
    commit(backend, Commit(TREE, record(9, b"dead")._replace(replaces=b"record 9")))
    before = numbers(backend)
    assert before == [(1, 5), (3, 9), (4, 1), (5, 7)]
    backend.close()
    (where / "order").unlink()
    backend = FilesBackend(where)
    assert numbers(backend) == before
    commit(backend, Commit(TREE, record(2)))
    assert numbers(backend, 5) == [(6, 2)]


@pytest.mark.parametrize("at", [0, 17, 45, 59])
def test_a_damaged_order_is_told(where: Path, at: int):
    backend = FilesBackend(where)
    for number in (1, 2, 3):
        commit(backend, Commit(TREE, record(number)))
    data = bytearray((where / "order").read_bytes())
    data[at] ^= 4
    (where / "order").write_bytes(data)
    with pytest.raises(CorruptError, match=rf"entry {at // 20 + 1} is not what was written\. Move the file away"):
        backend.changes(0, 10)
    assert len(content_without_order(where)) == 3


def content_without_order(where: Path) -> list[tuple[int, int]]:
    """What the remedy that the error names leads to."""
    (where / "order").rename(where.with_name("moved away"))
    assert len(content(where).records) == 3
    return numbers(FilesBackend(where))


def test_a_damaged_record_hides_none_that_follow(where: Path):
    backend = FilesBackend(where)
    for number in (1, 2):
        commit(backend, Commit(TREE, record(number)))
    path = next(where.glob("records/01/*"))
    path.write_bytes(b"x" + path.read_bytes()[1:])
    damaged, sound = backend.changes(0, 10)
    assert (damaged.position, damaged.record.id, sound.record.sequence) == (1, record_id(1, TREE), 2)
    assert damaged.record.data.startswith(b"xoldfast")


@pytest.mark.parametrize("wrong", [[0, []], [2, ["00" * 16]], [1, ["xx"]], [1, ["00" * 17]], ["1", []], [1], 7])
def test_a_journal_of_a_stranger_does_not_write_anywhere(where: Path, wrong: object):
    FilesBackend(where).close()
    from holdfast.backends.files import envelope

    plan = {"moves": [], "touches": [], "removals": [], "order": wrong}
    (where / "journal").write_bytes(envelope.wrap("journal", plan))
    with pytest.raises(CorruptError, match="not written by holdfast"):
        CommitJournal(Disk(str(where), durable=False)).replay()
    assert not (where / "order").exists()


def test_polling_takes_no_lock(where: Path):
    """Nothing new is said without waiting for a writer, and without making one wait."""
    backend, writer = FilesBackend(where, timeout=0.05), FilesBackend(where)
    commit(writer, Commit(TREE, record(1)))
    with held(writer):
        assert backend.changes(1, 10) == []
    assert numbers(backend) == [(1, 1)]


class TestWhatIsLeftOut:
    """After collection, the entries of deleted records at the beginning go."""

    @pytest.fixture
    def shortened(self, where: Path) -> FilesBackend:
        backend = FilesBackend(where, "fast")
        for first in range(1, 501, 100):
            commit(backend, *(Commit(TREE, record(number)) for number in range(first, first + 100)))
        gone = [(record_id(number, TREE), record(number).data) for number in (*range(1, 451), 470)]
        commit(backend, Commit(TREE, delete_records=gone))
        before = (where / "order").stat().st_size
        backend.compact()
        assert (where / "order").stat().st_size == 200 * change_log.SIZE < before
        return backend

    def test_positions_stay(self, shortened: FilesBackend, where: Path):
        expected = [(number, number) for number in range(451, 501) if number != 470]
        for backend in (shortened, FilesBackend(where)):
            assert numbers(backend) == numbers(backend, 3) == expected
            assert numbers(backend, 498) == [(499, 499), (500, 500)]
            assert numbers(backend, 500) == numbers(backend, 900) == []
            assert backend.last_change() == 500

    def test_it_goes_on(self, shortened: FilesBackend, where: Path):
        other = FilesBackend(where, "fast")
        for first in range(501, 1001, 100):
            commit(other, *(Commit(TREE, record(number)) for number in range(first, first + 100)))
        assert numbers(shortened, 499) == [(number, number) for number in range(500, 1001)]
        assert shortened.last_change() == 1000

    def test_again_and_to_nothing(self, shortened: FilesBackend, where: Path):
        shortened.compact()
        commit(shortened, *(Commit(TREE, record(number)) for number in range(501, 801)))
        gone = [(change.record.id, change.record.data) for change in shortened.changes(0, 1000)]
        commit(shortened, Commit(TREE, delete_records=gone))
        shortened.compact()
        assert numbers(shortened) == []
        assert FilesBackend(where).last_change() == 800
        commit(shortened, Commit(TREE, record(801)))
        assert numbers(FilesBackend(where)) == [(801, 801)]
        assert (where / "order").stat().st_size == 200 * change_log.SIZE

    def test_few_are_left_as_they_are(self, where: Path):
        backend = FilesBackend(where, "fast")
        commit(backend, *(Commit(TREE, record(number)) for number in range(1, 301)))
        gone = [(record_id(number, TREE), record(number).data) for number in range(1, 150)]
        commit(backend, Commit(TREE, delete_records=gone))
        before = (where / "order").read_bytes()
        backend.compact()
        assert (where / "order").read_bytes() == before

    def test_a_damaged_number_is_noticed(self, shortened: FilesBackend, where: Path):
        damaged = bytearray((where / "order").read_bytes())
        damaged[12] ^= 1
        (where / "order").write_bytes(damaged)
        with pytest.raises(CorruptError, match="order"):
            shortened.changes(0, 10)
