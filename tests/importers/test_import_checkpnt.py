"""A checkpnt database is taken over: what it holds, where it stands, and once only."""

import asyncio
import os
import time
from datetime import UTC, datetime, timedelta, timezone

import checkpnt
import pytest
from checkpnt_sources import AGENT, Filler, Source
from stores import messages

from holdfast import CorruptError, Framework, StoreError, SyncClient

MOMENT = datetime(2026, 3, 1, 12, 30, 15, 250, tzinfo=UTC)


def as_packed(value):
    """A state as checkpnt packs it: datetimes become text."""
    if isinstance(value, dict):
        return {key: as_packed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_packed(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value


def test_every_field_is_kept(client, source):
    made = {}

    async def fill(their: Filler) -> None:
        made["first"] = await their.save("run", {"n": 1}, framework=checkpnt.Framework.LANGGRAPH, step_name="read")
        made["second"] = await their.save(
            "run",
            {"n": 2, "raw": b"\0\1", "pi": 3.5, "none": None, "deep": [{"a": [1]}]},
            parent_id=made["first"],
            context={"invoice": "INV-1"},
            step_index=7,
            step_name="decide",
            ttl_seconds=3600,
            tenant="a name that is reserved here",
            tag={"v": [1]},
        )
        made["handed"] = await their.client.handoff(made["second"], "approver", schema="invoice-2")

    source.fill(fill)
    report = client.import_checkpnt(source.path)
    assert (report.imported, report.already, report.expired, report.recovered) == (3, 0, 0, 0)
    assert (report.sessions, report.skipped, report.warnings, report.ok) == (("run",), (), (), True)
    for id_, said in source.payloads().items():
        got = client.restore(id_)
        assert got.created_at.isoformat() == said["created_at"]
        for name in (
            "checkpoint_id", "agent_id", "session_id", "parent_id", "step_index", "step_name", "execution_state",
            "agent_context", "metadata", "ttl_seconds", "handoff_target", "handoff_schema",
        ):  # fmt: skip
            assert getattr(got, name) == said[name], name
    assert client.restore(made["first"]).framework is Framework.LANGGRAPH
    assert client.latest(session_id="run").checkpoint_id == made["handed"]
    assert [entry.checkpoint_id for entry in client.timeline(agent_id="approver", session_id="run")] == [made["handed"]]
    assert client.verify().ok


@pytest.mark.slow
def test_a_thousand_checkpoints_with_rows_that_checkpnt_itself_can_not_restore(sqlite_store, source):
    lost = []

    async def fill(their: Filler) -> None:
        for session in range(10):
            talk, parent = [], None
            for step in range(100):
                talk.append({"role": "user", "content": f"{session} {step} " * 5, "sent": "2026-01-01T00:00:00"})
                state = {"messages": list(talk), "step": step}
                if step % 10 == 3:
                    state["due"] = MOMENT + timedelta(hours=step)
                if step % 10 == 6:
                    state["scores"] = {1: "one", 2: {3: "three"}}
                if step % 10 == 9:
                    state["seen"] = {
                        step: [{"at": MOMENT}, {"at": MOMENT.replace(tzinfo=timezone(timedelta(hours=-3)))}]
                    }
                parent = await their.save(f"s{session}", state, parent_id=parent, step_index=step)
                if step % 10 in (3, 6, 9):
                    lost.append(parent)
        assert not any([await their.restores(id_) for id_ in lost])

    source.fill(fill)
    client = sqlite_store.client()
    report = client.import_checkpnt(source.path)
    assert (report.imported, report.recovered, report.skipped, len(report.sessions)) == (1000, 300, (), 10)
    assert len(lost) == 300
    payloads = source.payloads()
    assert len(payloads) == 1000
    for id_, said in payloads.items():
        state = client.restore(id_).execution_state
        assert as_packed(state) == said["execution_state"]  # what the row holds
        assert state == source.states[id_]  # and what it had been before checkpnt packed it: datetimes, int keys
    assert "checkpnt_checksum" not in {key for id_ in lost for key in client.get(id_).metadata}
    again = client.import_checkpnt(source.path)
    assert (again.imported, again.already, again.skipped, again.warnings) == (0, 1000, (), ())


def test_importing_again_does_nothing_and_later_takes_over_what_is_new(client, source):
    async def fill(their: Filler) -> None:
        for n in range(5):
            await their.save("s", {"messages": messages(3 + n)}, step_index=n)

    source.fill(fill)
    assert client.import_checkpnt(source.path).imported == 5
    before = [(entry.checkpoint_id, entry.checksum) for entry in client.timeline(session_id="s")]
    report = client.import_checkpnt(source.path)
    assert (report.imported, report.already, report.sessions) == (0, 5, ())
    assert [(entry.checkpoint_id, entry.checksum) for entry in client.timeline(session_id="s")] == before
    source.fill(fill)
    report = client.import_checkpnt(source.path)
    assert (report.imported, report.already) == (5, 5)
    assert [entry.sequence for entry in client.timeline(session_id="s")] == list(range(10, 0, -1))


def test_an_import_that_was_interrupted_goes_on(store, source):
    async def fill(their: Filler) -> None:
        for n in range(20):
            await their.save(f"s{n % 3}", {"n": n})

    source.fill(fill)
    client, recorder = store.recorded()

    def fail_once(commits):
        if len([commit for commit in recorder.commits if commit.record]) == 11:
            raise StoreError("the disk is gone")

    recorder.before_commit = fail_once
    with pytest.raises(StoreError, match="gone"):
        client.import_checkpnt(source.path)
    report = store.client().import_checkpnt(source.path)
    assert (report.imported, report.already, report.skipped) == (10, 10, ())
    for id_, state in source.states.items():
        assert store.client().restore(id_).execution_state == state
    assert [store.client().session(f"s{n}").saves for n in range(3)] == [7, 7, 6]


def test_forks_within_a_session_and_across_sessions_are_forks_here(client, source):
    made = {}

    async def fill(their: Filler) -> None:
        made["root"] = await their.save("main", {"n": 0})
        made["left"] = await their.save("main", {"n": 1}, parent_id=made["root"])
        made["left2"] = await their.save("main", {"n": 2}, parent_id=made["left"])
        made["right"] = await their.save("main", {"n": 3}, parent_id=made["root"])
        made["other"] = await their.save("what-if", {"n": 4}, parent_id=made["left"])
        made["other2"] = await their.save("what-if", {"n": 5}, parent_id=made["other"])

    source.fill(fill)
    report = client.import_checkpnt(source.path)
    assert (report.imported, report.warnings) == (6, ())
    parents = {entry.checkpoint_id: entry.parent_id for entry in client.tree("main").entries}
    assert parents == {
        made["root"]: None, made["left"]: made["root"], made["left2"]: made["left"], made["right"]: made["root"],
        made["other"]: made["left"], made["other2"]: made["other"],
    }  # fmt: skip
    assert client.latest(session_id="main").checkpoint_id == made["right"]
    assert client.latest(session_id="what-if").checkpoint_id == made["other2"]


def test_rows_without_a_parent_follow_what_their_agent_saved_before(client, source):
    async def fill(their: Filler) -> None:
        for n in range(6):
            await their.save("shared", {"n": n}, agent="ab"[n % 2])

    source.fill(fill)
    made = [*source.states]
    assert client.import_checkpnt(source.path).warnings == ()
    parents = [client.get(id_).parent_id for id_ in made]
    assert parents == [None, made[0], *made[:4]]
    assert client.latest(session_id="shared").checkpoint_id == made[-1]


def test_handoffs_wait_for_the_agent_they_are_addressed_to_unless_it_went_on(client, source):
    made = {}

    async def fill(their: Filler) -> None:
        await their.save("s", {"n": 0}, agent="clerk")
        first = await their.save("s", {"n": 1}, agent="reader")
        made["followed"] = await their.client.handoff(first, "clerk")
        made["next"] = await their.save("s", {"n": 2}, agent="clerk")
        made["waits"] = await their.client.handoff(made["next"], "reader")

    source.fill(fill)
    client.import_checkpnt(source.path)
    assert client.get(made["next"]).parent_id == made["followed"]
    assert [waiting.handoff_id for waiting in client.inbox("reader")] == [made["waits"]]
    assert client.inbox("clerk") == []


def test_parents_that_are_not_there(quick, source):
    made = {}

    async def fill(their: Filler) -> None:
        made["a"] = await their.save("s", {"n": 0})
        made["gone"] = await their.save("s", {"n": 1}, parent_id=made["a"])
        made["b"] = await their.save("s", {"n": 2}, parent_id=made["gone"])
        made["odd"] = await their.save("s", {"n": 3}, parent_id="never was")
        made["far"] = await their.save("other", {"n": 4})
        made["cross"] = await their.save("other", {"n": 5}, parent_id=made["a"])
        await their.client.expire(made["gone"])

    source.fill(fill)
    report = quick.import_checkpnt(source.path)
    assert (report.imported, report.skipped) == (5, ())
    assert {remark.checkpoint_id for remark in report.warnings} == {made["b"], made["odd"], made["cross"]}
    for name, parent in {"b": "a", "odd": "b", "cross": "far"}.items():
        assert quick.get(made[name]).parent_id == made[parent]
    assert quick.get(made["b"]).metadata == {"checkpnt_parent_id": made["gone"]}
    assert quick.get(made["odd"]).metadata == {"checkpnt_parent_id": "never was"}
    assert quick.import_checkpnt(source.path).already == 5


def test_children_of_a_row_that_can_not_be_read_follow_its_parent(quick, source):
    made = []

    async def fill(their: Filler) -> None:
        for n in range(4):
            made.append(await their.save("s", {"n": n}, parent_id=made[-1] if made else None))

    source.fill(fill)
    for id_ in made[1:3]:
        source.change("UPDATE checkpoints SET payload = x'c1' WHERE checkpoint_id = ?", id_)
    report = quick.import_checkpnt(source.path)
    assert [(remark.where, remark.checkpoint_id) for remark in report.skipped] == [
        ("row 2", made[1]),
        ("row 3", made[2]),
    ]
    assert quick.get(made[3]).parent_id == made[0]
    assert quick.get(made[3]).metadata == {"checkpnt_parent_id": made[2]}


def test_rows_that_are_their_own_ancestors_end(quick, source):
    async def fill(their: Filler) -> None:
        for n in range(3):
            await their.save("s", {"n": n})

    source.fill(fill)
    made = [*source.states]
    for child, parent in ((0, 1), (1, 0), (2, 2)):
        source.change("UPDATE checkpoints SET parent_id = ? WHERE checkpoint_id = ?", made[parent], made[child])
    report = quick.import_checkpnt(source.path)
    assert (report.imported, report.skipped) == (3, ())
    assert quick.verify().ok


def test_parents_come_first_whatever_the_clocks_said(client, source):
    made = []

    async def fill(their: Filler) -> None:
        for n in range(4):
            made.append(await their.save("s", {"n": n}, parent_id=made[-1] if made else None))

    source.fill(fill)
    for n, id_ in enumerate(made):
        source.change("UPDATE checkpoints SET created_at_ms = ? WHERE checkpoint_id = ?", 1_800_000_000_000 - n, id_)
    client.import_checkpnt(source.path)
    assert [client.get(id_).parent_id for id_ in made] == [None, *made[:3]]
    # Where the session stands is what checkpnt's `latest` says: the newest date.
    assert client.latest(session_id="s").checkpoint_id == made[0]
    assert client.import_checkpnt(source.path).already == 4


def test_ids_that_are_no_uuids_lead_to_ids_that_follow_from_them(client, source):
    async def fill(their: Filler) -> None:
        await their.save("s", {"n": 0})
        await their.save("s", {"n": 1})

    source.fill(fill)
    theirs = [*source.payloads()]
    for old, new in zip(theirs, ("step one", theirs[1].upper()), strict=True):
        source.change_payload(old, lambda payload, new=new: payload.update(checkpoint_id=new))
        source.change("UPDATE checkpoints SET checkpoint_id = ? WHERE checkpoint_id = ?", new, old)
    source.change("UPDATE checkpoints SET parent_id = 'step one' WHERE rowid = 2")
    source.change_payload(theirs[1].upper(), lambda payload: payload.update(parent_id="step one"))
    assert client.import_checkpnt(source.path).imported == 2
    second, first = client.timeline(session_id="s")
    assert (first.metadata["checkpnt_id"], second.metadata["checkpnt_id"]) == ("step one", theirs[1].upper())
    assert second.parent_id == first.checkpoint_id
    report = client.import_checkpnt(source.path)
    assert (report.imported, report.already, report.warnings) == (0, 2, ())


def test_what_has_expired_is_left_out_and_counted(client, source, clock):
    made = {}

    async def fill(their: Filler) -> None:
        made["short"] = await their.save("s", {"n": 0}, ttl_seconds=60)
        made["long"] = await their.save("s", {"n": 1}, ttl_seconds=10_000, parent_id=made["short"])
        made["never"] = await their.save("s", {"n": 2}, ttl_seconds=0)

    source.fill(fill)
    clock.us = int(time.time() * 1_000_000) + 120_000_000
    clock.rules(client)
    report = client.import_checkpnt(source.path)
    assert (report.imported, report.expired, report.skipped) == (2, 1, ())
    assert client.restore(made["long"]).ttl_seconds == 10_000
    clock.forward(10_000)
    assert client.get(made["never"]).ttl_seconds is None
    assert [entry.checkpoint_id for entry in client.timeline(session_id="s")] == [made["never"]]
    report = client.import_checkpnt(source.path)
    assert (report.imported, report.expired, report.already) == (0, 2, 1)


def test_a_session_that_has_gone_on_here_is_not_taken_back(client, source):
    async def fill(their: Filler) -> None:
        await their.save("s", {"n": 1})
        await their.save("t", {"n": 1})

    source.fill(fill)
    client.import_checkpnt(source.path)
    head = client.save(agent_id=AGENT, session_id="s", execution_state={"n": "ours"})
    source.fill(fill)
    report = client.import_checkpnt(source.path)
    assert (report.imported, report.already, report.ok) == (1, 2, False)
    [skipped] = report.skipped
    assert "'s'" in skipped.message
    assert head in skipped.message
    assert client.latest(session_id="s").checkpoint_id == head
    assert client.session("t").saves == 2


def test_an_id_that_is_taken_is_a_conflict_and_nothing_is_touched(quick, source):
    async def fill(their: Filler) -> None:
        await their.save("s", {"n": 1})

    source.fill(fill)
    [id_] = source.states
    quick.save(agent_id="a", session_id="mine", execution_state={"n": 2}, checkpoint_id=id_)
    report = quick.import_checkpnt(source.path)
    assert (report.imported, len(report.skipped)) == (0, 1)
    assert quick.restore(id_).execution_state == {"n": 2}


def test_what_was_expired_here_stays_so(client, source):
    made = []

    async def fill(their: Filler) -> None:
        made.append(await their.save("s", {"n": 0}))
        made.append(await their.save("s", {"n": 1}, parent_id=made[0]))

    source.fill(fill)
    client.import_checkpnt(source.path)
    client.expire(made[1])

    async def go_on(their: Filler) -> None:
        made.append(await their.save("s", {"n": 2}, parent_id=made[1]))

    source.fill(go_on)
    report = client.import_checkpnt(source.path)
    assert (report.imported, report.already, report.skipped) == (1, 2, ())
    assert [entry.checkpoint_id for entry in client.timeline(session_id="s")] == [made[2], made[0]]


def test_a_dry_run_says_what_would_be_and_saves_nothing(client, source):
    async def fill(their: Filler) -> None:
        await their.save("s", {"n": 1})
        deep = []
        for _ in range(300):
            deep = [deep]
        await their.save("s", {"deep": deep})

    source.fill(fill)
    tried = client.import_checkpnt(source.path, dry_run=True)
    assert client.sessions() == []
    done = client.import_checkpnt(source.path)
    assert (tried.imported, tried.sessions, tried.skipped) == (done.imported, done.sessions, done.skipped)
    assert (done.imported, len(done.skipped)) == (1, 1)
    assert "levels deep" in done.skipped[0].message


def test_the_async_client_imports_too(store, source):
    async def fill(their: Filler) -> None:
        await their.save("s", {"n": 1})

    source.fill(fill)

    async def run():
        async with store.async_client() as client:
            report = await client.import_checkpnt(source.path)
            return report, (await client.latest(session_id="s")).execution_state

    report, state = asyncio.run(run())
    assert (report.imported, state) == (1, {"n": 1})


def test_an_import_of_many_sessions_is_the_same_on_every_backend(tmp_path, source: Source):
    async def fill(their: Filler) -> None:
        for n in range(30):
            await their.save(f"s{n % 4}", {"messages": messages(n)}, step_index=n)

    source.fill(fill)
    checksums = []
    for open_client in (
        SyncClient.memory,
        lambda: SyncClient.sqlite(tmp_path / "a.db"),
        lambda: SyncClient.files(tmp_path / "b"),
    ):
        with open_client() as client:
            client.import_checkpnt(source.path)
            checksums.append([entry.checksum for n in range(4) for entry in client.timeline(session_id=f"s{n}")])
    assert checksums[0] == checksums[1] == checksums[2]


@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_what_is_beside_the_database_is_no_link_and_no_fifo(quick, source, tmp_path, ending, kind):
    async def fill(their: Filler) -> None:
        await their.save("s", {"n": 1})

    source.fill(fill)
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine" * 100)
    beside = source.path.with_name(source.path.name + ending)
    if kind == "link":
        beside.symlink_to(outside)
    else:
        os.mkfifo(beside)
    with pytest.raises(CorruptError, match="no regular file"):
        quick.import_checkpnt(source.path)
    assert outside.read_bytes() == b"mine" * 100
