"""The files backend beyond the contract: damage, opening, names, modes, the layout."""

import errno
import json
import os
import shutil
import stat
import zlib
from pathlib import Path

import pytest
from files_support import Crash, commit, content, crash_after, first_commit, second_commit

from holdfast.backends.files import FilesBackend, open_url
from holdfast.backends.files.disk import Disk
from holdfast.backends.files.file_names import key_of, name_of
from holdfast.backends.port import ABSENT, ANY_VERSION, Commit, Labels, RowKey, RowWrite, SegmentDelete, Span
from holdfast.errors import CorruptError, NewerVersionError, UsageError
from holdfast.testing.harness import OTHER_TREE, TREE, append, hash_bytes, head, record, record_id
from holdfast.testing.hostile_ids import HOSTILE

# -- damage ------------------------------------------------------------------------------------------------------------


def only(where: Path, pattern: str) -> Path:
    (found,) = where.glob(pattern)
    return found


def flipped(path: Path, at: int, bit: int = 0) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1 << bit
    path.write_bytes(raw)


def test_a_flipped_bit_anywhere_in_a_row_is_found(where: Path):
    backend = FilesBackend(where)
    commit(backend, Commit(TREE, rows=[head(b"value", ABSENT)]))
    path = only(where, "rows/head/*/run-001.row")
    good = path.read_bytes()
    for at in range(len(good)):
        for bit in range(8):
            flipped(path, at, bit)
            with pytest.raises(CorruptError):
                backend.rows([RowKey("head", b"run-001", TREE)])
            path.write_bytes(good)
    flipped(path, -1)
    [(key, row)] = backend.scan("head")  # passed on as it is, for its reader to find out: it hides no other row
    assert (key, row.version) == (RowKey("head", b"run-001", TREE), 0)
    assert row.value == path.read_bytes()
    with pytest.raises(CorruptError):
        commit(backend, Commit(TREE, rows=[head(b"other", ANY_VERSION)]))
    path.write_bytes(b"")
    with pytest.raises(CorruptError):
        backend.rows([RowKey("head", b"run-001", TREE)])


def test_a_row_that_was_renamed_or_swapped_is_not_believed(where: Path):
    backend = FilesBackend(where)
    commit(backend, Commit(TREE, rows=[head(b"a", ABSENT, key=b"a"), head(b"b", ABSENT, key=b"b")]))
    a = only(where, "rows/head/*/a.row")
    shutil.copy(a.with_name("b.row"), a)
    with pytest.raises(CorruptError, match="belongs elsewhere"):
        backend.rows([RowKey("head", b"a", TREE)])
    tree = a.parent
    tree.rename(tree.with_name(OTHER_TREE.hex()))
    with pytest.raises(CorruptError, match="belongs elsewhere"):
        backend.rows([RowKey("head", b"b", OTHER_TREE)])


def test_a_record_that_was_swapped_is_not_believed(where: Path):
    backend = FilesBackend(where)
    commit(backend, Commit(TREE, record(1)), Commit(TREE, record(2)))
    one, two = (where / "sessions/run-001" / f"000000000{number}.record" for number in (1, 2))
    shutil.copy(one, where / "other")
    one.unlink()
    one.write_bytes(two.read_bytes())
    with pytest.raises(CorruptError, match="belongs elsewhere"):
        backend.session_records(b"run-001")
    one.write_bytes((where / "other").read_bytes())
    assert [got.sequence for got in backend.session_records(b"run-001")] == [2, 1]


def test_a_damaged_record_reaches_those_who_can_judge_it(where: Path):
    backend = FilesBackend(where)
    commit(backend, Commit(TREE, record(1)), Commit(TREE, record(2)))
    path = only(where, f"records/01/{record_id(1, TREE).hex()}.record")
    flipped(path, -1)
    (found,) = backend.records([record_id(1, TREE)])
    assert found is not None
    assert found.data == b"record 0"  # its content is verified above, where it can be named
    flipped(path, 40)
    with pytest.raises(CorruptError):
        backend.records([record_id(1, TREE)])
    walked = backend.page_records(None, 10)
    assert [got.id for got in walked] == [record_id(1, TREE), record_id(2, TREE)]
    assert walked[0].data == path.read_bytes()


def test_a_damaged_journal_stops_everything_and_says_so(where: Path):
    backend = FilesBackend(where)
    commit(backend, first_commit())
    points = crash_after(backend, 3)
    with pytest.raises(Crash):
        commit(backend, second_commit())
    assert points[-1] == "committed"
    journal = where / "journal"
    good = journal.read_bytes()
    for at in range(0, len(good), 7):
        flipped(journal, at)
        with pytest.raises(CorruptError, match="journal"):
            FilesBackend(where)
        journal.write_bytes(good)
    journal.write_bytes(good[: len(good) // 2])
    with pytest.raises(CorruptError, match="journal"):
        FilesBackend(where)
    journal.write_bytes(good)
    assert [got.data for got in content(where).records.values()] == [b"record 2"]


def test_a_journal_without_its_staged_files_is_refused(where: Path):
    backend = FilesBackend(where)
    crash_after(backend, 3)
    with pytest.raises(Crash):
        commit(backend, first_commit())
    shutil.rmtree(where / "staged")
    with pytest.raises(CorruptError, match="the copy of this store is incomplete"):
        FilesBackend(where)


def test_a_journal_that_was_never_committed_is_ignored(where: Path):
    backend = FilesBackend(where)
    commit(backend, first_commit())
    (where / "staged/journal").write_bytes(b"torn")
    (where / "staged/0").write_bytes(b"left over")
    commit(backend, Commit(TREE, record(2)))
    (where / "staged/journal").write_bytes(b"torn")
    assert len(content(where).records) == 2
    commit(FilesBackend(where), Commit(TREE, record(3)))
    assert list((where / "staged").iterdir()) == []


@pytest.mark.parametrize(
    "plan",
    [
        {"moves": [["staged/0", "../escaped"]], "touches": [], "removals": []},
        {"moves": [["../precious", "blobs/aa/bb"]], "touches": [], "removals": []},
        {"moves": [], "touches": [], "removals": ["rows/../../precious"]},
        {"moves": [], "touches": [], "removals": ["/etc/passwd"]},
        {"moves": [], "touches": [], "removals": ["holdfast.json"]},
        {"moves": [], "touches": [["lock", 0]], "removals": []},
        {"moves": [], "touches": [], "removals": [7]},
        {"moves": [["staged/0"]], "touches": [], "removals": []},
        {},
    ],
)
def test_a_journal_from_a_stranger_reaches_nothing_beyond_the_store(where: Path, plan: dict):
    from holdfast.backends.files.envelope import wrap

    FilesBackend(where).close()
    precious = where.with_name("precious")
    precious.write_text("mine")
    (where / "journal").write_bytes(wrap("journal", plan))
    with pytest.raises(CorruptError, match="not written by holdfast"):
        FilesBackend(where)
    assert precious.read_text() == "mine"
    assert (where / "holdfast.json").exists()


# -- opening -----------------------------------------------------------------------------------------------------------


def test_a_newer_format_is_left_untouched(where: Path):
    where.mkdir()
    (where / "holdfast.json").write_text('{"format": 2, "layout": "files"}')
    with pytest.raises(NewerVersionError, match="format 2"):
        FilesBackend(where)
    assert [path.name for path in where.iterdir()] == ["holdfast.json"]


def test_a_damaged_description_is_corrupt_and_another_layout_is_refused(where: Path):
    FilesBackend(where).close()
    about = where / "holdfast.json"
    assert json.loads(about.read_text()) == {"format": 1, "layout": "files"}
    about.write_text("{")
    with pytest.raises(CorruptError, match=r"holdfast\.json is damaged"):
        FilesBackend(where)
    about.write_text('{"format": 1, "layout": "tape"}')
    with pytest.raises(UsageError, match="'tape'"):
        FilesBackend(where)


def test_a_directory_with_other_things_in_it_is_refused(where: Path):
    where.mkdir()
    (where / ".hidden").touch()
    FilesBackend(where).close()
    shutil.rmtree(where)
    where.mkdir()
    (where / "thesis.tex").touch()
    with pytest.raises(UsageError, match=r"thesis\.tex"):
        FilesBackend(where)
    assert [path.name for path in where.iterdir()] == ["thesis.tex"]


def test_a_store_that_another_process_creates_meanwhile_is_opened(where: Path, monkeypatch: pytest.MonkeyPatch):
    list_names = Disk.names

    def create_store_before_listing(disk: Disk, folder: str) -> list[str]:
        monkeypatch.setattr(Disk, "names", list_names)
        commit(FilesBackend(where), first_commit())
        return list_names(disk, folder)

    monkeypatch.setattr(Disk, "names", create_store_before_listing)
    assert FilesBackend(where).last_change() == 1


def test_an_unknown_durability_is_refused(where: Path):
    with pytest.raises(UsageError, match="'full'"):
        FilesBackend(where, durability="maybe")
    assert not where.exists()


def test_files_are_the_owners_alone(tmp_path: Path):
    where = tmp_path / "made/for/it"
    before = os.umask(0)
    try:
        commit(FilesBackend(where), first_commit())
        for path in [where, *where.rglob("*")]:
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode == (0o700 if path.is_dir() else 0o600), path
    finally:
        os.umask(before)


def test_opening_by_url(tmp_path: Path):
    where = tmp_path / "a b%c/störe"
    backend = open_url(f"file://{tmp_path}/a%20b%25c/st%C3%B6re", durability="fast")
    assert backend.capabilities.location == str(where)
    assert backend.capabilities.durability == "fast"
    assert (where / "holdfast.json").exists()


@pytest.mark.parametrize(
    "url",
    ["file:relative", "file://host/dir", "file://relative", "file:/one/slash", "file://", "/plain/path", "sqlite:///x",
     "file:///a?b", "file:///a#b", "file:///a%00b"],
)  # fmt: skip
def test_a_url_that_is_not_one_of_ours(url: str):
    with pytest.raises(UsageError, match=r"file:///|%3F|NUL"):
        open_url(url)


# -- a directory to look into ------------------------------------------------------------------------------------------


def test_the_layout(where: Path):
    backend = FilesBackend(where)
    labels = Labels("buyer", "custom", 7, "validate", None, 1_700_000_000_000_000, None)
    commit(
        backend,
        Commit(
            TREE,
            record(7)._replace(labels=labels),
            segments=[append(12, 0, b"a", b"b")],
            blobs={hash_bytes(b"one"): b"one"},
            rows=[head(b"7", ABSENT), RowWrite(RowKey("lease", b"Run/1"), b"x", ABSENT)],
        ),
    )
    id_, hash_ = record_id(7, TREE).hex(), hash_bytes(b"one").hex()
    assert sorted(str(path.relative_to(where)) for path in where.rglob("*") if path.is_file()) == sorted(
        [
            "holdfast.json",
            "lock",
            "sessions/run-001/0000000007.record",
            f"records/07/{id_}.record",
            "logs/0000000012/0000000000-2.run",
            f"blobs/{hash_[:2]}/{hash_}",
            f"rows/head/{TREE.hex()}/run-001.row",
            "rows/lease/_store/%52un%2f1.row",
            "order",
        ]
    )
    first, rest = (where / "order").read_bytes()[:20], (where / "order").read_bytes()[20:]
    assert first == record_id(7, TREE) + zlib.crc32((1).to_bytes(8, "big") + record_id(7, TREE)).to_bytes(4, "big")
    assert rest == bytes(3980)
    lines = (where / "sessions/run-001/0000000007.record").read_bytes().split(b"\n", 2)
    assert lines[0].startswith(b"holdfast record 1 crc32 ")
    about = json.loads(lines[1])
    assert (about["agent_id"], about["step_name"], about["session"], about["id"], about["position"]) == (
        "buyer",
        "validate",
        "run-001",
        id_,
        1,
    )
    assert lines[2] == b"record 7"
    by_id = where / f"records/07/{id_}.record"
    assert by_id.samefile(where / "sessions/run-001/0000000007.record")


def test_a_replaced_record_keeps_its_labels_and_both_names(where: Path):
    backend = FilesBackend(where)
    labels = Labels("buyer", "custom", 7, None, record_id(0, TREE), 1, None)
    commit(backend, Commit(TREE, record(1)._replace(labels=labels)))
    commit(backend, Commit(TREE, record(1, b"dead")._replace(replaces=b"record 1")))
    raw = (where / "sessions/run-001/0000000001.record").read_bytes()
    assert json.loads(raw.split(b"\n")[1])["agent_id"] == "buyer"
    assert only(where, "records/*/*.record").read_bytes() == raw


def test_without_hard_links_a_record_is_copied(where: Path, monkeypatch):
    def link(source, target, **descriptors):
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", link)
    backend = FilesBackend(where)
    commit(backend, first_commit())
    assert [got.data for got in backend.session_records(b"run-001")] == [b"record 1"]
    commit(backend, second_commit())
    assert [got.data for got in backend.session_records(b"run-001")] == [b"record 2"]


def test_nothing_is_left_of_what_was_deleted(where: Path):
    backend = FilesBackend(where)
    commit(backend, first_commit())
    commit(
        backend,
        Commit(
            TREE,
            rows=[head(None, 1), RowWrite(RowKey("lease", b"a", TREE), None, 1)],
            delete_records=[(record_id(1, TREE), b"record 1")],
            delete_segments=[SegmentDelete(1, 0, 1), SegmentDelete(2, 0, 1)],
            delete_blobs={hash_bytes(b"one"): 2**62, hash_bytes(b"two"): 2**62},
        ),
    )
    assert sorted(path.name for path in where.rglob("*")) == sorted(
        ["holdfast.json", "lock", "order", "staged", "records", "sessions", "logs", "blobs", "rows"]
    )


def test_a_copy_is_a_store(where: Path):
    backend = FilesBackend(where)
    commit(backend, first_commit())
    commit(backend, second_commit())
    shutil.copytree(where, where.with_name("copy"))
    assert not content(where).differences(content(where.with_name("copy")))


def test_what_is_not_ours_is_passed_over(where: Path):
    backend = FilesBackend(where)
    commit(backend, first_commit())
    before = content(where)
    for folder in [where / name for name in ("records", "sessions", "logs", "blobs", "rows", "rows/head")]:
        (folder / ".DS_Store").touch()
        for inner in [path for path in folder.iterdir() if path.is_dir()]:
            (inner / ".DS_Store").touch()
            (inner / "1~").touch()
    assert not before.differences(content(where))
    assert backend.find_ids("01") == [record_id(1, TREE)]
    assert backend.segments([Span(1, 0, 9)])[0][0].data == b"a"


@pytest.mark.parametrize("key", HOSTILE, ids=lambda key: repr(key[:20]))
def test_a_name_is_safe_and_comes_back(key: bytes):
    name = name_of(key)
    assert name
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-%~")
    assert len(name) <= 130
    assert key_of(name) == key or ("~" in name and key_of(name) is None)


def test_names_do_not_collide_even_without_case():
    assert len({name_of(key).casefold() for key in HOSTILE}) == len(HOSTILE)
