"""Replays of resumable sessions: `client.replay` with a program that takes turns in the run it is given."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import Client, Effect, SyncClient, UsageError
from holdfast.adapters.base import session as sessions
from holdfast.adapters.base.session import ResumableSession, TurnEnd
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.backends.bridge.step import run_inline
from holdfast.errors import NotRecordedError
from holdfast.model.framework import Framework

TOOLS = {"look": "read", "pay": Effect("irreversible", key="invoice")}
PLAN = ("look", "note", "pay", "fail")


class Office:
    """An agent with one model call before its tools and one after them; it notes what is really called."""

    def __init__(self, answer: str = "plan") -> None:
        self.answer = answer
        self.called: list[str] = []

    def _call(self, name: str) -> str:
        self.called.append(name)
        if name == "fail":
            raise ValueError("no paper")
        return f"{name} ok"

    async def body(self, turn: FrameworkTurn) -> TurnEnd:
        async def ask() -> str:
            return f"{self.answer} {self._call('model')}"

        async def use(name: str) -> str:
            async def call(**_: Any) -> str:
                return self._call(name)

            arguments = {"invoice": "7"} if name == "pay" else {}
            try:
                return str(await turn.call_tool(name, arguments, call, call_id=f"call-{name}"))
            except ValueError as error:
                return f"failed: {error}"

        first = await turn.call_model("clerk", ["go"], ask)
        results = [await use(name) for name in PLAN]
        last = await turn.call_model("clerk", ["go", first, *results], ask)
        said = [first, *results, last]
        return TurnEnd(said, said, {}, {"messages": said})

    def take(self, session_id: str, given: str, client: Any = None) -> Any:
        session = ResumableSession(Framework.CUSTOM, session_id=session_id, store=client, tools=TOOLS)
        return session.take_turn("run", given, None, self.body, list)


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """An office that has taken two turns of the session "o"."""
    sessions._finished.clear()
    made = Office()

    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            for given in ("first", "second"):
                await made.take("o", given, client)

    asyncio.run(main())
    assert made.called == ["model", *PLAN, "model", "model", "look", "note", "fail", "model"]  # pays once
    made.called.clear()
    return made


def replay(path: Path, office: Office, *, given: tuple[str, ...] = ("first", "second"), **options: Any) -> Any:
    async def program(run: Any) -> Any:
        return [await office.take(run.session_id, item) for item in given]

    async def main() -> Any:
        async with Client.sqlite(path / "a.db") as client:
            report = await client.replay("o", program, **options)
            head = await client.latest(report.session_id)
            return report, None if head is None else head.execution_state

    return asyncio.run(main())


def test_a_replay_serves_what_was_recorded_and_calls_nothing(tmp_path: Path, office: Office):
    report, state = replay(tmp_path, office)
    assert (report.error, office.called) == (None, [])
    assert report.counts()["recorded"] == len(report.steps) == 11  # the payment is one effect
    assert report.result[0][0] == "plan model ok"
    assert report.result[0][4] == "failed: no paper"
    assert len(state["messages"]) == 12
    assert state["turn"] is None


@pytest.mark.parametrize("tool", ["look", "note"])  # a read, and a tool without a declaration
def test_a_chosen_tool_is_called(tmp_path: Path, office: Office, tool: str):
    report, _ = replay(tmp_path, office, steps={tool: "live"})
    assert (report.error, office.called) == (None, [tool, tool])
    assert [(step.source, step.same) for step in report.steps if step.name == tool] == [("live", True)] * 2


def test_a_chosen_model_is_called_and_what_follows_another_answer_has_no_record(tmp_path: Path, office: Office):
    other = Office("another")
    report, _ = replay(tmp_path, other, steps={"clerk": "live"})
    assert report.error is None
    assert other.called == ["model"] * 4
    assert [step.source for step in report.steps].count("live") == 4
    assert next(step for step in report.steps if step.name == "clerk").edits


def test_a_mixed_replay_calls_from_the_first_difference_on_and_pays_no_invoice_again(tmp_path: Path, office: Office):
    report, state = replay(tmp_path, office, given=("first", "another"), mode="mixed")
    assert report.error is None
    assert office.called == ["model", "look", "note", "fail", "model"]
    assert [step.source for step in report.steps if step.name != "pay"] == ["recorded"] * 5 + ["live"] * 5
    assert len(state["messages"]) == 12


def test_a_live_replay_calls_everything_but_the_payment(tmp_path: Path, office: Office):
    report, _ = replay(tmp_path, office, mode="live")
    assert report.error is None
    assert "pay" not in office.called
    assert office.called.count("model") == 4


def test_a_turn_that_was_not_recorded_ends_a_replay_that_calls_nothing(tmp_path: Path, office: Office):
    report, _ = replay(tmp_path, office, given=("another",))
    assert isinstance(report.error, NotRecordedError)
    assert office.called == []


def test_a_replay_begins_at_a_checkpoint(tmp_path: Path, office: Office):
    async def find() -> str:
        async with Client.sqlite(tmp_path / "a.db") as client:
            line = await client.timeline("o")
            return next(str(one.checkpoint_id) for one in reversed(line) if one.step_name == "look")

    report, state = replay(tmp_path, office, from_=asyncio.run(find()))
    assert (report.error, office.called) == (None, [])
    assert len(state["messages"]) == 12


def test_the_original_stays_as_it_is_and_the_fork_continues(tmp_path: Path, office: Office):
    report, _ = replay(tmp_path, office)

    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            before = await client.latest("o")
            sessions._finished.clear()
            assert await office.take(report.session_id, "first", client) == report.result[0]
            assert office.called == []
            await office.take(report.session_id, "third", client)
            assert len((await client.latest(report.session_id)).execution_state["messages"]) == 18
            assert (await client.latest("o")).checkpoint_id == before.checkpoint_id

    asyncio.run(main())


def test_a_session_without_an_event_loop_is_replayed(tmp_path: Path):
    sessions._finished.clear()
    called: list[str] = []

    def body(turn: FrameworkTurn) -> TurnEnd:
        def ask() -> str:
            called.append("model")
            return "hello"

        answer = run_inline(turn.call_model("clerk", ["hi"], ask))
        return TurnEnd(answer, answer, {}, {"messages": [answer]})

    def take(session_id: str, client: Any = None) -> Any:
        session = ResumableSession(Framework.CUSTOM, session_id=session_id, store=client, is_async=False)
        return session.take_turn_sync("run", "hi", None, body, str)

    with SyncClient.sqlite(tmp_path / "a.db") as client:
        assert take("o", client) == "hello"
        report = client.replay("o", lambda run: take(run.session_id))
        assert (report.result, report.error, called) == ("hello", None, ["model"])
        report = client.replay("o", lambda run: take(run.session_id), mode="live")
        assert (report.result, report.error, called) == ("hello", None, ["model", "model"])


def test_a_program_of_the_other_kind_is_refused(tmp_path: Path, office: Office):
    with SyncClient.sqlite(tmp_path / "a.db") as client:
        report = client.replay("o", lambda run: asyncio.run(office.take(run.session_id, "first")))
        assert isinstance(report.error, UsageError)
        assert "async def" in str(report.error)
    assert office.called == []
