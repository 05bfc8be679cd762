"""Turns, sessions, sandboxes, manual control and forks of agents of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from framework_environments import require
from prose import PAGE
from survives import survives

require("openai_agents")

from agents import Agent, RunConfig, Runner, SQLiteSession, function_tool, set_tracing_disabled
from agents.memory import Session
from agents.testing import ScriptedModel, assistant_message, function_call
from openai_agents_turns import Killed, restart, scripted

from holdfast import Client, Effect, SyncClient, UsageError
from holdfast.adapters.base import session as sessions
from holdfast.errors import ApprovalPendingError, UnfinishedTurnError
from holdfast.openai_agents import HoldfastSession, extract, reconstruct, resumable
from holdfast.transcript import to_transcript

set_tracing_disabled(True)  # it would be sent to api.openai.com
CONFIG = RunConfig(tracing_disabled=True)


@pytest.fixture(autouse=True)
def as_a_new_process() -> None:
    sessions._finished.clear()


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


def greeter(*answers: str) -> Agent[Any]:
    return Agent("greeter", model=scripted(*map(assistant_message, answers)))


# -- turns -------------------------------------------------------------------------------------------------------------


@survives("finished turns", "return their results")
def test_a_finished_turn_returns_its_recorded_result(store):
    first = resumable(greeter("hello", "again"), session_id="s", store=store).run_sync("hi")
    restart()
    agent = resumable(greeter("never asked"), session_id="s", store=store)
    again = agent.run_sync("hi")
    assert (again.final_output, again.to_input_list()) == (first.final_output, first.to_input_list()) != ("", [])


def test_a_server_names_its_turns(store):
    agent = resumable(greeter("one", "two"), session_id="s", store=store)
    assert agent.run_sync("hi", turn="message-1").final_output == "one"
    assert agent.run_sync("hi", turn="message-1").final_output == "one"
    assert agent.run_sync("hi", turn="message-2").final_output == "two"


def test_the_same_input_again_in_one_process_is_a_new_turn(store):
    agent = resumable(greeter("one", "two"), session_id="s", store=store)
    assert [agent.run_sync("hi").final_output for _ in range(2)] == ["one", "two"]
    restart()
    agent = resumable(greeter("three"), session_id="s", store=store)
    assert [agent.run_sync("hi").final_output for _ in range(3)] == ["one", "two", "three"]


def test_another_turn_while_one_is_unfinished_is_refused(store):
    agent = resumable(Agent("clerk", model=Failing()), session_id="s", store=store)
    with pytest.raises(Killed):
        agent.run_sync("first")
    with pytest.raises(UnfinishedTurnError, match=r"'first'.*'second'") as refused:
        resumable(greeter("x"), session_id="s", store=store).run_sync("second")
    assert refused.value.args
    assert resumable(greeter("done"), session_id="s", store=store).run_sync("first").final_output == "done"


class Failing(ScriptedModel):
    def __init__(self) -> None:
        super().__init__([])

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        raise Killed


def test_an_option_that_the_store_replaces_is_refused(store):
    agent = resumable(greeter("x"), session_id="s", store=store)
    with pytest.raises(UsageError, match="session= can't be given"):
        agent.run_sync("hi", session=HoldfastSession("s", store=store))


def test_what_is_changed_in_memory_or_by_others_between_turns(store):
    """A filter and a user change items in place, another process rolls back: the store tells the conversation."""
    seen: list[list[Any]] = []

    def look(about: Any) -> Any:
        items = about.model_data.input
        seen.append([one["content"] if one["role"] == "user" else one["content"][0]["text"] for one in items])
        for one in items[:-1]:
            one["content"] = "changed by a filter"
        return about.model_data

    async def main() -> None:
        config = RunConfig(tracing_disabled=True, call_model_input_filter=look)
        async with Client.open(store) as client:
            agent = resumable(greeter("1", "2", "3", "4"), session_id="s", store=client)
            for number in range(3):
                result = await agent.run(f"prompt {number + 1}", run_config=config)
                for one in result.to_input_list():
                    one["content"] = "changed by the user"
                if number == 0:
                    first = (await client.latest("s")).checkpoint_id
            assert seen[2] == ["prompt 1", "1", "prompt 2", "2", "prompt 3"]
            async with Client.open(store) as another:
                await another.rollback("s", to=first)
            await agent.run("prompt 4", run_config=config)
            assert seen[3] == ["prompt 1", "1", "prompt 4"]

    asyncio.run(main())


def test_a_misspelt_tool_is_refused(store):
    @function_tool
    def search(query: str) -> str:
        return query

    @function_tool
    def pay(amount: int) -> str:
        return "paid"

    @function_tool
    def refund(amount: int) -> str:
        return "paid back"

    clerk = Agent("clerk", tools=[refund])
    agent = Agent("a", model=scripted(assistant_message("1")), tools=[search, clerk.as_tool("ask", "Ask.")])
    agent.handoffs.append(Agent("cashier", tools=[pay]))
    with pytest.raises(UsageError, match=r"'serch'.*Did you mean 'search'.*'ask', 'pay', 'refund', 'search'"):
        resumable(agent, session_id="s", store=store, tools={"serch": "read"}).run_sync("hi")
    with SyncClient.open(store) as client:
        assert client.latest("s") is None
    tools = {"search": "read", "pay": "irreversible", "refund": "irreversible"}
    assert resumable(agent, session_id="s", store=store, tools=tools).run_sync("hi").final_output == "1"


# -- tools that were under way, and people -----------------------------------------------------------------------------


def clerk(called: list[str], *answers: Any, kill: bool = False) -> Agent[Any]:
    @function_tool(failure_error_function=None)
    def send(to: str) -> str:
        called.append(to)
        if kill:
            raise Killed
        return f"sent to {to}"

    @function_tool(needs_approval=True)
    def archive(letter: str) -> str:
        called.append(f"archive {letter}")
        return f"archived {letter}"

    return Agent("clerk", model=scripted(*answers), tools=[send, archive])


SEND = function_call("send", {"to": "bob"}, call_id="1")
ARCHIVE = function_call("archive", {"letter": "a"}, call_id="2")


@survives("an undeclared tool under way", "the model reads that it was interrupted")
def test_an_undeclared_call_that_was_under_way_is_told_to_the_model(store):
    called: list[str] = []
    with pytest.raises(Killed):
        resumable(clerk(called, SEND, kill=True), session_id="s", store=store).run_sync("send it")
    restart()
    agent = resumable(clerk(called, assistant_message("I'd better ask.")), session_id="s", store=store)
    result = agent.run_sync("send it")
    [output] = [item["output"] for item in result.to_input_list() if item.get("type") == "function_call_output"]
    assert "interrupted" in output
    assert called == ["bob"]


@pytest.mark.parametrize("key", [None, "to"])
@pytest.mark.parametrize("arguments", ["{}", '{"too": "bob"}', '{"to": '])
def test_a_call_that_the_model_got_wrong_does_not_stop_the_next_one(store, key, arguments):
    called: list[str] = []
    wrong = SEND.model_copy(update={"arguments": arguments, "call_id": "0"})
    agent = clerk(called, wrong, SEND, assistant_message("sent"))
    declared = {"send": Effect("irreversible", key=key)}
    result = resumable(agent, session_id="s", store=store, tools=declared).run_sync("send it")
    assert (result.final_output, called) == ("sent", ["bob"])
    assert "it has no argument 'to'" in json.dumps(result.to_input_list())


def test_a_stream_whose_reader_is_cancelled_stops_and_the_same_call_continues(store):
    """As with the SDK alone: a server that gives a request up has no turn left that holds the session."""
    started, stopped = asyncio.Event(), asyncio.Event()

    @function_tool
    async def send(to: str) -> str:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()
        return "sent"

    async def read(*answers: Any) -> Any:
        agent = Agent("clerk", model=scripted(*answers), tools=[send])
        streamed = resumable(agent, session_id="s", store=store).run_streamed("send it")
        async for _ in streamed.stream_events():
            pass
        return streamed

    async def main() -> None:
        reader = asyncio.create_task(read(SEND))
        await started.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert stopped.is_set()
        streamed = await asyncio.wait_for(read(assistant_message("I'd better ask.")), 20)
        assert "interrupted" in json.dumps(streamed.to_input_list())
        assert streamed.final_output == "I'd better ask."

    asyncio.run(main())


@survives("questions to a person", "wait, and keep their answer")
@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_an_approval_is_decided_by_another_process(store, decision):
    called: list[str] = []
    agent = resumable(clerk(called, ARCHIVE, assistant_message("done")), session_id="s", store=store)
    with pytest.raises(ApprovalPendingError):
        agent.run_sync("archive it")
    with SyncClient.open(store) as client:
        [asked] = client.approvals("s")
    words = [sys.executable, "-m", "holdfast", "--store", store, decision, asked.short_id, "--by", "ann"]
    words += ["--yes"] if decision == "approve" else []
    subprocess.run(words, check=True, capture_output=True, timeout=240)
    restart()
    agent = resumable(clerk(called, assistant_message("done")), session_id="s", store=store)
    assert agent.run_sync("archive it").final_output == "done"
    assert called == (["archive a"] if decision == "approve" else [])


# -- the session of the SDK --------------------------------------------------------------------------------------------


def items(*texts: str) -> list[Any]:
    return [{"role": "user", "content": text} for text in texts]


async def use_session(session: Any) -> list[Any]:
    """Return what a session answers to each kind of call."""
    seen = [await session.get_items(), await session.pop_item()]
    await session.add_items(items("a", "b"))
    await session.add_items([])
    await session.add_items(items(*(str(number) for number in range(20))))
    seen += [
        await session.get_items(),
        await session.get_items(3),
        await session.get_items(0),
        await session.pop_item(),
    ]
    seen.append(await session.get_items(2))
    await session.clear_session()
    seen.append(await session.get_items())
    await session.add_items(items("c"))
    return [*seen, await session.get_items()]


def test_a_session_behaves_as_the_sdks_own(store):
    async def story() -> None:
        control = SQLiteSession("s")
        async with HoldfastSession("s", store=store) as session:
            assert isinstance(session, Session)
            assert await use_session(session) == await use_session(control)
        control.close()

    asyncio.run(story())


def test_a_session_keeps_a_conversation_between_processes(store):
    async def talk(text: str, answer: str) -> Any:
        async with HoldfastSession("s", store=store) as session:
            model = scripted(assistant_message(answer))
            await Runner.run(Agent("a", model=model), text, session=session, run_config=CONFIG)
            return await session.get_items()

    asyncio.run(talk("my name is Ada", "hello Ada"))
    assert len(asyncio.run(talk("what is my name?", "Ada"))) == 4
    with SyncClient.open(store) as client:
        transcript = to_transcript(client.latest("s"))
    assert [message.role for message in transcript.messages] == ["user", "assistant", "user", "assistant"]


def test_two_writers_of_a_session_lose_nothing(store):
    async def story() -> list[Any]:
        async with HoldfastSession("s", store=store) as one, HoldfastSession("s", store=store) as two:
            await asyncio.gather(*(side.add_items(items(f"{number}")) for number in range(10) for side in (one, two)))
            assert await one.pop_item() is not None
            return await two.get_items()

    assert len(asyncio.run(story())) == 19


def test_a_session_in_the_middle_of_a_turn_is_refused(store):
    with pytest.raises(Killed):
        resumable(Agent("clerk", model=Failing()), session_id="s", store=store).run_sync("first")
    with pytest.raises(UsageError, match="in the middle of a turn"):
        asyncio.run(HoldfastSession("s", store=store).add_items(items("x")))


# -- manual control, transcripts, forks --------------------------------------------------------------------------------


def test_a_result_is_extracted_saved_and_reconstructed(store):
    payer = Agent("payer", model=scripted(assistant_message("paid")))
    first = Agent("clerk", model=scripted(function_call("transfer_to_payer", {}, call_id="1")), handoffs=[payer])
    result = asyncio.run(Runner.run(first, "pay", run_config=CONFIG))
    checkpoint = extract(result, agent_id="office", session_id="s", context={"invoice": 7})
    with SyncClient.open(store) as client:
        saved = client.restore(client.save_checkpoint(checkpoint))
    assert (saved.framework, saved.step_name, saved.agent_context) == ("openai_agents", "payer", {"invoice": 7})
    agent, conversation = reconstruct(saved, first)
    assert agent is payer
    assert conversation == json.loads(json.dumps(result.to_input_list()))
    payer.model = scripted(assistant_message("7 euros"))
    assert resumable(first, session_id="s", store=store).run_sync("how much?").last_agent is payer


def test_what_is_no_result_is_refused():
    with pytest.raises(UsageError, match="takes a RunResult or a list of items, not a int"):
        extract(7, agent_id="a", session_id="s")
    waiting = asyncio.run(Runner.run(clerk([], ARCHIVE), "go", run_config=CONFIG))
    with pytest.raises(UsageError, match="waits for approval"):
        extract(waiting, agent_id="a", session_id="s")


def test_a_fork_continues_by_itself(store):
    resumable(greeter("one"), session_id="s", store=store).run_sync("hi")
    with SyncClient.open(store) as client:
        client.fork("s", session_id="fork")
    resumable(greeter("main"), session_id="s", store=store).run_sync("and?")
    forked = resumable(greeter("other"), session_id="fork", store=store).run_sync("and?")
    texts = [item["content"] if "role" in item else None for item in forked.to_input_list()]
    assert texts[0] == "hi"
    assert forked.final_output == "other"
    with SyncClient.open(store) as client:
        assert [len(to_transcript(client.latest(name)).messages) for name in ("s", "fork")] == [4, 4]


def test_a_session_is_replayed_with_another_answer_of_the_model(store):
    called: list[str] = []
    tools = {"send": "irreversible"}
    agent = resumable(clerk(called, SEND, assistant_message("sent")), session_id="s", store=store, tools=tools)
    agent.run_sync("send it")

    async def replay(*answers: Any, **options: Any) -> Any:
        async def program(run: Any) -> Any:
            other = resumable(clerk(called, *answers), session_id=run.session_id, tools=tools)
            return (await other.run("send it")).final_output

        async with Client.open(store) as client:
            return await client.replay("s", program, **options)

    report = asyncio.run(replay())
    assert (report.result, [step.source for step in report.steps]) == ("sent", ["recorded"] * 3)
    again = function_call("send", {"to": "eve"}, call_id="1")
    report = asyncio.run(replay(again, assistant_message("not sent"), mode="live"))
    assert [(step.name, step.source) for step in report.steps] == [
        ("clerk", "live"),
        ("send", "blocked"),  # it may be the letter that was sent, to another address
        ("clerk", "live"),
    ]
    assert report.steps[0].edits
    assert (report.result, called) == ("not sent", ["bob"])


def test_after_a_rollback_an_irreversible_call_is_not_repeated(store):
    called: list[str] = []
    tools = {"send": Effect("irreversible", key="to")}
    resumable(greeter("hello"), session_id="s", store=store).run_sync("hi")
    with SyncClient.open(store) as client:
        before = client.latest("s").checkpoint_id

    def send_it(text: str) -> Any:
        target = clerk(called, SEND, assistant_message(text))
        target.name = "greeter"  # as the agent that the session was begun with
        return resumable(target, session_id="s", store=store, tools=tools).run_sync("send it", turn="2")

    assert send_it("ok").final_output == "ok"
    with SyncClient.open(store) as client:
        client.rollback("s", to=before)
    restart()
    again = send_it("I see.")
    outputs = [item["output"] for item in again.to_input_list() if item.get("type") == "function_call_output"]
    assert "not carried out" in outputs[-1]
    assert (again.final_output, called) == ("I see.", ["bob"])


def test_messages_of_a_turn_that_was_cut_off_are_shown(store):
    called: list[str] = []
    with pytest.raises(Killed):
        resumable(clerk(called, SEND, kill=True), session_id="s", store=store).run_sync("send it")
    with SyncClient.open(store) as client:
        shown = to_transcript(client.latest("s"))
        steps = [entry.step_name for entry in client.timeline("s")]
    assert [message.role for message in shown.messages] == ["user", "assistant"]
    assert shown.messages[1].tool_calls[0].name == "send"
    assert steps == ["send started", "clerk", "run started"]


# -- what the SDK's own persistence lacks (facts of its version), and bytes --------------------------------------------


def test_a_run_that_fails_without_streaming_is_lost_by_the_sdk_only(store):
    """The SDK's session has nothing of a turn's finished calls; ours replays them."""

    async def control() -> Any:
        session = SQLiteSession("s")
        with pytest.raises(Killed):
            await Runner.run(clerk([], SEND, kill=True), "send it", session=session, run_config=CONFIG)
        found = await session.get_items()
        session.close()
        return found

    assert not [item for item in asyncio.run(control()) if item.get("type") == "function_call"]
    called: list[str] = []
    with pytest.raises(Killed):
        resumable(clerk(called, SEND, kill=True), session_id="s", store=store).run_sync("send it")
    restart()
    resumed = resumable(clerk(called, assistant_message("ok")), session_id="s", store=store).run_sync("send it")
    assert [item["call_id"] for item in resumed.to_input_list() if item.get("type") == "function_call"] == ["1"]


@survives("the agent after a handoff", "continues")
def test_the_agent_after_a_handoff_is_forgotten_by_the_sdk_only(store):
    def office(*answers: str) -> Agent[Any]:
        payer = Agent("payer", model=scripted(*map(assistant_message, answers)))
        return Agent("clerk", model=scripted(function_call("transfer_to_payer", {}, call_id="1")), handoffs=[payer])

    async def control() -> str:
        session = SQLiteSession("s")
        await Runner.run(office("paid"), "pay", session=session, run_config=CONFIG)
        greeting = Agent("clerk", model=scripted(assistant_message("who are you?")))
        result = await Runner.run(greeting, "and now?", session=session, run_config=CONFIG)
        session.close()
        return result.last_agent.name

    assert asyncio.run(control()) == "clerk"
    resumable(office("paid"), session_id="s", store=store).run_sync("pay")
    restart()
    assert resumable(office("now this"), session_id="s", store=store).run_sync("and now?").last_agent.name == "payer"


def test_a_long_conversation_is_stored_once(tmp_path):
    """After 300 turns of seven kilobytes, at most one and a half times the conversation."""

    async def story() -> tuple[int, int]:
        turns, words, chance = 300, PAGE.split(), random.Random(7)
        answers = [assistant_message(" ".join(chance.choices(words, k=600))) for _ in range(turns)]
        async with Client.sqlite(tmp_path / "long.db", durability="fast") as client:
            agent = resumable(Agent("talker", model=scripted(*answers)), session_id="s", store=client)
            for number in range(turns):
                result = await agent.run(" ".join(chance.choices(words, k=600)), turn=str(number))
            await client.gc()
        return len(json.dumps(result.to_input_list())), sum(one.stat().st_size for one in tmp_path.glob("long.db*"))

    transcript, stored = asyncio.run(story())
    assert transcript > 1_000_000
    assert stored <= 1.5 * transcript, (stored, transcript)
