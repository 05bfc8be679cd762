"""replay: a run's program once more, on a fork: what was recorded is served, what is live is
called, effects go by the ledger."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from stores import Store

import holdfast
from holdfast import (
    ApprovalPendingError,
    Client,
    EffectBlockedError,
    NotRecordedError,
    SyncClient,
    UsageError,
)
from holdfast.client import replay


class Agent:
    """A program that plans, looks things up, pays, and sums up. What is really called is counted."""

    def __init__(self) -> None:
        self.called: Counter[str] = Counter()
        self.plan = ["a", "b"]

    def ask(self, prompt: str) -> list[str]:
        self.called["plan"] += 1
        return list(self.plan)

    def look_up(self, item: str) -> str:
        self.called["look up"] += 1
        return item.upper()

    def pay(self, to: str) -> str:
        self.called["pay"] += 1
        return f"receipt for {to}"

    def sum_up(self, found: list[str]) -> str:
        self.called["sum up"] += 1
        return "+".join(found)

    def __call__(self, run: Any) -> str:
        plan = run.step("plan", self.ask, run.state["prompt"])
        found = [run.step("look up", self.look_up, item) for item in plan]
        run.effect("pay", self.pay, to=run.state["payee"])
        run.state["answer"] = run.step("sum up", self.sum_up, found)
        return run.state["answer"]


@pytest.fixture
def agent(client: SyncClient) -> Agent:
    """One that has run, in session `s`."""
    program = Agent()
    with client.run("s", agent_id="buyer", state={"prompt": "what?", "payee": "bob"}) as run:
        program(run)
    program.called.clear()
    return program


def sources(report: Any) -> list[tuple[str, str]]:
    return [(step.name, step.source) for step in report.steps]


def test_what_was_recorded_is_served(client: SyncClient, agent: Agent) -> None:
    before = client.tree("s")
    report = client.replay("s", agent, name="again")
    assert report.ok
    assert report.result == "A+B"
    assert not agent.called
    assert {source for _, source in sources(report)} == {"recorded"}
    assert [step.result for step in report.steps] == [["a", "b"], "A", "B", "receipt for bob", "A+B"]
    assert client.latest(session_id="again").execution_state["answer"] == "A+B"
    assert client.latest(session_id="again").checkpoint_id == report.checkpoint_id
    assert client.session("s").head.checkpoint_id == before.heads["s"]
    assert "5 recorded; ended" in report.text()
    # The fork has the records: going on from there calls nothing, either.
    with client.run("again", agent_id="buyer") as run:
        agent(run)
    assert not agent.called


def test_what_was_not_recorded_is_not_called(client: SyncClient, agent: Agent) -> None:
    def longer(run: Any) -> str:
        return agent(run) + run.step("more", agent.look_up, "c")

    report = client.replay("s", longer)
    assert isinstance(report.error, NotRecordedError)
    assert sources(report)[-1] == ("more", "blocked")
    assert not agent.called
    report = client.replay("s", longer, steps={"more": "live"})
    assert (report.result, agent.called) == ("A+BC", {"look up": 1})


def test_live_steps_are_called_and_effects_follow_the_ledger(client: SyncClient, agent: Agent) -> None:
    agent.plan = ["a", "x"]
    report = client.replay("s", agent, mode="live")
    assert isinstance(report.error, EffectBlockedError)
    assert agent.called == {"plan": 1, "look up": 2}
    assert sources(report) == [("plan", "live"), ("look up", "live"), ("look up", "live"), ("pay", "blocked")]
    assert [step.same for step in report.steps] == [False, True, False, None]
    assert [step.name for step in report.differences] == ["plan", "look up"]
    assert "another result" in report.text()
    assert "+ result[1]: 'x'" in report.text()
    assert report.steps[3].note is not None

    agent.called.clear()
    report = client.replay("s", agent, mode="live", on_repeat="replay")
    assert report.result == "A+X"
    assert agent.called == {"plan": 1, "look up": 2, "sum up": 1}
    assert dict(sources(report))["pay"] == "recorded"
    [effect] = client.effects("s")
    assert effect.attempts == 1


def test_mixed_serves_as_long_as_the_same_is_asked(client: SyncClient, agent: Agent) -> None:
    report = client.replay("s", agent, mode="mixed")
    assert set(dict(sources(report)).values()) == {"recorded"}
    assert not agent.called
    # Another payee: the steps before are asked the same, the payment is another, and what follows is called.
    report = client.replay("s", agent, mode="mixed", set={"payee": "bob", "+note": 1})
    assert not agent.called
    agent.plan = ["z"]
    report = client.replay("s", agent, mode="mixed", set={"prompt": "what else?"}, on_repeat="replay")
    assert report.result == "Z"
    assert agent.called == {"plan": 1, "look up": 1, "sum up": 1}
    assert sources(report) == [("plan", "live"), ("look up", "live"), ("pay", "recorded"), ("sum up", "live")]


def test_mixed_parts_in_the_middle(client: SyncClient, agent: Agent) -> None:
    agent.plan = ["a", "c"]
    report = client.replay("s", agent, mode="mixed", steps={"plan": "live"}, on_repeat="replay")
    assert sources(report) == [
        ("plan", "live"), ("look up", "recorded"), ("look up", "live"), ("pay", "recorded"), ("sum up", "live"),
    ]  # fmt: skip
    assert agent.called == {"plan": 1, "look up": 1, "sum up": 1}
    assert report.result == "A+C"


def test_arguments_that_can_not_be_written_down_are_never_the_same(client: SyncClient) -> None:
    class Thing:
        pass

    called = []

    def program(run: Any) -> None:
        run.step("odd", called.append, Thing())

    with client.run("odd", agent_id="a") as run:
        program(run)
    client.replay("odd", program, mode="mixed")
    assert len(called) == 2
    client.replay("odd", program, mode="recorded")
    assert len(called) == 2


def test_from_a_checkpoint_what_it_has_is_the_past(client: SyncClient, agent: Agent) -> None:
    agent.plan = ["never asked"]
    start = client.resolve("s@{look up}")
    report = client.replay("s", agent, from_="s@{look up}", mode="live", on_repeat="replay")
    assert report.from_id == start
    assert sources(report) == [
        ("plan", "recorded"), ("look up", "recorded"), ("look up", "recorded"), ("pay", "recorded"), ("sum up", "live"),
    ]  # fmt: skip
    assert agent.called == {"sum up": 1}


def test_failures_are_served_too(client: SyncClient) -> None:
    called = []

    def fail() -> None:
        called.append(1)
        raise ValueError("no")

    def program(run: Any) -> str:
        try:
            run.step("try", fail)
        except ValueError as error:
            return f"caught {error}"
        return "?"

    with client.run("f", agent_id="a") as run:
        program(run)
    report = client.replay("f", program)
    assert (report.result, len(called), report.steps[0].failed) == ("caught no", 1, True)


def test_tasks_and_subagents(client: SyncClient) -> None:
    called: Counter[str] = Counter()

    def work(what: str) -> str:
        called[what] += 1
        return what.upper()

    def program(run: Any) -> list[str]:
        done = [run.step(f"edit {task.id}", work, task.id) for task in run.tasks("files", ["a", "b", "c"])]
        with run.subagent("reviewer", prompt="look") as reviewer:
            reviewer.result = reviewer.step("review", work, "all")
        return [*done, reviewer.result]

    with client.run("t", agent_id="a") as run:
        program(run)
    called.clear()
    # From the checkpoint at b on, a is completed already.
    for from_, expected in ((None, ["A", "B", "C", "ALL"]), ("t@{edit b}", ["B", "C", "ALL"])):
        report = client.replay("t", program, from_=from_)
        assert report.ok, report.error
        assert report.result == expected
        assert not called
        assert client.latest(session_id=report.session_id).tasks == client.latest(session_id="t").tasks
    report = client.replay("t", program, steps={"review": "live"})
    assert called == {"all": 1}
    with client.run(report.session_id, agent_id="a") as run:
        assert [trace.result for trace in run.traces] == ["ALL"]


def test_an_effect_that_fails_live_is_live(client: SyncClient, agent: Agent) -> None:
    def refuse(to: str) -> str:
        raise ConnectionError("gone")

    def program(run: Any) -> None:
        run.effect("mail", refuse, to="ann")

    report = client.replay("s", program, mode="live")
    assert isinstance(report.error, ConnectionError)
    assert sources(report) == [("mail", "live")]
    [effect] = client.effects("s", in_doubt=True)
    assert effect.tool == "mail"


def test_an_effect_that_waits_for_approval_is_blocked(client: SyncClient, agent: Agent) -> None:
    def program(run: Any) -> None:
        run.effect("wire", agent.pay, to="ann", approve="finance")

    report = client.replay("s", program, mode="live", name="again")
    assert isinstance(report.error, ApprovalPendingError)
    assert sources(report) == [("wire", "blocked")]
    assert not agent.called
    [approval] = client.approvals()
    client.decide(approval.approval_id, "approve", by="ann")
    with client.run("again", agent_id="buyer") as run:
        program(run)
    assert agent.called == {"pay": 1}


def test_what_the_program_raises_is_in_the_report(client: SyncClient, agent: Agent) -> None:
    def program(run: Any) -> None:
        run.step("plan", agent.ask, run.state["prompt"])
        run.step("look up", "no function", 1)

    report = client.replay("s", program)
    assert isinstance(report.error, UsageError)
    assert not report
    assert sources(report) == [("plan", "recorded")]


def test_a_registered_program(client: SyncClient, agent: Agent) -> None:
    with client.run("other", agent_id="registered", state={"prompt": "what?", "payee": "eve"}) as run:
        agent(run)
    with pytest.raises(UsageError, match=r"@holdfast.program\('registered'\)"):
        client.replay("other")
    try:
        holdfast.program("registered")(agent)
        assert client.replay("other").result == "A+B"
    finally:
        del replay._programs["registered"]


def test_with_files(client: SyncClient, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()

    def write(directory: str, text: str) -> None:
        (Path(directory) / "out").write_text(text)

    def program(run: Any, where: Path = project) -> None:
        run.step("first", write, str(where), "one")
        run.step("second", write, str(where), "two")

    with client.run("w", agent_id="a", workspace=project) as run:
        program(run)
    copy = tmp_path / "copy"
    report = client.replay(
        "w", lambda run: program(run, copy), from_="w@{first}", mode="live", workspace=copy, name="again"
    )
    assert report.ok, report.error
    assert sources(report) == [("first", "recorded"), ("second", "live")]
    assert (copy / "out").read_text() == "two"
    assert client.read_file("again", "out") == b"two"


def test_what_can_not_be_replayed(client: SyncClient, agent: Agent) -> None:
    client.save("x", session_id="plain")
    with pytest.raises(UsageError, match="saved by no run"):
        client.replay("plain", agent)
    with pytest.raises(UsageError, match="another tree"):
        client.replay("s", agent, from_="plain")
    for wrong in ({"mode": "quick"}, {"steps": {"plan": "mixed"}}, {"steps": "plan"}, {"on_repeat": "never"}):
        with pytest.raises(UsageError):
            client.replay("s", agent, **wrong)
    with pytest.raises(UsageError, match="no program"):
        client.replay("s", 5)

    async def awaits(run: Any) -> None: ...

    with pytest.raises(UsageError, match="is async"):
        client.replay("s", awaits)
    assert [session.session_id for session in client.sessions()] == ["plain", "s"]


def test_awaited(disk_store: Store) -> None:
    called: Counter[str] = Counter()

    async def ask(prompt: str) -> str:
        called["ask"] += 1
        return prompt.upper()

    async def program(run: Any) -> list[str]:
        return list(await asyncio.gather(*(run.step(f"ask {one}", ask, one) for one in "abc")))

    async def main() -> None:
        async with Client.open(disk_store.url) as client:
            async with client.run("s", agent_id="a") as run:
                await program(run)
            report = await client.replay("s", program)
            assert report.result == ["A", "B", "C"]
            assert called == {"ask": 3}
            report = await client.replay("s", program, steps={"ask b": "live"})
            assert called == {"ask": 4}
            assert {step.name: step.source for step in report.steps} == {
                "ask a": "recorded", "ask b": "live", "ask c": "recorded",
            }  # fmt: skip

    asyncio.run(main())
