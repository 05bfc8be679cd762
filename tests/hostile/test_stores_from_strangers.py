"""A store of files that came with a cloned repository: links, FIFOs, hard links and journals in it
reach nothing outside."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from strangers_clone import HASH, link
from trees_on_disk import tree_of

from holdfast import SyncClient
from holdfast.backends.files import FilesBackend
from holdfast.backends.files.envelope import wrap
from holdfast.cli.main import cli
from holdfast.errors import CorruptError, HoldfastError, UsageError

pytestmark = [
    pytest.mark.slow,  # in sum: many commands on many stores
    pytest.mark.skipif(sys.platform == "win32", reason="the files store needs flock"),
]

READS = (["sessions"], ["timeline", "s"], ["show", "s"], ["status"], ["du"], ["verify"])


@pytest.fixture
def store(clone: Path) -> Path:
    return clone / ".holdfast" / "store"


def put_journal(store: Path, **said: Any) -> None:
    (store / "staged").mkdir(exist_ok=True)
    (store / "staged" / "0").write_text("the stranger's key")
    plan = {"moves": [], "touches": [], "removals": [], **said}
    (store / "journal").write_bytes(wrap("journal", plan))


def move_through_link(store: Path, home: Path) -> None:
    link(store / "blobs" / "ab", home / ".ssh")
    put_journal(store, moves=[["staged/0", "blobs/ab/authorized_keys"]])


def move_by_our_names(store: Path, home: Path) -> None:
    link(store / "blobs" / "ab", home / ".ssh")
    put_journal(store, moves=[["staged/0", f"blobs/ab/{HASH}"]])


def replace_by_our_names(store: Path, home: Path) -> None:
    link(store / "blobs" / "ab", home / "documents")
    put_journal(store, moves=[["staged/0", f"blobs/ab/{HASH}"]])


def remove_by_our_names(store: Path, home: Path) -> None:
    link(store / "rows" / "x", home / "documents")
    put_journal(store, removals=["rows/x/_store/a.row"])


def touch_by_our_names(store: Path, home: Path) -> None:
    link(store / "blobs" / "ab", home / "documents")
    put_journal(store, touches=[[f"blobs/ab/{HASH}", 1]])


def take_from_outside(store: Path, home: Path) -> None:
    put_journal(store, moves=[["staged/0", f"blobs/ab/{HASH}"]])
    link(store / "staged" / "0", home / ".ssh" / "authorized_keys")


def journal_elsewhere(store: Path, home: Path) -> None:
    put_journal(store)
    (store / "journal").rename(home / "journal")
    link(store / "journal", home / "journal")


def content_elsewhere(name: str) -> Callable[[Path, Path], None]:
    def plant(store: Path, home: Path) -> None:
        shutil.move(store / name, home / name)
        link(store / name, home / name)

    plant.__name__ = f"{name}_elsewhere"
    return plant


def link_at(name: str, target: str) -> Callable[[Path, Path], None]:
    def plant(store: Path, home: Path) -> None:
        link(store / name, home / target)

    plant.__name__ = f"{name}_to_{target}"
    return plant


# What is planted, and whether reading, and whether saving, must be refused: what is not on the way is not met.
ATTACKS = [
    (move_through_link, True, True),
    (move_by_our_names, True, True),
    (replace_by_our_names, True, True),
    (remove_by_our_names, True, True),
    (touch_by_our_names, True, True),
    (take_from_outside, True, True),
    (journal_elsewhere, True, True),
    *((content_elsewhere(name), True, True) for name in ("records", "rows", "holdfast.json")),
    *((content_elsewhere(name), False, True) for name in ("sessions", "logs", "order")),
    (link_at("lock", "new file"), True, True),
    (link_at("lock", ".bashrc"), True, True),
    (link_at("journal", ".bashrc"), True, True),
    (link_at("order", ".bashrc"), False, True),
    (link_at("order", "new file"), False, True),
    (link_at("staged", "documents"), False, True),
    (link_at("staged", "new directory"), False, True),
]


@pytest.mark.parametrize(
    ("plant", "refuses_reading", "refuses_saving"), ATTACKS, ids=[one[0].__name__ for one in ATTACKS]
)
def test_links_lead_nowhere(clone, store, home, plant, refuses_reading, refuses_saving):
    plant(store, home)
    before, planted = tree_of(home), tree_of(clone)
    for command in READS:
        result = CliRunner().invoke(cli, command, catch_exceptions=False, prog_name="holdfast")
        assert result.exit_code in (0, 5), result.output
        if command == ["sessions"]:
            assert (result.exit_code == 5) == refuses_reading, result.output
        assert tree_of(home) == before, command
    assert tree_of(clone) == planted  # what reads writes nothing, whatever it meets
    refused: HoldfastError | None = None
    try:
        with SyncClient.files() as client:
            long = [f"{number} " * 200 for number in range(30)]
            client.save("a", session_id="s", execution_state={"step": 9, "text": "y" * 5000, "long": long})
            client.gc()
    except HoldfastError as error:
        refused = error
    assert tree_of(home) == before
    assert isinstance(refused, CorruptError) == refuses_saving, refused
    if refused is not None:
        assert "symbolic link" in str(refused) or "not written by holdfast" in str(refused) or "damaged" in str(refused)


NAMES_OF_OTHERS = [
    "../escaped", "/etc/passwd", "blobs/../../escaped", "rows/../../escaped", "blobs/ab/../../../escaped",
    f"blobs/ab/{HASH}\0", "blobs/ab/", "blobs//" + HASH, f"./blobs/ab/{HASH}", f"blobs/ab/./{HASH}",
    f"blobs/ab/{HASH.upper()}", f"blobs/cd/{HASH}", "blobs/ab/abcd", f"blobs/{HASH}", "blobs", "",
    "holdfast.json", "lock", "journal", "order", "staged/0", "other/ab/x",
    f"records/00/{'0' * 31}.record", f"records/00/{'0' * 32}", f"records/01/{'0' * 32}.record", "records/00/x.record",
    "sessions/s/1.record", "sessions/S/0000000001.record", "sessions/a b/0000000001.record",
    "sessions/%41%/0000000001.record", "sessions/%61/0000000001.record", "sessions/../0000000001.record",
    "sessions/s/00000000001.record", "sessions/s/-000000001.record", "sessions/s/x/0000000001.record",
    "logs/1/0000000000-1.run", "logs/0000000001/0-1.run", "logs/0000000001/0000000000-01.run",
    "logs/0000000001/0000000000-1", "rows/head/_store/a", "rows/head/zz/a.row", "rows/head/AB/a.row", "rows/head/a.row",
    "rows/He/_store/a.row", "rows/head/_store/A.row", "rows/head/_store/.row", "rows/../_store/a.row",
]  # fmt: skip


PLANS_OF_OTHERS: list[dict[str, Any]] = [
    *({"moves": [["staged/0", name]]} for name in NAMES_OF_OTHERS),
    *({"removals": [name]} for name in NAMES_OF_OTHERS),
    *(
        {"moves": [[source, f"blobs/ab/{HASH}"]]}
        for source in ("staged/00", "staged/x", "staged/../lock", "staged/", "staged/0/0", "/etc/passwd", "lock",
                       "staged/journal")
    ),
    {"moves": [["staged/0", f"blobs/ab/{HASH}"]], "removals": [f"blobs/ab/{HASH}"]},
    {"moves": [["staged/0", f"blobs/ab/{HASH}"], ["staged/0", "rows/head/_store/a.row"]]},
    {"touches": [["rows/head/_store/a.row", 1]]},
    *({"touches": [[f"blobs/ab/{HASH}", time]]} for time in (-1, 2**63, 1.5, True, None, "1")),
    {"moves": [["staged/0", f"blobs/ab/{HASH}", "more"]]},
    {"moves": {"staged/0": f"blobs/ab/{HASH}"}},
    {"removals": f"blobs/ab/{HASH}"},
    {"removals": [["blobs", "ab", HASH]]},
    {"order": [1, []]},
    {"order": [1, ["00" * 16]]},
    {"order": [10, ["00" * 16]]},
    {"order": [True, ["00" * 16]]},
    {"order": [4, "00" * 16]},
    {"order": [4, ["00" * 15]]},
    {"links": []},
]  # fmt: skip


@pytest.mark.slow
def test_a_journal_with_names_that_we_do_not_give_is_refused_before_anything_is_done(clone, store, home):
    sound = "rows/head/_store/a.row"  # what would be done first
    for said in PLANS_OF_OTHERS:
        moves = [["staged/1", sound], *said["moves"]] if isinstance(said.get("moves"), list) else said.get("moves", [])
        put_journal(store, **{**said, "moves": moves})
        (store / "staged" / "1").write_text("sound")
        before = tree_of(clone.parent)
        with pytest.raises(CorruptError, match="not written by holdfast"):
            SyncClient.files()
        assert tree_of(clone.parent) == before, said
    assert CliRunner().invoke(cli, ["sessions"]).exit_code == 5


def test_every_name_that_we_give_may_stand_in_a_journal():
    from holdfast.backends.files import layout
    from holdfast.backends.port import STORE, RowKey
    from holdfast.testing.hostile_ids import HOSTILE

    numbers = (0, 1, 7, 9_999_999_999, 10**12)
    for key in [*HOSTILE, b"", b"plain", b"x" * 500]:
        assert all(layout.is_content_path(layout.session_path(key, number)) for number in numbers)
        for tree in (STORE, b"\1" * 16, b"\xff"):
            assert layout.is_content_path(layout.row_path(RowKey("head", key, tree)))
            assert layout.is_content_path(layout.row_path(RowKey("a space/Ü", key, tree)))
    for text in (b"a", b"b"):
        assert layout.is_content_path(layout.blob_path(hashlib.sha256(text).digest()))
        assert layout.is_content_path(layout.record_path(hashlib.md5(text).digest()))
    assert all(layout.is_content_path(layout.run_path(log, first, 3)) for log in numbers for first in numbers)
    assert all(layout.is_staged_path(layout.staged_path(number)) for number in numbers)


# -- FIFOs: whoever opens one waits for somebody at its other end
# -------------------------------------------------------


def record_of(store: Path) -> str:
    return str(next(store.glob("sessions/s/*2.record")).relative_to(store))


@pytest.mark.parametrize(
    "name", ["lock", "journal", "order", "holdfast.json", "staged", "rows", "a record", "staged/0"]
)
def test_a_fifo_makes_nobody_wait(clone, store, home, name):
    if name == "staged/0":
        put_journal(store, moves=[["staged/0", f"blobs/ab/{HASH}"]])
    place = store / (record_of(store) if name == "a record" else name)
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    before = tree_of(clone.parent)
    outcomes: list[object] = []

    def use() -> None:
        outcomes.extend(CliRunner().invoke(cli, command).exit_code for command in READS)
        try:
            with SyncClient.files() as client:
                client.save("a", session_id="s", execution_state={"step": 9}, expect_head=None)
                client.verify()
                client.timeline(session_id="s")
                outcomes.append(list(client.events(after="start", follow=False)))
        except HoldfastError as error:
            outcomes.append(error)

    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert isinstance(outcomes[-1], CorruptError), outcomes
    assert set(outcomes[:-1]) <= {0, 3, 5}, outcomes
    if name not in ("order", "staged", "a record"):
        assert tree_of(clone.parent) == before


# -- files with holes, which have any size and take no room
# ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["journal", "holdfast.json", "a record", "a row"])
def test_a_huge_file_is_not_read(clone, store, home, name):
    place = {"a record": store / record_of(store), "a row": next(store.glob("rows/head/*/*.row"))}.get(
        name, store / name
    )
    with place.open("ab") as file:
        file.truncate(1 << 40)
    for command in READS:
        result = CliRunner().invoke(cli, command, catch_exceptions=False, prog_name="holdfast")
        assert result.exit_code in (0, 5), result.output
    with pytest.raises(CorruptError, match="bytes, where a store has"), SyncClient.files() as client:
        client.save("a", session_id="s", execution_state={"step": 9})
        client.timeline(session_id="s")


# -- hard links: git makes none, but tar and `cp -al` do
# ----------------------------------------------------------------


def contents(root: Path) -> dict[str, tuple[bytes, int]]:
    files = [path for path in root.rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_what_shares_its_files_with_a_store_is_not_written_to(clone, store, home):
    """As after `cp -al store copy`: each file of the copy is one of the store's."""
    copy = home / "copy"
    shutil.copytree(store, copy, copy_function=os.link)
    before = contents(home)
    with SyncClient.files() as client:
        for step in range(3, 6):  # the same text again: its blob is touched
            client.save("a", session_id="s", execution_state={"step": step, "text": "x" * 5000})
            client.save("a", session_id=f"other {step}", execution_state={"text": "x" * 5000})
        client.gc()
        assert len(client.timeline(session_id="s")) == 6
    assert contents(home) == before
    with SyncClient.files(copy) as client:
        assert len(client.timeline(session_id="s")) == 3
        assert client.verify().ok


# -- a store that is found by its default name
# --------------------------------------------------------------------------


@pytest.mark.parametrize("linked", [".holdfast", ".holdfast/store"])
def test_a_link_does_not_decide_which_store_is_used(clone, store, home, linked):
    shutil.move(clone / linked, home / "a store of mine")
    (clone / linked).symlink_to(home / "a store of mine")
    before = tree_of(home)
    for command in (["sessions"], ["tag", "t", "s"]):
        result = CliRunner().invoke(cli, command)
        assert (result.exit_code, "holdfast trust" in result.output) == (1, True), result.output
    with pytest.raises(UsageError, match="is a symbolic link"):
        SyncClient.files()
    assert tree_of(home) == before
    with SyncClient.files(clone / ".holdfast/store") as client:  # who names it may mean a link
        assert len(client.timeline(session_id="s")) == 3


def test_no_store_is_made_through_a_link(clone, home):
    shutil.rmtree(clone / ".holdfast")
    (clone / ".holdfast").symlink_to(home / "documents")
    before = tree_of(home)
    Path("state.json").write_text("{}")
    for command in (["save", "s", "state.json"], ["init"]):
        result = CliRunner().invoke(cli, command)
        assert (result.exit_code, "holdfast trust" in result.output) == (1, True), result.output
    for make in (SyncClient.files, SyncClient.sqlite):
        with pytest.raises(UsageError, match="is a symbolic link"):
            make()
    assert tree_of(home) == before


def test_the_root_that_a_caller_names_may_be_a_link(tmp_path, clone, store):
    (tmp_path / "named").symlink_to(store)
    with SyncClient.files(tmp_path / "named") as client:
        client.save("a", session_id="s", execution_state={"step": 9})
        assert len(client.timeline(session_id="s")) == 4


# -- what is beside a store
# ---------------------------------------------------------------------------------------------


def cache_name(directory: Path) -> str:
    return f"{hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]}.cache"


@pytest.mark.parametrize("how", ["folder", "file", "fifo", "temporary"])
def test_what_is_remembered_of_a_directory_is_not_written_through_links(clone, store, home, how):
    folder = store.with_name("store-workspaces")
    if how == "folder":
        folder.symlink_to(home / "documents")
        (home / "documents" / f"{cache_name(clone)}.999999999").write_text("mine")
    else:
        folder.mkdir()
        place = folder / (cache_name(clone) + (f".{os.getpid()}" if how == "temporary" else ""))
        os.mkfifo(place) if how == "fifo" else place.symlink_to(home / ".bashrc")
    (clone / "a.txt").write_text("one")
    before = tree_of(home)
    with SyncClient.files() as client:
        workspace = client.workspace(clone)
        workspace.snapshot("one")
        (clone / "a.txt").write_text("two")
        workspace.snapshot("two")
        assert [change.status for change in client.workspace(clone).status()] == []
    assert tree_of(home) == before


def test_looking_at_a_directory_removes_nothing_beside_the_store(clone, store):
    with SyncClient.files() as client:
        client.workspace(clone).snapshot("one")
    left = store.with_name("store-workspaces") / f"{cache_name(clone)}.999999999"
    left.write_text("of a process that has ended")
    assert CliRunner().invoke(cli, ["status"]).exit_code == 0
    assert left.exists()


@pytest.mark.parametrize("way", ["client", "client by id", "command", "command by id"])
def test_an_undo_writes_to_no_directory_that_only_the_store_names(clone, store, home, way):
    """A restore that the stranger made in a directory of this name is the newest operation in the log."""
    documents = home / "documents"
    with SyncClient.files() as client:
        workspace = client.workspace(documents)
        first = workspace.snapshot("first").checkpoint_id
        (documents / ".bash_aliases").write_text("the stranger's")
        workspace.snapshot("second")
        workspace.restore(first)
        [operation] = client.operations()
    before = tree_of(documents)
    named = [operation.operation_id] if way.endswith("by id") else []
    if way.startswith("client"):
        with SyncClient.files() as client, pytest.raises(UsageError, match="outside the directory of this store"):
            client.undo(*named)
    else:
        result = CliRunner().invoke(cli, ["undo", "--yes", *named])
        assert result.exit_code == (2 if named else 3), result.output
    assert tree_of(documents) == before
    assert CliRunner().invoke(cli, ["undo", "--yes", "--dir", str(documents)]).exit_code == 0  # the user's own word
    assert (documents / ".bash_aliases").exists()


def test_a_fork_changes_nothing_behind_a_link_that_looks_like_its_own(clone, store, home):
    with SyncClient.files() as client:
        taken = client.workspace(clone).snapshot("one").checkpoint_id
    (home / "documents").chmod(0o755)
    (clone.parent / ".copy.holdfast-0000").symlink_to(home / "documents")
    before = tree_of(home / "documents")
    result = CliRunner().invoke(cli, ["fork", taken, "../copy"])
    assert result.exit_code == 0, result.output
    assert tree_of(home / "documents") == before
    made = [path.relative_to(home).parts for path in home.rglob("*") if ".config" in path.parts and path.is_file()]
    assert [parts[:-1] for parts in made] == [(".config", "holdfast", "forks")]  # the user's own record of the fork


def test_the_journal_of_a_restore_names_no_other_files():
    from holdfast.backends.port import Row
    from holdfast.format.rows import restore_journal

    journal = restore_journal.RestoreJournal(
        token="../../x", state="running", safety_id="a", safety="b", target="c", target_id=None, scope="files",
        only=None,
        untouched=(), known=(), session_id=None, from_id=None, started_at_us=0,
        process=restore_journal.Process("", 0, 0),
    )  # fmt: skip
    key = restore_journal.key(b"/somewhere", 1)
    with pytest.raises(CorruptError, match="token"):
        restore_journal.unpack(key, Row(journal.pack(key), 1))


def test_git_is_told_of_a_store_without_following_a_link(clone, home):
    from holdfast.backends.local_path import make_directory

    ignore = clone / ".holdfast" / ".gitignore"
    ignore.unlink()
    ignore.symlink_to(home / "new file")
    before = tree_of(home)
    event = {
        "hook_event_name": "PreToolUse",
        "cwd": str(clone),
        "session_id": "c",
        "tool_name": "Bash",
        "tool_input": {},
    }
    CliRunner().invoke(cli, ["hook", "claude-code", "--serve"], input=json.dumps(event))
    make_directory(clone / ".holdfast" / "store")
    assert tree_of(home) == before


# -- the attack as it was found, by a process of its own
# ----------------------------------------------------------------


def test_looking_into_a_clone_leaves_the_users_files_alone(clone, store, home):
    move_through_link(store, home)
    link(store / "staged", home / "documents")
    link(store / "lock", home / "made by holdfast")
    before = tree_of(home)
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "sessions"],
        cwd=clone,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 5, done.stderr
    assert "is a symbolic link" in done.stderr
    assert tree_of(home) == before


def test_a_component_that_is_swapped_for_a_link_is_not_followed(clone, store, home, monkeypatch):
    """Between looking at a folder and using it: whoever prepares a commit has made the folder of its files before."""
    backend = FilesBackend(store)
    plain_move = type(backend._disk).move

    def swapping(self, path, target):
        if target.startswith("rows/"):
            folder = store / "rows"
            if not folder.is_symlink():
                folder.rename(store.with_name("rows"))
                folder.symlink_to(home / "documents")
        plain_move(self, path, target)

    monkeypatch.setattr(type(backend._disk), "move", swapping)
    before = tree_of(home)
    with SyncClient(backend) as client:
        client.save("a", session_id="s", execution_state={"step": 9})  # committed: it is in the journal
        with pytest.raises(CorruptError, match="symbolic link"):
            client.timeline(session_id="s")
    assert tree_of(home) == before
    (store / "rows").unlink()
    store.with_name("rows").rename(store / "rows")
    monkeypatch.undo()
    with SyncClient.files(store) as client:
        assert len(client.timeline(session_id="s")) == 4
