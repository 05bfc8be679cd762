"""The agent loop in an event loop: sub-agents, cancelled threads, streams that are not read to the end."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing

import pytest
from agent_models import Script, calls
from stores import Store

from holdfast import ApprovalPendingError, FileCheckpoints, agent, tool


@tool(kind="read")
def look(what: str) -> str:
    return f"{what} is 7"


LOOK = calls(("c1", "look", {"what": "x"}))
ASK = calls(("d1", "scout", {"prompt": "what is x?"}))


def test_a_turn_unpacks_into_itself_and_its_state():
    async def story():
        bot = agent(model=Script("hello", "bye", "7"))
        turn, state = await bot.generate("hi")
        assert (turn.text, state.step) == ("hello", 1)
        turn, state = await bot.generate("and now?", state)
        assert (turn.text, state.step) == ("bye", 2)
        answer, _ = await bot.query("what is x?")
        assert answer.text == "7"

    asyncio.run(story())


def test_a_sub_agent_is_awaited_as_who_asks_it(store: Store):
    noted = []

    @tool(kind="idempotent")
    async def note(text: str) -> str:
        await asyncio.sleep(0)
        noted.append(text)
        return "noted"

    async def story():
        async with store.async_client() as client:
            helper = Script(LOOK, calls(("c1", "note", {"text": "7"})), "x is 7")
            scout = agent(model=helper, tools=[look, note], sync=True).as_tool("scout", "Finds things out.")
            bot = agent(model=Script(ASK, "7"), tools=[scout], checkpoints=client, session_id="s")
            turn = await bot.generate("find x")
            assert await bot.load() == turn.state
            assert [effect.tool for effect in await client.effects("s")] == ["note"]
            return turn.state

    [trace] = asyncio.run(story()).subagent_traces
    assert (trace.result, noted) == ("x is 7", ["7"])
    assert [call.name for call in trace.tool_calls] == ["look", "note"]


def test_a_sub_agent_that_waits_for_approval_makes_all_wait(store: Store):
    paid = []

    @tool(kind="irreversible", approve="finance")
    def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    def team(client, *replies):
        payer = agent(model=Script(*replies[1:]), tools=[pay], sync=True).as_tool("scout", "Pays.")
        return agent(model=Script(replies[0]), tools=[payer], checkpoints=client, session_id="s")

    async def story():
        async with store.async_client() as client:
            with pytest.raises(ApprovalPendingError):
                await team(client, ASK, calls(("p1", "pay", {"amount": 5}))).generate("pay")
            [waiting] = await client.approvals()
            await client.decide(waiting.approval_id, "approve", by="ann")
            return await team(client, "all paid", "I paid").generate()

    turn = asyncio.run(story())
    assert (turn.text, paid) == ("all paid", [5])
    assert turn.state.subagent_traces[0].result == "I paid"


@pytest.mark.parametrize("kept_in", ["client", "files"])
def test_what_a_thread_does_after_its_turn_was_cancelled_is_in_doubt(memory_store: Store, tmp_path, kept_in):
    entered, leave = threading.Event(), threading.Event()
    paid = []

    @tool(kind="irreversible")
    def pay() -> str:
        entered.set()
        assert leave.wait(240)
        paid.append(1)
        return "paid"

    async def story():
        client = memory_store.async_client()
        checkpoints = client if kept_in == "client" else FileCheckpoints(tmp_path)
        bot = agent(model=Script(calls(("c1", "pay", {}))), tools=[pay], checkpoints=checkpoints, session_id="s")
        turn = asyncio.create_task(bot.generate("pay"))
        assert await asyncio.to_thread(entered.wait, 60)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        leave.set()  # the thread goes on, and nobody hears of it
        state = await bot.load()
        assert [message["role"] for message in state.messages] == ["user", "assistant"]
        model = Script("I can't tell")
        await agent(model=model, tools=[pay], checkpoints=checkpoints, session_id="s").generate()
        assert "It is unknown" in model.last_answers[0]
        await client.close()

    asyncio.run(story())
    assert paid == [1]


def test_a_stream_that_is_left_gives_the_session_back(store: Store):
    async def story():
        async with store.async_client() as client:
            bot = agent(model=Script(LOOK, "7"), tools=[look], checkpoints=client, session_id="s")
            async with aclosing(bot.stream("x?")) as events:
                async for event in events:
                    if event.kind == "tool_result":
                        break
            assert len((await bot.load()).messages) == 3
            return await bot.generate()

    assert asyncio.run(story()).text == "7"


def test_conversations_at_once_do_not_mix(store: Store):
    async def story():
        async with store.async_client() as client:

            async def talk(number):
                wanted = calls(("c1", "look", {"what": f"x{number}"}))
                bot = agent(
                    model=Script(wanted, f"end {number}"), tools=[look], checkpoints=client, session_id=f"s{number}"
                )
                return (await bot.generate(f"x{number}?")).state

            return await asyncio.gather(*map(talk, range(8)))

    for number, state in enumerate(asyncio.run(story())):
        told = [message["content"] for message in state.messages]
        assert told == [f"x{number}?", None, f"x{number} is 7", f"end {number}"]
