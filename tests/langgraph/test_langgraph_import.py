"""Threads of LangGraph's own savers, brought over: real graphs that ran on these, and go on with HoldfastSaver."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

import ormsgpack
import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages
from langgraph.types import Command, Send, interrupt
from langgraph_models import Mood, Note, Plan
from langgraph_savers import config
from paths import SUPPORT
from servers.schemas import drop_schemas, schema_name

from holdfast import SyncClient
from holdfast.errors import CheckpointNotFoundError, UsageError
from holdfast.langgraph import HoldfastSaver, import_postgres, import_sqlite

MINE = (Note, Plan, Mood)


class Work(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    plan: Plan
    notes: Annotated[list[Any], lambda old, new: [*old, *new]]


class Delta(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer, snapshot_frequency=4)]


def working_graph(saver: Any) -> Any:
    """Has messages, classes of its own, a fan-out, a subgraph with a memory of its own, and stops to ask."""
    inside = StateGraph(Work)
    inside.add_node(
        "write", lambda state: {"messages": [AIMessage("written inside", id=f"in{len(state['messages'])}")]}
    )
    inside.add_edge(START, "write")

    builder = StateGraph(Work)
    builder.add_node("plan", lambda state: {"plan": Plan(goal="g", steps=[Note("first")]), "notes": [Mood.GLAD]})
    builder.add_node("branch", lambda part: {"notes": [Note(part["name"])]})
    builder.add_node("inside", inside.compile(checkpointer=True))
    builder.add_node("ask", lambda state: {"messages": [AIMessage(f"heard {interrupt('go on?')}", id="heard")]})
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", lambda _: [Send("branch", {"name": name}) for name in "ab"], ["branch"])
    builder.add_edge("branch", "inside")
    builder.add_edge("inside", "ask")
    builder.add_edge("ask", END)
    return builder.compile(checkpointer=saver)


def delta_graph(saver: Any) -> Any:
    builder = StateGraph(Delta)
    builder.add_node("answer", lambda state: {"messages": [AIMessage("a", id=f"a{len(state['messages'])}")]})
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


class Theirs:
    """The store of an official saver, and how it is imported."""

    def __init__(self, open_: Callable[[], Any], bring: Callable[..., Any]) -> None:
        self.open = open_
        self.bring = bring

    @contextmanager
    def filled(self) -> Iterator[Any]:
        """With threads in it; the saver, to compare with."""
        with self.open() as saver:
            saver.setup()
            graph = working_graph(saver)
            for thread in ("one", "two/3"):
                for turn in range(2):
                    graph.invoke({"messages": [HumanMessage(f"{turn} " + "x" * 900, id=f"h{turn}")]}, config(thread))
            graph.invoke(Command(resume="yes"), config("two/3"))
            delta = delta_graph(saver)
            for turn in range(7):
                delta.invoke({"messages": [HumanMessage("d", id=f"d{turn}")]}, config("delta"))
            yield saver


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.servers)])
def theirs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Theirs]:
    if request.param == "sqlite":
        file = tmp_path / "theirs.db"
        yield Theirs(
            lambda: SqliteSaver.from_conn_string(str(file)), lambda client, **more: import_sqlite(client, file, **more)
        )
        return
    import psycopg
    from langgraph.checkpoint.postgres import PostgresSaver

    dsn, schema = request.getfixturevalue("postgres_dsn"), schema_name(tmp_path)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    within = f"{dsn}{'&' if '?' in dsn else '?'}options=-csearch_path%3D{schema}"
    yield Theirs(
        lambda: PostgresSaver.from_conn_string(within), lambda client, **more: import_postgres(client, within, **more)
    )
    drop_schemas(dsn)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[SyncClient]:
    with SyncClient.sqlite(tmp_path / "ours.db", durability="fast") as opened:
        yield opened


def everything(saver: Any) -> list[Any]:
    """All that a saver has, threads and namespaces included, in an order that does not depend on it."""
    found = sorted(saver.list(None), key=lambda one: (*map(str, one.config["configurable"].values()),))
    return [(one.config, one.parent_config, dict(one.metadata), one.checkpoint, one.pending_writes) for one in found]


def snapshots(graph: Any, thread: str) -> list[Any]:
    return list(graph.get_state_history(config(thread)))


def test_graphs_go_on_from_what_was_imported(theirs: Theirs, client: SyncClient) -> None:
    with theirs.filled() as official:
        steps: list[tuple[int, int]] = []
        report = theirs.bring(client, allow=MINE, progress=lambda done, total: steps.append((done, total)))
        ours = HoldfastSaver(client, allow=MINE)
        kept = everything(official)
        assert report.ok
        assert report.imported == len(kept)
        assert steps == [(number + 1, len(kept)) for number in range(len(kept))]
        assert everything(ours) == kept
        assert len({one[0]["configurable"]["checkpoint_ns"] for one in kept}) > 1
        for thread, make in (("one", working_graph), ("two/3", working_graph), ("delta", delta_graph)):
            assert snapshots(make(ours), thread) == snapshots(make(official), thread)
        asked = working_graph(ours).get_state(config("one"))
        assert asked.next == ("ask",)
        assert [one.value for one in asked.interrupts] == ["go on?"]
        resumed = [working_graph(saver).invoke(Command(resume="yes"), config("one")) for saver in (ours, official)]
        assert resumed[0] == resumed[1]
        assert resumed[0]["messages"][-1].content == "heard yes"
        added = {"messages": [HumanMessage("more", id="more")]}
        went_on = [delta_graph(saver).invoke(added, config("delta")) for saver in (ours, official)]
        assert went_on[0] == went_on[1]
        assert len(went_on[0]["messages"]) == 16
    assert client.verify().ok


def test_importing_again_does_nothing(theirs: Theirs, client: SyncClient) -> None:
    with theirs.filled():
        first = theirs.bring(client, allow=MINE)
        before = everything(HoldfastSaver(client, allow=MINE)), client.stats()
        again = theirs.bring(client, allow=MINE)
        assert (again.imported, again.already, again.sessions) == (0, first.imported, ())
        assert (everything(HoldfastSaver(client, allow=MINE)), client.stats()) == before


def test_an_import_that_was_interrupted_is_repeated(theirs: Theirs, client: SyncClient) -> None:
    with theirs.filled() as official:

        def interrupted(done: int, total: int) -> None:
            if done == total // 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            theirs.bring(client, allow=MINE, progress=interrupted)
        report = theirs.bring(client, allow=MINE)
        assert report.already > 0
        assert everything(HoldfastSaver(client, allow=MINE)) == everything(official)


def test_what_a_thread_has_done_here_since_is_left_alone(theirs: Theirs, client: SyncClient) -> None:
    with theirs.filled() as official:
        theirs.bring(client, allow=MINE)
        ours = HoldfastSaver(client, allow=MINE)
        working_graph(ours).invoke(Command(resume="yes"), config("one"))
        before = everything(ours)
        working_graph(official).invoke(Command(resume="no"), config("two/3"))
        assert theirs.bring(client, allow=MINE).ok
        after = everything(ours)
        assert [one for one in after if one[0]["configurable"]["thread_id"] == "one"] == [
            one for one in before if one[0]["configurable"]["thread_id"] == "one"
        ]


def test_nothing_is_saved_to_try_it_out(theirs: Theirs, client: SyncClient) -> None:
    with theirs.filled() as official:
        report = theirs.bring(client, allow=MINE, dry_run=True)
        assert (report.dry_run, report.imported) == (True, len(everything(official)))
        assert client.sessions() == []


def test_classes_that_were_not_allowed_are_named(theirs: Theirs, client: SyncClient) -> None:
    with theirs.filled() as official:
        report = theirs.bring(client)
        assert not report.ok
        assert {one.where for one in report.skipped} >= {"thread 'one'", "thread 'two/3'"}
        assert any("--allow langgraph_models:Plan" in one.message for one in report.skipped)
        # What needs none of them is here, and the rest comes once they are allowed.
        assert snapshots(delta_graph(HoldfastSaver(client)), "delta") == snapshots(delta_graph(official), "delta")
        assert theirs.bring(client, allow=MINE).ok
        assert everything(HoldfastSaver(client, allow=MINE)) == everything(official)


def test_the_database_stays_as_it_is(tmp_path: Path, client: SyncClient) -> None:
    directory = tmp_path / "alone"
    directory.mkdir()
    file = directory / "theirs.db"
    with SqliteSaver.from_conn_string(str(file)) as saver:
        delta_graph(saver).invoke({"messages": [HumanMessage("d")]}, config())
    before = {one.name: one.read_bytes() for one in directory.iterdir()}
    assert import_sqlite(client, file).imported == 3
    assert {one.name: one.read_bytes() for one in directory.iterdir()} == before


def forge(file: Path, kind: str, value: bytes) -> None:
    """Puts a value into the newest checkpoint of a database, and into its writes."""
    with sqlite3.connect(file) as connection:
        newest = "(SELECT max(checkpoint_id) FROM checkpoints)"
        connection.execute(
            f"UPDATE checkpoints SET type = ?, checkpoint = ? WHERE checkpoint_id = {newest}", (kind, value)
        )
    connection.close()


@pytest.mark.parametrize("code", range(9))
def test_what_a_forged_row_names_is_not_executed(tmp_path: Path, client: SyncClient, code: int) -> None:
    file, marker = tmp_path / "theirs.db", tmp_path / "executed"
    with SqliteSaver.from_conn_string(str(file)) as saver:
        delta_graph(saver).invoke({"messages": [HumanMessage("d")]}, config())
    given: Any = f"touch {marker}"
    argument = {0: given, 1: [given], 2: {"command": given}}.get(code, given)
    called = ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(["os", "system", argument, "__call__"])))
    forge(file, "msgpack", called)
    report = import_sqlite(client, file)
    assert not marker.exists()
    assert (report.imported, len(report.skipped)) == (2, 1)
    assert report.skipped[0].where == "thread 't'"


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("pickle", b"cposix\nsystem\n(S'exit 1'\ntR.", "executes nothing"),
        ("msgpack+aes", b"\0\1", "perhaps encrypted"),
        ("msgpack", b"\xc1", "MessagePack can't be read"),
        ("msgpack", b"\x01", "not a map"),
        ("json", b'{"lc": 2, "type": "constructor", "id": ["os", "system"], "args": ["exit 1"]}', "--allow os:system"),
        ("json", b'{"lc": 1, "type": "constructor", "id": ["langchain", "llms", "X"], "kwargs": {}}', "no message"),
        ("json", b"{", "JSON can't be read"),
    ],
)
def test_what_can_not_be_read_is_reported(
    tmp_path: Path, client: SyncClient, kind: str, value: bytes, reason: str
) -> None:
    file = tmp_path / "theirs.db"
    with SqliteSaver.from_conn_string(str(file)) as saver:
        delta_graph(saver).invoke({"messages": [HumanMessage("d")]}, config())
    forge(file, kind, value)
    [skipped] = import_sqlite(client, file).skipped
    assert reason in skipped.message


def test_old_checkpoints_in_json_are_read(tmp_path: Path, client: SyncClient) -> None:
    file = tmp_path / "theirs.db"
    with SqliteSaver.from_conn_string(str(file)) as saver:
        delta_graph(saver).invoke({"messages": [HumanMessage("d")]}, config())
        newest = saver.get_tuple(config())
    assert newest is not None
    old = (
        b'{"v": 1, "id": "%s", "ts": "2024-05-01T00:00:00+00:00", "channel_versions": {"messages": 2}, '
        b'"versions_seen": {}, '
        b'"channel_values": {"messages": [{"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", '
        b'"HumanMessage"], "kwargs": {"content": "hi", "type": "human"}}], "at": {"lc": 2, "type": "constructor", '
        b'"id": ["datetime", "timedelta"], "args": [1, 2, 3]}}}' % newest.checkpoint["id"].encode()
    )
    forge(file, "json", old)
    assert import_sqlite(client, file).ok
    found = HoldfastSaver(client).get_tuple(config())
    assert found is not None
    assert found.checkpoint["channel_values"]["messages"] == [HumanMessage("hi")]
    assert found.checkpoint["channel_values"]["at"].days == 1
    assert found.checkpoint == {**found.checkpoint, **JsonPlusSerializer().loads_typed(("json", old))}


def test_a_file_that_is_none_of_theirs_is_refused(tmp_path: Path, client: SyncClient) -> None:
    with pytest.raises(CheckpointNotFoundError, match="no such file"):
        import_sqlite(client, tmp_path / "nothing.db")
    other = tmp_path / "other.db"
    sqlite3.connect(other).execute("CREATE TABLE checkpoints (thread_id)").connection.close()
    with pytest.raises(UsageError, match="is no database of LangGraph's SqliteSaver"):
        import_sqlite(client, other)
    (tmp_path / "text.db").write_text("no database at all, but longer than a header would be" * 20)
    with pytest.raises(UsageError, match="no SQLite database"):
        import_sqlite(client, tmp_path / "text.db")


@pytest.mark.servers
def test_a_database_without_their_tables_is_refused(postgres_dsn: str, client: SyncClient) -> None:
    with pytest.raises(UsageError, match="no database of LangGraph's PostgresSaver"):
        import_postgres(client, postgres_dsn)


@pytest.mark.slow
def test_the_command_line_brings_threads_over(tmp_path: Path) -> None:
    file, here = tmp_path / "theirs.db", SUPPORT
    with Theirs(lambda: SqliteSaver.from_conn_string(str(file)), import_sqlite).filled() as official:
        kept = everything(official)
    command = [
        sys.executable,
        "-m",
        "holdfast",
        "import",
        "langgraph-sqlite",
        str(file),
        "--store",
        str(tmp_path / "o.db"),
    ]
    for cls in MINE:
        command += ["--allow", f"langgraph_models:{cls.__name__}"]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"imported {len(kept)} checkpoints of ")
    with HoldfastSaver.from_sqlite(tmp_path / "o.db", allow=MINE) as ours:
        assert everything(ours) == kept
