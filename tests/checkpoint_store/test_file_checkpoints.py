"""FileCheckpoints: one state per session as plain JSON. The first half: each known defect of a
predecessor's file store, shown not to be one here."""

import asyncio
import inspect
import json
import stat
import threading
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from examples import examples

from holdfast.checkpoint_store.json_files import FileCheckpoints, SyncFileCheckpoints
from holdfast.checkpoint_store.protocol import CheckpointMetadata, CheckpointStore
from holdfast.errors import StoreError, UnsupportedValueError, UsageError

ODD_IDS = [
    "", ".", "..", "../x", "a/b", "/etc", "a\0b", "%", "%41", "A", "a", "ä", "a\u0308", "\ud800", "\ud83d\ude00",
    "run 1", "~", "-", "con", ".lock", "checkpoint.json", "x" * 10_000, "x" * 9_999, "\udfff" * 5_000, "*?<>|\"'\\\n",
]  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> SyncFileCheckpoints:
    return SyncFileCheckpoints(tmp_path / "checkpoints")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def files_under(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


# -- the predecessor's defects -----------------------------------------------------------------------------------------


def test_an_id_with_dots_and_slashes_stays_inside(store, tmp_path):
    outside = files_under(tmp_path)
    store.save("../escaped", {"step": 1})
    assert {path.split("/")[0] for path in files_under(tmp_path) - outside} == {"checkpoints"}
    assert store.load("../escaped") == {"step": 1}


def test_deleting_an_id_with_dots_removes_nothing_outside(store, tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "checkpoint.json").write_text("{}")
    store.save("x", {"step": 1})
    store.delete("../victim")
    assert (victim / "checkpoint.json").read_text() == "{}"


def test_deleting_the_empty_id_deletes_only_that_session(store):
    store.save("", {"step": 1})
    store.save("other", {"step": 2})
    store.delete("")
    assert (store.load(""), store.load("other"), store.list()) == (None, {"step": 2}, ["other"])
    store.delete("")
    assert store.list() == ["other"]


def test_an_id_with_a_slash_is_listed_as_it_is(store):
    store.save("user/1", {"step": 1})
    assert store.list() == ["user/1"]


def test_of_saves_that_were_not_awaited_the_one_started_last_stays(tmp_path):
    async def race(number: int) -> None:
        store = FileCheckpoints(tmp_path)
        session = f"race-{number}"
        older = asyncio.create_task(store.save(session, {"step": 1, "text": "x" * 200_000}))
        newer = asyncio.create_task(store.save(session, {"step": 2}))
        await asyncio.gather(older, newer)
        assert await store.load(session) == {"step": 2}
        metadata = await store.load_metadata(session)
        assert metadata is not None
        assert metadata.step == 2

    async def races() -> None:
        await asyncio.gather(*map(race, range(examples(100, least=25))))

    asyncio.run(races())


def test_a_save_that_comes_late_does_not_undo_a_later_delete_or_save(store):
    late = store._files.begin_save("s", {"step": 1})
    store.save("s", {"step": 2})
    late()
    assert store.load("s") == {"step": 2}
    late = store._files.begin_save("s", {"step": 3})
    store.delete("s")
    late()
    assert store.load("s") is None


@pytest.mark.slow
def test_a_reader_never_sees_half_a_save_or_none(store):
    store.save("s", {"step": 0, "text": "0" * 100_000})
    stop, problems = threading.Event(), []

    def read() -> None:
        seen = 0
        while not stop.is_set():
            state, metadata = store.load("s"), store.load_metadata("s")
            if state is None or metadata is None or set(state["text"]) != {str(state["step"] % 10)}:
                problems.append((state, metadata))
            elif state["step"] < seen or metadata.step < state["step"]:
                problems.append(f"went back from {seen}: {state['step']}, {metadata.step}")
            else:
                seen = state["step"]

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for step in range(1, 40):
        store.save("s", {"step": step, "text": str(step % 10) * 100_000})
    stop.set()
    for reader in readers:
        reader.join()
    assert problems == []


def test_a_directory_without_a_checkpoint_is_not_listed(store, tmp_path):
    store.save("real", {})
    (tmp_path / "checkpoints" / "empty").mkdir()
    (tmp_path / "checkpoints" / "file").write_text("")
    orphan = tmp_path / "checkpoints" / "orphan"
    orphan.mkdir()
    (orphan / "metadata.json").write_bytes((tmp_path / "checkpoints/real/metadata.json").read_bytes())
    assert store.list() == ["real"]
    assert store.load_metadata("orphan") is None


def test_a_path_that_is_a_file_is_an_error_and_not_an_empty_store(tmp_path):
    (tmp_path / "file").write_text("")
    store = SyncFileCheckpoints(tmp_path / "file")
    for call in (lambda: store.load("s"), lambda: store.load_metadata("s"), store.list, lambda: store.save("s", {})):
        with pytest.raises(StoreError):
            call()


@pytest.mark.parametrize(
    ("state", "path"),
    [
        ({"at": datetime(2026, 1, 1, tzinfo=UTC)}, "state.at"),
        ({"nan": float("nan")}, "state.nan"),
        ({"a": [1, {"b": float("inf")}]}, "state.a[1].b"),
        ({"t": (1, 2)}, "state.t"),
        ({"s": {1}}, "state.s"),
        ({"b": b"x"}, "state.b"),
        ({"d": Decimal(1)}, "state.d"),
        ({"keys": {1: "one"}}, "state.keys"),
        ({"m": {"inner": map(str, [])}}, "state.m.inner"),
        ({"big": 10**5000}, "state.big"),
        ((1, 2), "state"),
    ],
)
def test_what_json_would_change_is_refused_by_path(store, state, path):
    with pytest.raises(UnsupportedValueError, match="as_store") as caught:
        store.save("s", state)
    assert caught.value.path == path
    assert store.list() == []


def test_a_state_that_contains_itself_is_refused(store):
    state: dict[str, object] = {}
    state["self"] = state
    with pytest.raises(UnsupportedValueError, match="contains itself"):
        store.save("s", state)


def test_none_is_no_state(store):
    with pytest.raises(UsageError, match="None"):
        store.save("s", None)


# -- what it keeps -----------------------------------------------------------------------------------------------------


def test_what_was_saved_is_what_is_loaded(store):
    state = {
        "z": 1, "a": [True, None, 2**70, -0.0, 1e-300, "ä\n\0", "\ud800", "\ud83d\ude00", [], {}, {"": ""}],
        "holdfast": 7, "state": {"metadata": 1}, "sha256": "", "deep": [[[[[[1]]]]]],
    }  # fmt: skip
    store.save("s", state)
    loaded = store.load("s")
    assert loaded == state
    assert repr(loaded) == repr(state)


@pytest.mark.parametrize("state", [[], [1], "text", 0, False, 1.5])
def test_any_json_value_may_be_a_state(store, state):
    store.save("s", state)
    loaded = store.load("s")
    assert (loaded, type(loaded)) == (state, type(state))


def test_any_text_is_an_id_of_its_own(store, tmp_path):
    for number, session_id in enumerate(ODD_IDS):
        store.save(session_id, {"step": number})
    assert sorted(store.list()) == sorted(ODD_IDS)
    again = SyncFileCheckpoints(tmp_path / "checkpoints")
    for number, session_id in enumerate(ODD_IDS):
        assert again.load(session_id) == {"step": number}
        metadata = again.load_metadata(session_id)
        assert metadata is not None
        assert (metadata.session_id, metadata.step) == (session_id, number)
    names = [name.lower() for name in names_in(tmp_path / "checkpoints")]
    assert len(names) == len(set(names)) == len(ODD_IDS) + 1, "no two names differ only in case"
    for session_id in ODD_IDS:
        again.delete(session_id)
        assert again.load(session_id) is None
    assert again.list() == []
    assert names_in(tmp_path) == ["checkpoints"]
    assert names_in(tmp_path / "checkpoints") == [".lock"]


def test_an_id_must_be_text(store):
    for call in (store.load, store.load_metadata, store.delete, lambda id_: store.save(id_, {})):
        with pytest.raises(UsageError, match="session_id"):
            call(7)


def test_the_layout_is_two_readable_files_that_only_the_owner_may_read(store, tmp_path):
    store.save("run-001", {"step": 3, "metadata": {"agentId": "writer"}, "text": "ä"})
    folder = tmp_path / "checkpoints" / "run-001"
    assert names_in(folder) == ["checkpoint.json", "metadata.json"]
    metadata = json.loads((folder / "metadata.json").read_text("utf-8"))
    data = json.loads((folder / "checkpoint.json").read_text("utf-8"))
    assert data["state"] == {"step": 3, "metadata": {"agentId": "writer"}, "text": "ä"}
    assert metadata.pop("sha256") != data["sha256"]
    assert metadata == data["metadata"]
    assert (metadata["session_id"], metadata["step"], metadata["agent_id"]) == ("run-001", 3, "writer")
    assert datetime.fromisoformat(metadata["timestamp"]).tzinfo == UTC
    assert metadata["timestamp"].endswith("Z")
    assert '\n  "state": {\n    "step": 3,' in (folder / "checkpoint.json").read_text("utf-8")
    for path in (tmp_path / "checkpoints", folder):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in (folder / "checkpoint.json", folder / "metadata.json", tmp_path / "checkpoints" / ".lock"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_each_save_has_a_new_checkpoint_id_and_load_metadata_reads_it(store):
    store.save("s", {"step": 1})
    first = store.load_metadata("s")
    store.save("s", {"step": 1})
    second = store.load_metadata("s")
    assert isinstance(first, CheckpointMetadata)
    assert isinstance(second, CheckpointMetadata)
    assert first.checkpoint_id < second.checkpoint_id


def test_metadata_is_read_without_the_state(store, tmp_path, monkeypatch):
    store.save("s", {"step": 1})
    monkeypatch.setattr(type(store._files), "_read_data", lambda *_: pytest.fail("the state was read"))
    metadata = store.load_metadata("s")
    assert metadata is not None
    assert metadata.step == 1


def test_what_is_not_there_is_none_and_makes_nothing(store, tmp_path):
    assert (store.load("s"), store.load_metadata("s"), store.list()) == (None, None, [])
    store.delete("s")
    assert store.list() == []


def test_a_state_may_be_changed_as_soon_as_the_save_has_begun(tmp_path):
    async def save_and_change() -> None:
        store = FileCheckpoints(tmp_path)
        state = {"items": [1]}
        task = asyncio.create_task(store.save("s", state))
        await asyncio.sleep(0)
        state["items"].append(2)
        await task
        assert await store.load("s") == {"items": [1]}

    asyncio.run(save_and_change())


def test_a_cancelled_save_is_whole_or_absent_and_later_ones_win(tmp_path):
    async def cancel() -> None:
        store = FileCheckpoints(tmp_path)
        for number in range(20):
            task = asyncio.create_task(store.save("s", {"step": 1, "text": "x" * 100_000}))
            await asyncio.sleep(0.0002 * number)
            task.cancel()
            await store.save("s", {"step": 2})
            await asyncio.gather(task, return_exceptions=True)
            assert await store.load("s") == {"step": 2}

    asyncio.run(cancel())


def test_both_kinds_have_the_same_methods_and_the_protocol():
    assert isinstance(FileCheckpoints("x"), CheckpointStore)
    for name in ("save", "load", "load_metadata", "delete", "list", "__init__"):
        sync, asynchronous = getattr(SyncFileCheckpoints, name), getattr(FileCheckpoints, name)
        assert inspect.signature(sync) == inspect.signature(asynchronous)
        assert inspect.iscoroutinefunction(asynchronous) == (name != "__init__")


def test_the_directory_is_where_it_was_when_the_store_was_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = SyncFileCheckpoints()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.save("s", {})
    assert (tmp_path / ".checkpoints" / "s" / "checkpoint.json").exists()
    assert repr(store) == f"<SyncFileCheckpoints {tmp_path}/.checkpoints>"


# -- directories of a predecessor --------------------------------------------------------------------------------------


def predecessor_save(root: Path, session_id: str, state: object) -> None:
    folder = root / session_id
    folder.mkdir(parents=True)
    (folder / "checkpoint.json").write_text(json.dumps(state, indent=2))
    metadata = {
        "sessionId": session_id, "checkpointId": "8f0c", "timestamp": "2026-01-02T03:04:05.678Z", "step": 4,
        "agentId": "agent-7",
    }  # fmt: skip
    (folder / "metadata.json").write_text(json.dumps(metadata, indent=2))


@pytest.mark.parametrize("session_id", ["my-session", "MySession", "a%2fb", "mit Leerzeichen", "überlauf"])
def test_a_predecessors_directory_can_be_read_and_gone_on_with(store, session_id):
    old = {"version": "1.0.0", "id": "x", "messages": [], "step": 4, "metadata": {}}
    predecessor_save(Path(store._files.root), session_id, old)
    assert store.load(session_id) == old
    assert store.list() == [session_id]
    metadata = store.load_metadata(session_id)
    assert metadata == CheckpointMetadata(
        session_id=session_id, checkpoint_id="8f0c", timestamp="2026-01-02T03:04:05.678Z", step=4, agent_id="agent-7"
    )
    store.save(session_id, {"step": 5})
    assert store.load(session_id) == {"step": 5}
    assert store.list() == [session_id]
    after = store.load_metadata(session_id)
    assert after is not None
    assert after.step == 5
    store.delete(session_id)
    assert (store.load(session_id), store.list()) == (None, [])


def test_a_predecessors_directory_is_not_taken_for_that_of_another_id(store):
    predecessor_save(Path(store._files.root), "a%2fb", {"step": 1})
    assert store.load("a/b") is None
    store.delete("a/b")
    assert store.load("a%2fb") == {"step": 1}


def test_a_predecessors_session_can_be_deleted(store):
    predecessor_save(Path(store._files.root), "Old", {"step": 1})
    store.delete("Old")
    assert store.list() == []
    assert not (Path(store._files.root) / "Old").exists()
