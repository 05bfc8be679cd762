"""What went wrong in the file store of @providerprotocol/agents, done right on every store: one
test for each defect that was observed in it. What takes its place as it was is tested in
`test_file_checkpoints.py`."""

from __future__ import annotations

import asyncio
import math
import threading
from datetime import UTC, datetime

import pytest
from stores import Store, messages, python, python_process
from strategies import same

from holdfast import (
    StoreError,
    SyncClient,
    UnsupportedValueError,
)

pytestmark = pytest.mark.every_store

NASTY = ["../escaped", "..", ".", "", "a/b", "/etc/x", "a\\b", "a:b", "\x00", "a\x00b", "\ud800", "CON", "x" * 10_240,
         " ",
         "-rf", "ü" * 300, "checkpoint.json", "A", "a", "a.", "%2e%2e"]  # fmt: skip


def test_session_ids_are_data_and_cannot_escape(disk_store: Store):
    """There: save('../escaped') wrote outside, delete('../victim') removed what it found there."""
    outside = disk_store.where / "victim"
    outside.mkdir()
    (outside / "checkpoint.json").write_text("mine")
    before = {
        path for path in disk_store.where.rglob("*") if "store" not in path.relative_to(disk_store.where).parts[0]
    }
    client = disk_store.client()
    plain = client.as_store()
    for number, session in enumerate([*NASTY, "../victim"]):
        plain.save(session, {"n": number})
    for number, session in enumerate([*NASTY, "../victim"]):
        assert plain.load(session) == {"n": number}
        assert plain.load_metadata(session).session_id == session
        assert [entry.session_id for entry in client.timeline(session_id=session)] == [session]
    assert sorted(plain.list()) == sorted([*NASTY, "../victim"])
    plain.delete("../victim")
    after = {path for path in disk_store.where.rglob("*") if "store" not in path.relative_to(disk_store.where).parts[0]}
    assert before == after
    assert (outside / "checkpoint.json").read_text() == "mine"
    assert client.verify().ok


def test_other_names_are_data_too(client: SyncClient):
    for name in NASTY:
        saved = client.save(name, session_id="s", step_name=name, app_version=name, note=name)
        handed = client.restore(client.handoff(saved, name + "!", schema=name))
        assert (handed.agent_id, handed.handoff_target, handed.handoff_schema) == (name, name + "!", name)
        assert [entry.agent_id for entry in client.timeline("s", agent_id=name)] == [name, name]


def test_deleting_the_empty_session_deletes_nothing_else(client: SyncClient):
    """There: delete('') wiped the whole store."""
    plain = client.as_store()
    plain.save("s", {"x": 1})
    plain.delete("")
    assert plain.load("s") == {"x": 1}
    plain.save("", {"x": 2})
    plain.delete("")
    assert (plain.load(""), plain.load("s")) == (None, {"x": 1})


def test_an_id_with_a_slash_is_listed_as_it_is(client: SyncClient):
    """There: save('user/1') was listed as 'user'."""
    plain = client.as_store()
    plain.save("user/1", {"x": 1})
    plain.save("user/2", {"x": 2})
    assert sorted(plain.list()) == ["user/1", "user/2"]


def test_saves_that_are_not_awaited_in_turn_all_arrive_whole(store: Store):
    """There: of 200 races, 98 kept the older state and 102 tore it."""

    async def scenario() -> None:
        plain = store.async_client().as_store()
        for round_ in range(10):
            large = asyncio.create_task(plain.save(f"s{round_}", {"step": 1, "m": ["x" * 20_000] * 20}))
            await asyncio.sleep(0)
            await plain.save(f"s{round_}", {"step": 2})
            await large
            loaded, metadata = await plain.load(f"s{round_}"), await plain.load_metadata(f"s{round_}")
            assert loaded in ({"step": 2}, {"step": 1, "m": ["x" * 20_000] * 20})
            assert metadata.step == loaded["step"]

    asyncio.run(scenario())
    client = store.client()
    assert all(len(client.timeline(session_id=f"s{round_}")) == 2 for round_ in range(10))


@pytest.mark.slow
def test_a_reader_never_sees_half_a_save_or_none(disk_store: Store):
    """There: 190 of 194 loads while saving came back as "no checkpoint"."""
    writer, reader = disk_store.client(), disk_store.client()
    writer.as_store().save("s", {"step": 0, "m": ["0" * 1000] * 300})
    done = threading.Event()

    def write() -> None:
        for step in range(1, 25):
            writer.as_store().save("s", {"step": step, "m": [f"{step}" * 1000] * 300})
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    seen = []
    while not done.is_set():
        state = reader.as_store().load("s")
        assert set(state["m"]) == {f"{state['step']}" * 1000}
        seen.append(state["step"])
    thread.join()
    assert seen == sorted(seen)
    assert len(seen) > 1


def test_only_what_has_a_checkpoint_is_listed(disk_store: Store):
    """There: every directory counted as a session."""
    client = disk_store.client()
    client.save("a", session_id="s")
    if disk_store.kind == "files":
        (disk_store.where / "store" / "stray").mkdir()
        (disk_store.where / "store" / "stray.tmp").write_text("")
    assert client.as_store().list() == ["s"]


@pytest.mark.parametrize("kind", ["files", "sqlite"])
def test_a_store_that_cannot_be_read_is_an_error_not_an_empty_one(tmp_path, kind):
    """There: any failure was null, [] or silence."""
    (tmp_path / "file").write_text("not a store")
    where = f"{tmp_path}/file/store"
    with pytest.raises(StoreError, match="file"):
        SyncClient.open(f"sqlite:///{where}" if kind == "sqlite" else f"file://{where}").sessions()


def test_lossy_values_are_kept_or_refused_never_changed(client: SyncClient):
    """There: dates became text, NaN null, maps {}; a BigInt failed."""
    plain = client.as_store()
    state = {"d": datetime(2026, 1, 1, tzinfo=UTC), "nan": math.nan, "m": {1: {2}}, "big": 2**100, "bytes": b"\x00\x01"}
    plain.save("s", state)
    assert same(plain.load("s"), state)
    with pytest.raises(UnsupportedValueError, match=r"execution_state\.f"):
        plain.save("s", {"f": lambda: None})
    assert same(plain.load("s"), state)


# -- races ------------------------------------------------------------------------------------------------------------

RACER = """
import sys
from holdfast import SyncClient
from stores import messages
url, who, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
client = SyncClient.open(url, durability="fast")
print("ready", flush=True)
sys.stdin.readline()
for i in range(count):
    if i % 2:
        saved = client.save(who, session_id="shared", append={"m": [f"{who}{i}".ljust(300)]})
    else:
        state = client.latest(session_id="shared").execution_state
        state["m"].append(f"{who}{i}".ljust(300))
        saved = client.save(who, session_id="shared", execution_state=state)
    print(saved, flush=True)
"""


@pytest.mark.slow
def test_processes_racing_on_one_session_lose_nothing_and_tear_nothing(disk_store: Store):
    client = disk_store.client()
    root = client.save("root", session_id="shared", execution_state={"m": messages(20)})
    racers = [python_process(RACER, disk_store.url, who, "12") for who in "abc"]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    while any(racer.poll() is None for racer in racers):
        state = client.latest(session_id="shared").execution_state
        assert state["m"][:20] == messages(20)
    acknowledged = []
    for racer in racers:
        out, err = racer.communicate(timeout=240)
        assert racer.returncode == 0, err
        acknowledged += out.split()
    line = client.timeline(session_id="shared", limit=1000)
    assert {entry.checkpoint_id for entry in line} == {*acknowledged, root}
    assert [entry.sequence for entry in line] == list(range(37, 0, -1))
    assert [entry.parent_id for entry in line] == [*(entry.checkpoint_id for entry in line[1:]), None]
    for entry in line:
        assert client.restore(entry.checkpoint_id).execution_state["m"][:20] == messages(20)
    assert client.verify().ok


def test_a_second_client_in_a_process_does_not_endanger_the_first(disk_store: Store):
    """A process that opens a store twice must not give up, with the second, what protects the first from others."""
    first = disk_store.client()
    first.save("a", session_id="s", execution_state={"step": 1})
    disk_store.client().close()
    python(
        """
        import sys
        from holdfast import SyncClient
        with SyncClient.open(sys.argv[1]) as client:
            client.save("b", session_id="other")
        """,
        disk_store.url,
    )
    acknowledged = first.save("a", session_id="s", execution_state={"step": 2})
    elsewhere = python(
        """
        import sys
        from holdfast import SyncClient
        print(SyncClient.open(sys.argv[1]).latest(session_id="s").checkpoint_id)
        """,
        disk_store.url,
    )
    assert elsewhere.stdout.strip() == acknowledged
    assert disk_store.client().verify().ok
