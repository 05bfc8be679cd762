"""Turns with several questions, parts, streams, files and equal calls at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from turn_agent import Agent, Killed, restart

from holdfast import Client, Effect, SyncClient
from holdfast.adapters.base import session as sessions
from holdfast.adapters.base.session import ResumableSession, TurnEnd
from holdfast.adapters.base.turn import FrameworkTurn, TurnEndedError
from holdfast.backends.bridge.step import run_inline, run_inline_context
from holdfast.errors import ApprovalPendingError, UnfinishedTurnError
from holdfast.model.framework import Framework


@pytest.fixture(autouse=True)
def new_process() -> None:
    """Forget the turns that other tests have finished, as a new process has."""
    sessions._finished.clear()


def test_several_questions_wait_at_the_same_time(tmp_path: Path):
    async def body(turn: FrameworkTurn) -> TurnEnd:
        calls = [("delete", {"path": "a"}, "c-1"), ("delete", {"path": "b"}, "c-2")]
        answers = await turn.request_approvals(calls, summaries=["it is old", None])
        given = [one.is_approved for one in answers]
        return TurnEnd(given, given, {})

    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            with pytest.raises(ApprovalPendingError):
                await session.take_turn("run", "go", None, body, str)
            first, second = await client.approvals("s")
            assert {one.arguments["path"]: one.summary for one in (first, second)} == {"a": "it is old", "b": None}
            await client.decide(second.approval_id, "reject", by="ann")
            with pytest.raises(ApprovalPendingError):
                await session.take_turn("run", "go", None, body, str)
            await client.decide(first.approval_id, "approve", by="ann")
            expected = [one.arguments["path"] == "a" for one in (first, second)]
            assert await session.take_turn("run", "go", None, body, str) == expected

    asyncio.run(main())


def test_an_open_turn_without_an_end_is_continued_by_the_same_call(tmp_path: Path):
    asked: list[str] = []

    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            for life in range(2):
                async with session.open_turn("iter", "go", None) as opened:
                    async with opened.turn.open_model_call("agent", "hello") as call:
                        if call.answer is None:
                            asked.append("model")
                            await call.record("hi")
                    if life:
                        opened.end = TurnEnd("hi", "hi", {"messages": ["hi"]})
            restart()
            async with session.open_turn("iter", "go", None) as opened:
                assert (opened.turn, opened.recorded, session.state) == (None, "hi", {"messages": ["hi"]})
        assert asked == ["model"]

    asyncio.run(main())


def test_a_part_of_a_turn_counts_its_calls_on_its_own(tmp_path: Path):
    asked: list[str] = []

    async def body(turn: FrameworkTurn) -> TurnEnd:
        async def ask() -> str:
            asked.append("model")
            return f"answer {len(asked)}"

        first = await turn.open_part("b").call_model("agent", "hi", ask)
        again = await turn.open_part("b").call_model("agent", "hi", ask)  # the part runs again
        other = await turn.open_part("a").call_model("agent", "hi", ask)
        return TurnEnd([first, again, other], None, {})

    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            assert await session.take_turn("run", "go", None, body, str) == ["answer 1", "answer 1", "answer 2"]

    asyncio.run(main())


def test_a_part_that_ends_the_turn_ends_all_of_it(tmp_path: Path):
    async def body(turn: FrameworkTurn) -> TurnEnd:
        try:
            await turn.open_part("a").request_approval("delete", {}, call_id="c-1")
        except BaseException:
            with pytest.raises(TurnEndedError):
                await turn.open_part("b").call_model("agent", "hi", lambda: "hi")
        return TurnEnd(None, None, {})

    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            with pytest.raises(ApprovalPendingError):
                await session.take_turn("run", "go", None, body, str)

    asyncio.run(main())


def test_the_start_of_a_turn_may_be_saved_with_its_first_record(tmp_path: Path):
    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            await session.take_turn("run", "go", "first", Agent([]).body, str)
            before = await client.latest("s")
            async with session.open_turn("run", "go", "t", saves_start=False) as opened:
                assert not opened.turn.is_start_saved
            assert (await client.latest("s")).checkpoint_id == before.checkpoint_id
            with pytest.raises(Killed):
                async with session.open_turn("run", "go", "t", saves_start=False) as opened:
                    opened.turn.put_state({"place": 1})
                    await opened.turn.call_once("first", _nothing)
                    assert opened.turn.is_start_saved
                    raise Killed
            state = (await client.latest("s")).execution_state
            assert (state["turn"]["input"], state["place"]) == ("go", 1)
            with pytest.raises(UnfinishedTurnError):
                await session.take_turn("run", "go", "other", None, str)
            async with session.open_turn("run", "go", "t", saves_start=False) as opened:
                assert opened.turn.is_start_saved
                assert opened.turn.state["place"] == 1

    async def _nothing() -> None:
        pass

    asyncio.run(main())


def test_an_answer_that_is_recorded_is_known_before_it_is_asked_for(tmp_path: Path):
    known: list[bool] = []

    async def body(turn: FrameworkTurn) -> TurnEnd:
        known.append(turn.has_answer("delete", "c-1"))
        await turn.request_approval("delete", {}, call_id="c-1")
        if len(known) == 2:
            raise Killed
        return TurnEnd(None, None, {})

    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            with pytest.raises(ApprovalPendingError):
                await session.take_turn("run", "go", None, body, str)
            [asked] = await client.approvals("s")
            await client.decide(asked.approval_id, "approve", by="ann")
            with pytest.raises(Killed):
                await session.take_turn("run", "go", None, body, str)
            await session.take_turn("run", "go", None, body, str)
            assert known == [False, False, True]

    asyncio.run(main())


def test_parts_of_one_name_are_told_apart_by_their_keys_in_whatever_order_they_begin(tmp_path: Path):
    begun: list[str] = []

    def body_of(order: str, *, is_cut_off: bool) -> Callable[[FrameworkTurn], Any]:
        async def body(turn: FrameworkTurn) -> TurnEnd:
            async def part(key: str) -> str:
                begun.append(key)
                return f"result of {key}"

            results = {}
            for key in order:
                results[key] = await turn.call_part("part", lambda key=key: part(key), key=key)
            if is_cut_off:
                raise Killed
            return TurnEnd(results, results, {})

        return body

    async def main() -> Any:
        async with Client.sqlite(tmp_path / "s.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            with pytest.raises(Killed):
                await session.take_turn("run", "go", None, body_of("ab", is_cut_off=True), lambda recorded: recorded)
            restart()
            return await session.take_turn("run", "go", None, body_of("ba", is_cut_off=False), lambda one: one)

    assert asyncio.run(main()) == {"a": "result of a", "b": "result of b"}
    assert begun == ["a", "b"]


def test_lists_that_grow_while_calls_are_recorded_lose_nothing(tmp_path: Path):
    async def grow(turn: FrameworkTurn) -> TurnEnd:
        async def note(number: int) -> None:
            await turn.append_to_state("more", {"messages": [{"n": number, "text": "x" * 1000}], "notes": [number]})

        async def call(number: int) -> None:
            await turn.call_once(f"part {number}", lambda: asyncio.sleep(0, "x" * 1000))

        for number in range(0, 60, 3):
            await asyncio.gather(*(one(number + more) for more in range(3) for one in (note, call)))
        return TurnEnd("done", "done", turn.state)

    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            assert await session.take_turn("run", "go", None, grow, str) == "done"
            await session.append_to_state("late", {"messages": [{"n": 60}]})
            state = await session.load_state()
        assert [one["n"] for one in state["messages"]] == list(range(61))
        assert state["notes"] == list(range(60))

    asyncio.run(main())


def test_a_state_that_is_replaced_while_it_is_saved_is_saved_too(tmp_path: Path):
    session: ResumableSession

    async def replace(turn: FrameworkTurn) -> TurnEnd:
        for number in range(20):  # a journal that is long enough to be appended to
            await turn.call_once(f"part {number}", lambda: asyncio.sleep(0, "x" * 1000))
        messages = [{"n": number, "text": "x" * 1000} for number in range(20)]
        await turn.save_state("first", {"messages": messages})
        for waits in range(1, 10):  # the second save begins at another moment of the first
            messages = [*messages, {"n": len(messages)}]
            saving = asyncio.create_task(turn.save_state("one", {"messages": messages}))
            for _ in range(waits):
                await asyncio.sleep(0)
            messages = [*messages, {"n": len(messages)}]
            await turn.save_state("another", {"messages": messages})
            await saving
            assert (await session.load_state())["messages"] == messages
        raise Killed

    async def main() -> None:
        nonlocal session
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client)
            with pytest.raises(Killed):
                await session.take_turn("run", "go", None, replace, str)

    asyncio.run(main())


def test_a_stream_of_a_plain_session_that_is_closed_early_is_continued_by_the_same_call(tmp_path: Path):
    asked: list[int] = []

    def stream() -> Any:
        session = ResumableSession(Framework.CUSTOM, session_id="s", store=client, is_async=False)
        with session.open_turn_sync("run", "go", None) as opened:
            assert opened.turn is not None
            for number in range(2):
                with run_inline_context(opened.turn.open_model_call("agent", number)) as call:
                    if call.answer is None:
                        asked.append(number)
                        run_inline(call.record(f"answer {number}"))
                    yield f"answer {number}" if call.answer is None else call.answer
            opened.end = TurnEnd("done", "done", {})

    with SyncClient.sqlite(tmp_path / "store.db") as client:
        events = stream()
        assert next(events) == "answer 0"
        events.close()  # the reader stops
        assert list(stream()) == ["answer 0", "answer 1"]
        assert asked == [0, 1]
        session = ResumableSession(Framework.CUSTOM, session_id="s", store=client, is_async=False)
        restart()
        with session.open_turn_sync("run", "go", None) as opened:
            assert (opened.turn, opened.recorded) == (None, "done")
        with pytest.raises(ValueError, match="raised within"), session.open_turn_sync("run", "go", "2"):
            raise ValueError("raised within")


# -- files -------------------------------------------------------------------------------------------------------------


class Writer:
    """Writes two files of a workspace; it may be killed within the second one."""

    def __init__(self, directory: Path, *, is_killed: bool = False) -> None:
        self.directory = directory
        self.is_killed = is_killed

    def write(self, name: str) -> str:
        (self.directory / name).write_text("half")
        if self.is_killed and name == "b":
            raise Killed
        (self.directory / name).write_text("whole")
        return f"{name} written"

    async def body(self, turn: FrameworkTurn) -> TurnEnd:
        async def write_awaited(name: str) -> str:
            return self.write(name)

        write = write_awaited if isinstance(turn.client, Client) else self.write
        said = [await turn.call_tool("write", {"name": name}, write, call_id=name) for name in "ab"]
        return TurnEnd(said, said, {})

    def read(self) -> dict[str, str]:
        return {file.name: file.read_text() for file in self.directory.iterdir() if file.is_file()}


@pytest.mark.parametrize("is_async", [True, False])
def test_files_of_the_workspace_come_back_with_the_conversation_and_are_written_again(tmp_path: Path, is_async: bool):
    """A tool that only writes files of the workspace is declared as "read": it does nothing outside."""
    work, url = tmp_path / "work", f"sqlite:///{tmp_path}/store.db"
    work.mkdir()
    options: dict[str, Any] = {"store": url, "workspace": work, "tools": {"write": "read"}, "is_async": is_async}

    def live(writer: Writer) -> Any:
        restart()
        session = ResumableSession(Framework.CUSTOM, session_id="s", **options)
        taken = session.take_turn("run", "go", None, writer.body, lambda recorded: recorded)
        return asyncio.run(taken) if is_async else run_inline(taken)

    whole = {"a": "whole", "b": "whole"}
    with pytest.raises(Killed):
        live(Writer(work, is_killed=True))
    writer = Writer(work)
    assert writer.read() == {"a": "whole", "b": "half"}
    assert live(writer) == ["a written", "b written"]
    assert writer.read() == whole
    with SyncClient.open(url) as client:
        [first] = [entry for entry in client.timeline("s", limit=None) if entry.step_name == "write"][1:]
        client.rollback("s", to=first.checkpoint_id, workspace=work)
    assert writer.read() == {"a": "whole"}
    assert live(writer) == ["a written", "b written"]
    assert writer.read() == whole


# -- equal calls at the same time --------------------------------------------------------------------------------------

PAYMENT = {"pay": Effect("irreversible", key="invoice")}


def test_equal_calls_of_an_effect_in_one_message_carry_it_out_once(tmp_path: Path):
    """Models repeat a call within one message, and frameworks make the calls of a message together."""
    called: list[str] = []
    is_other_begun = asyncio.Event()

    async def pay(invoice: str) -> str:
        called.append(invoice)
        if called == ["a"]:
            await asyncio.wait_for(is_other_begun.wait(), 60)
            raise Killed
        is_other_begun.set()
        await asyncio.sleep(0.01)
        return f"receipt {len(called)}"

    async def body(turn: FrameworkTurn) -> TurnEnd:
        calls = [("1", "a"), ("2", "a"), ("3", "b"), ("4", "b")]
        made = [turn.call_tool("pay", {"invoice": invoice}, pay, call_id=id_) for id_, invoice in calls]
        tasks = [asyncio.create_task(item) for item in made]
        try:
            results = list(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            raise
        return TurnEnd(results, results, {})

    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client, tools=PAYMENT)
            with pytest.raises(Killed):
                await session.take_turn("run", "go", None, body, list)
            assert called == ["a", "b"]
            restart()
            results = await session.take_turn("run", "go", None, body, list)
            assert called == ["a", "b"]
            assert "outcome is unknown" in results[0]
            assert results[0] == results[1]
            assert results[2] == results[3]
            assert await session.take_turn("run", "go", "2", body, list) == results  # a later turn finds them, too
            assert called == ["a", "b"]

    asyncio.run(main())


def test_equal_calls_of_an_effect_in_threads_carry_it_out_once(tmp_path: Path):
    called: list[str] = []

    def pay(invoice: str) -> str:
        called.append(invoice)
        time.sleep(0.05)
        return f"receipt {len(called)}"

    def body(turn: FrameworkTurn) -> TurnEnd:
        def call(number: int) -> Any:
            return run_inline(turn.call_tool("pay", {"invoice": "a"}, pay, call_id=f"{number}"))

        with ThreadPoolExecutor(4) as threads:
            results = list(threads.map(call, range(4)))
        return TurnEnd(results, results, {})

    with SyncClient.sqlite(tmp_path / "a.db") as client:
        session = ResumableSession(Framework.CUSTOM, session_id="s", store=client, tools=PAYMENT, is_async=False)
        assert session.take_turn_sync("run", "go", None, body, list) == ["receipt 1"] * 4
    assert called == ["a"]


def test_a_call_of_an_effect_within_itself_does_not_wait_for_itself(tmp_path: Path):
    depth = 0

    async def body(turn: FrameworkTurn) -> TurnEnd:
        async def pay(invoice: str) -> Any:
            nonlocal depth
            depth += 1
            return await turn.call_tool("pay", {"invoice": invoice}, pay, call_id="inner") if depth < 3 else "paid"

        return TurnEnd(await turn.call_tool("pay", {"invoice": "a"}, pay, call_id="outer"), "", {})

    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            session = ResumableSession(Framework.CUSTOM, session_id="s", store=client, tools=PAYMENT)
            assert await asyncio.wait_for(session.take_turn("run", "go", None, body, str), 30) == "paid"

    asyncio.run(main())
