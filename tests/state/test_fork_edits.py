"""fork(ref, set=…): another value in the same act, several ways at once, and a directory for each."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import attrs
import pytest
from stores import Store

from holdfast import Client, ConflictError, SyncClient, UsageError
from holdfast.codec.registry import TypeRegistry


def conversation(count: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"{number} " + "words " * 60} for number in range(count)]


@pytest.fixture
def source(client: SyncClient) -> str:
    client.save("a", session_id="s", execution_state={"messages": conversation(40), "budget": 1})
    return client.save(
        "a",
        session_id="s",
        execution_state={"messages": conversation(41), "budget": 1, "plan": ["search", "answer"]},
        context={"user": "ann"},
        step_name="plan",
        cost=3,
    )


def test_the_first_checkpoint_has_the_edit(client: SyncClient, source: str) -> None:
    edits = {"messages.-1.content": "another question", "/plan/0": "ask", ("budget",): Decimal("1.50")}
    report = client.fork(source, "what-if", set=edits)
    made, before = client.restore(report.checkpoint_id), client.restore(source)
    assert made.execution_state["messages"][-1] == {"role": "user", "content": "another question"}
    assert made.execution_state["messages"][:-1] == before.execution_state["messages"][:-1]
    assert made.execution_state["plan"] == ["ask", "answer"]
    assert made.execution_state["budget"] == Decimal("1.50")
    assert (made.parent_id, made.step_index, made.agent_context) == (source, before.step_index, {"user": "ann"})
    assert dict(made.metadata) == {"cost": 3}
    assert client.latest(session_id="what-if").checkpoint_id == report.checkpoint_id
    assert client.latest(session_id="s").execution_state == before.execution_state
    assert len(client.timeline(session_id="what-if")) == 1
    assert client.verify().ok


def test_both_lines_go_on(client: SyncClient, source: str) -> None:
    client.fork(source, "what-if", set={"messages.3.content": "changed"})
    for session in ("s", "what-if"):
        for number in range(3):
            client.save("a", session_id=session, append={"messages": [f"{session} {number}"]}, execution_state={})
    ends = [client.latest(session_id=session).execution_state["messages"] for session in ("s", "what-if")]
    assert ends[0] == [*conversation(41), "s 0", "s 1", "s 2"]
    assert ends[1][3]["content"] == "changed"
    assert ends[1][-3:] == ["what-if 0", "what-if 1", "what-if 2"]
    client.gc()
    assert client.verify().ok
    assert [client.latest(session_id=session).execution_state["messages"] for session in ("s", "what-if")] == ends


def test_what_is_shared_is_not_written_again(store: Store) -> None:
    client, recorder = store.recorded()
    id_ = client.save("a", session_id="s", execution_state={"messages": conversation(2000)})
    recorder.commits.clear()
    client.fork(id_, set={"messages.1000.content": "changed"})
    [commit] = [one for one in recorder.commits if one.record]
    assert sum(len(run.data) for run in commit.segments) < 1000
    assert not commit.blobs


def test_the_context_and_references(client: SyncClient, source: str) -> None:
    report = client.fork("s@", set={"agent_context.user": "bob", "execution_state.budget": 9})
    made = client.restore(report.checkpoint_id)
    assert (made.agent_context, made.execution_state["budget"]) == ({"user": "bob"}, 9)
    assert client.fork("s@-").source_id == client.get(source).parent_id
    unnamed = client.fork(source)
    assert client.fork(unnamed.session_id).source_id == unnamed.checkpoint_id


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("mesages.0", "the nearest is 'messages'"),
        ("plan.7", "a list of 2"),
        ("plan.first", "a list of 2"),
        ("budget.x", "a int"),
        ("nothing", "'+nothing' adds the last part"),
        ("+nothing.at.all", "no 'nothing'"),
        ("plan..0", "is no path"),
        ("", "is no path"),
        (7, "is no path"),
    ],
)
def test_a_path_that_leads_nowhere(client: SyncClient, source: str, path: object, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("+", r"\+").replace("(", r"\(")):
        client.fork(source, "never", set={path: 1})
    assert client.session("never") is None


def test_new_places_are_asked_for(client: SyncClient, source: str) -> None:
    report = client.fork(source, set={"+hint": "be careful", "plan.-": "check"})
    state = client.restore(report.checkpoint_id).execution_state
    assert (state["hint"], state["plan"]) == ("be careful", ["search", "answer", "check"])


def test_several_ways_at_once(client: SyncClient, source: str) -> None:
    reports = client.fork(source, "try", set=[{"budget": 1}, {"budget": 2, "messages.0.content": "x"}, {}])
    assert [report.session_id for report in reports] == ["try-1", "try-2", "try-3"]
    states = [client.latest(session_id=report.session_id).execution_state for report in reports]
    assert [state["budget"] for state in states] == [1, 2, 1]
    assert states[1]["messages"][0]["content"] == "x"
    assert states[2] == client.restore(source).execution_state
    tree = client.tree("s")
    assert {"s", "try-1", "try-2", "try-3"} <= tree.heads.keys()
    assert client.verify().ok


def test_all_of_them_or_none(client: SyncClient, source: str) -> None:
    client.save("a", session_id="taken")
    with pytest.raises(ConflictError, match="'taken' exists"):
        client.fork(source, ["new", "taken"], set=[{"budget": 5}, {"budget": 6}])
    assert client.session("new") is None
    with pytest.raises(UsageError, match="one for each of the 2"):
        client.fork(source, ["a", "b", "c"], set=[{}, {}])
    for wrong in ("plan", [], [1], 5):
        with pytest.raises(UsageError, match="set is"):
            client.fork(source, set=wrong)


def test_a_repetition_is_safe(client: SyncClient, source: str) -> None:
    given = client.fork(source).checkpoint_id[:-4] + "0000"
    first = client.fork(source, "once", set={"budget": 7}, new_id=given)
    again = client.fork(source, "once", set={"budget": 7}, new_id=given)
    assert first.checkpoint_id == again.checkpoint_id == given
    with pytest.raises(ConflictError, match="something else"):
        client.fork(source, "once", set={"budget": 8}, new_id=given)


def test_awaited(disk_store: Store) -> None:
    async def forked() -> list[int]:
        async with Client.open(disk_store.url) as client:
            id_ = await client.save("a", session_id="s", execution_state={"n": 0})
            reports = await client.fork(id_, ["a", "b"], set=[{"n": 1}, {"n": 2}])
            return [(await client.restore(report.checkpoint_id)).execution_state["n"] for report in reports]

    assert asyncio.run(forked()) == [1, 2]


@dataclass
class Invoice:
    number: str
    lines: list[str]


def test_objects_and_exact_types(store: Store) -> None:
    types = TypeRegistry()
    types.register(Invoice)
    client = store.client(types=types)
    state = {"invoice": Invoice("7", ["a", "b"]), "pair": (1, 2), 7: {"due": datetime(2026, 1, 1, tzinfo=UTC)}}
    id_ = client.save("a", session_id="s", execution_state=state)
    report = client.fork(
        id_,
        set={"invoice.lines.1": "c", "pair.0": "one", "7.due": datetime(2027, 1, 1, tzinfo=UTC)},
    )
    made = client.restore(report.checkpoint_id).execution_state
    assert made == {
        "invoice": Invoice("7", ["a", "c"]),
        "pair": ("one", 2),
        7: {"due": datetime(2027, 1, 1, tzinfo=UTC)},
    }
    with pytest.raises(UsageError, match="the nearest is 'number'"):
        client.fork(id_, set={"invoice.numbers": "8"})


@attrs.frozen
class Address:
    town: str
    lines: list[str]


def test_fields_of_an_attrs_object(memory_store: Store) -> None:
    types = TypeRegistry()
    types.register(Address)
    client = memory_store.client(types=types)
    id_ = client.save("a", session_id="s", execution_state={"to": Address("Kiel", ["a", "b"])})
    report = client.fork(id_, set={"to.town": "Bonn", "to.lines.1": "c"})
    assert client.restore(report.checkpoint_id).execution_state == {"to": Address("Bonn", ["a", "c"])}
    assert client.restore(id_).execution_state == {"to": Address("Kiel", ["a", "b"])}
    with pytest.raises(UsageError, match="the nearest is 'town'"):
        client.fork(id_, set={"to.tow": "Bonn"})


class TestDirectories:
    @pytest.fixture
    def with_files(self, client: SyncClient, tmp_path: Path) -> str:
        project = tmp_path / "project"
        (project / "src").mkdir(parents=True)
        (project / "src" / "main.py").write_text("one\n")
        id_ = client.save("a", session_id="s", execution_state={"n": 1}, workspace=project)
        (project / "src" / "main.py").write_text("two\n")
        client.save("a", session_id="s", execution_state={"n": 2}, workspace=project)
        return id_

    def test_of_its_own(self, client: SyncClient, with_files: str, tmp_path: Path) -> None:
        report = client.fork(with_files, "fork", set={"n": 5}, workspace=tmp_path / "other")
        assert report.directory == tmp_path / "other"
        assert (tmp_path / "other" / "src" / "main.py").read_text() == "one\n"
        assert (tmp_path / "project" / "src" / "main.py").read_text() == "two\n"
        assert client.latest(session_id="fork").execution_state == {"n": 5}

    def test_one_for_each(self, client: SyncClient, with_files: str, tmp_path: Path) -> None:
        reports = client.fork("s", "way", set=[{"n": 1}, {"n": 2}], workspace=tmp_path / "way")
        for number, report in enumerate(reports, 1):
            assert report.directory == tmp_path / f"way-{number}"
            assert (report.directory / "src" / "main.py").read_text() == "two\n"

    def test_none_is_left_if_a_fork_fails(self, client: SyncClient, with_files: str, tmp_path: Path) -> None:
        client.save("a", session_id="way-2")
        with pytest.raises(ConflictError):
            client.fork(with_files, "way", set=[{"n": 1}, {"n": 2}], workspace=tmp_path / "way")
        (tmp_path / "busy-2").mkdir()
        (tmp_path / "busy-2" / "mine").touch()
        with pytest.raises(UsageError, match="is there already"):
            client.fork(with_files, set=[{"n": 1}, {"n": 2}], workspace=tmp_path / "busy")
        assert not [*tmp_path.glob("way*"), *tmp_path.glob("busy-1*"), *tmp_path.glob(".*holdfast*")]
        assert (tmp_path / "busy-2" / "mine").exists()

    def test_beside_a_workspace(self, client: SyncClient, with_files: str, tmp_path: Path) -> None:
        workspace = client.workspace(tmp_path / "project")
        forked = workspace.fork(with_files, tmp_path / "other", session_id="fork", set={"n": 5})
        assert (forked.directory / "src" / "main.py").read_text() == "one\n"
        assert client.latest(session_id="fork").execution_state == {"n": 5}
