"""Turns, tools, people, forks and manual checkpoints of resumable agents of Pydantic AI."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from framework_environments import require
from prose import PAGE
from survives import survives

require("pydantic_ai")

from pydantic_ai import (
    Agent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RequestUsage,
)
from pydantic_ai.messages import BinaryImage, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_turns import Killed, Receipt, Script, decide, kill_at, make_agent, restart, run_sync

from holdfast import Client, SyncClient, UsageError
from holdfast.adapters.pydantic_ai import messages
from holdfast.errors import ApprovalPendingError, HoldfastWarning, UnfinishedTurnError
from holdfast.pydantic_ai import HoldfastDurability, extract, reconstruct, resumable
from holdfast.transcript import to_transcript


@pytest.fixture(autouse=True)
def new_process() -> None:
    restart()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


def texts(url: str, session: str = "s") -> list[tuple[str, str]]:
    """The conversation of a session, as people read it."""
    with SyncClient.open(url) as client:
        found = to_transcript(client.latest(session))
    return [
        (one.role, one.text or "".join(part.content for r in one.tool_responses for part in r.content)) for one in found
    ]


@survives("finished turns", "return their results, in the output type")
def test_a_finished_turn_returns_its_recorded_result_in_its_type(url):
    script = Script([("final_result", {"invoice": 7})])
    agent = make_agent(script, output_type=Receipt)
    first = run_sync(agent, url, turn="m-1")
    again = run_sync(agent, url, turn="m-1")
    assert script.asked == 1
    assert first.output == again.output == Receipt(invoice=7)
    assert again.new_messages() == first.new_messages()
    assert (again.run_id, again.usage, again.conversation_id) == (first.run_id, first.usage, "s")


def test_a_finished_turn_has_its_messages_by_each_entry_point(url):
    script = Script([("pay", {"invoice": 7})], "done")

    def pay(invoice: int) -> str:
        return f"receipt {invoice}"

    async def read() -> list[Any]:
        made = make_agent(script, pay)
        await resumable(made, session_id="s", store=url).run("hello", turn="m-0")
        agent = resumable(made, session_id="s", store=url)
        whole = await agent.run("pay", turn="m-1")
        async with agent.run_stream("pay", turn="m-1") as stream:
            said = [text async for text in stream.stream_text(debounce_by=None)]
        assert said[-1] == await stream.get_output() == "done"
        async with agent.iter("pay", turn="m-1") as agent_run:
            nodes = [node async for node in agent_run]
        assert nodes == []
        assert script.asked == 4
        assert stream.usage == agent_run.usage == whole.usage
        return [(one.all_messages(), one.new_messages()) for one in (whole, stream, agent_run, agent_run.result)]

    whole, *others = asyncio.run(read())
    assert [len(found) for found in whole] == [8, 4]
    assert others == [whole] * 3


def test_equal_prompts_are_further_turns_of_one_conversation(url):
    script = Script("done")
    agent = resumable(make_agent(script), session_id="s", store=url)
    results = [agent.run_sync("pay") for _ in range(3)]
    assert script.asked == 3
    assert [len(one.all_messages()) for one in results] == [2, 4, 6]
    restart()
    again = resumable(make_agent(script), session_id="s", store=url)
    assert [len(again.run_sync("pay").all_messages()) for _ in range(4)] == [2, 4, 6, 8]
    assert script.asked == 4


def test_another_turn_is_refused_while_one_is_unfinished(url):
    def fail() -> None:
        raise Killed

    agent = make_agent(Script([("fail", {})], "done"), fail)
    with pytest.raises(Killed):
        run_sync(agent, url, "first")
    with pytest.raises(UnfinishedTurnError, match=r"first.*second"):
        run_sync(agent, url, "second")


def test_the_first_turn_is_dropped_with_all_that_the_session_has(url):
    """As docs/frameworks/index.md says: a rollback needs a turn before it."""

    def fail() -> None:
        raise Killed

    with pytest.raises(Killed):
        run_sync(make_agent(Script([("fail", {})]), fail), url, "first")
    agent = make_agent(Script("done"))
    with pytest.raises(UnfinishedTurnError) as caught:
        run_sync(agent, url, "second")
    assert caught.value.before is None
    with SyncClient.open(url) as client:
        for entry in client.timeline("s", limit=1_000):
            client.expire(entry.checkpoint_id)
    assert run_sync(agent, url, "second").output == "done"
    assert texts(url) == [("user", "second"), ("assistant", "done")]


@survives("a stream that was cut off", "continues, by any entry point")
@pytest.mark.parametrize("first", ["run", "run_stream", "iter"])
@pytest.mark.parametrize("second", ["run", "run_stream", "iter"])
def test_a_turn_that_one_entry_point_began_is_finished_by_another(url, first, second):
    lives: list[bool] = []

    def search(q: str) -> str:
        return f"found {q}"

    def pay(invoice: int) -> str:
        lives.append(True)
        if len(lives) == 1:
            raise Killed
        return "paid"

    script = Script([("search", {"q": "x"})], [("pay", {"invoice": 7})], "done")
    agent = make_agent(script, search, pay)

    async def take(entry: str) -> Any:
        restart()
        found = resumable(agent, session_id="s", store=url, tools={"pay": "idempotent"})
        if entry == "run":
            return await found.run("go")
        if entry == "iter":
            async with found.iter("go") as agent_run:
                async for _ in agent_run:
                    pass
            return agent_run.result
        async with found.run_stream("go") as stream:
            assert [one async for one in stream.stream_text(delta=True)] == ["done"]
        return stream.result

    with pytest.raises(Killed):
        asyncio.run(take(first))
    assert script.asked == 2
    result = asyncio.run(take(second))
    assert (script.asked, len(lives), result.output) == (3, 2, "done")
    for entry in (first, second):
        again = asyncio.run(take(entry))
        assert (again.output, again.all_messages(), again.usage) == ("done", result.all_messages(), result.usage)
    assert script.asked == 3


def test_a_stream_that_is_not_read_leaves_the_turn_unfinished(url):
    script = Script("one two")

    async def main() -> None:
        agent = resumable(make_agent(script), session_id="s", store=url)
        async with agent.run_stream("go"):
            pass
        async with agent.run_stream("go") as stream:
            assert await stream.get_output() == "one two"
        assert stream.result.output == "one two"

    asyncio.run(main())
    assert len(texts(url)) == 2


def test_a_prompt_with_an_image_is_recorded_as_bytes(url):
    image = BinaryImage(b"\x89PNG" * 100, media_type="image/png")
    agent = make_agent(Script("nice"))
    result = run_sync(agent, url, ["look", image])
    assert run_sync(agent, url, ["look", image]).all_messages() == result.all_messages()
    with SyncClient.open(url) as client:
        checkpoint = client.latest("s")
        assert checkpoint.execution_state["messages"][0]["parts"][0]["content"][1]["data"] == image.data
        assert to_transcript(checkpoint).messages[0].parts[1].data == image.data


def test_options_that_the_store_decides_are_refused(url):
    agent = resumable(make_agent(Script("done")), session_id="s", store=url)
    with pytest.raises(UsageError, match="message_history= can't be given"):
        agent.run_sync("pay", message_history=[ModelRequest([UserPromptPart("x")])])
    with pytest.raises(UsageError, match="takes an Agent of Pydantic AI"):
        resumable(object(), session_id="s")


def test_what_is_changed_in_memory_or_by_others_between_turns(tmp_path: Path):
    """A model and a user change messages in place, another process rolls back: the store tells the conversation."""
    seen: list[list[Any]] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append([part.content for one in messages for part in one.parts])
        for part in [part for one in messages[:-1] for part in one.parts]:
            part.content = "changed by the model"
        return ModelResponse([TextPart(f"answer {len(seen)}")])

    async def main() -> None:
        async with Client.sqlite(tmp_path / "a.db") as client:
            agent = resumable(Agent(FunctionModel(answer)), session_id="s", store=client)
            for number in range(3):
                result = await agent.run(f"prompt {number + 1}")
                for part in [part for one in result.all_messages() for part in one.parts]:
                    part.content = "changed by the user"
                if number == 0:
                    first = (await client.latest("s")).checkpoint_id
            assert seen[2] == ["prompt 1", "answer 1", "prompt 2", "answer 2", "prompt 3"]
            async with Client.sqlite(tmp_path / "a.db") as another:
                await another.rollback("s", to=first)
            await agent.run("prompt 4")
            assert seen[3] == ["prompt 1", "answer 1", "prompt 4"]

    asyncio.run(main())


def test_a_misspelt_tool_is_warned_of(tmp_path: Path):
    """Only a warning: sub-agents and toolsets may have tools that no one knows at the start of a turn."""
    agent = Agent(Script("hello").model)

    @agent.tool_plain
    def search(query: str) -> str:
        return query

    store = f"sqlite:///{tmp_path}/a.db"
    with pytest.warns(HoldfastWarning, match=r"'serch'.*Did you mean 'search'"):
        resumable(agent, session_id="s", store=store, tools={"serch": "read"}).run_sync("hi")
    resumable(agent, session_id="t", store=store, tools={"search": "read", "archive": "read"}).run_sync("hi")


# -- the capability ----------------------------------------------------------------------------------------------------


def test_the_capability_records_into_a_run_of_ones_own(url):
    calls, count = kill_at(1)

    def pay(invoice: int) -> str:
        count()
        return "paid"

    script = Script([("pay", {"invoice": 7})], "done")
    agent = make_agent(script, pay)

    async def main() -> list[str]:
        async with Client.open(url) as client, client.run("order", agent_id="shop") as run:
            durability = HoldfastDurability(run, client=client, tools={"pay": "idempotent"})
            answers = [(await agent.run("pay", capabilities=[durability])).output for _ in range(2)]
            return [*answers, await run.step("ship", lambda: "shipped")]

    with pytest.raises(Killed):
        asyncio.run(main())
    assert asyncio.run(main()) == asyncio.run(main()) == ["done", "done", "shipped"]
    assert script.asked == 4
    assert len(calls) == 3


def test_the_capability_asks_people_within_a_run_of_ones_own(url):
    agent = Agent(Script([("archive", {"invoice": 7})], "done").model, name="clerk")

    @agent.tool_plain(requires_approval=True)
    def archive(invoice: int) -> str:
        return "archived"

    async def main() -> str:
        async with Client.open(url) as client, client.run("order", agent_id="shop") as run:
            return (await agent.run("pay", capabilities=[HoldfastDurability(run, client=client)])).output

    with pytest.raises(ApprovalPendingError):
        asyncio.run(main())
    decide(url, "approve")
    assert asyncio.run(main()) == "done"


def test_the_capability_does_nothing_elsewhere():
    script = Script("done")
    agent = make_agent(script, capabilities=[HoldfastDurability()])
    assert asyncio.run(agent.run("pay")).output == "done"


def test_an_agent_that_has_the_capability_itself_is_recorded_once(url):
    script = Script("done")
    agent = make_agent(script, capabilities=[HoldfastDurability()])
    run_sync(agent, url)
    with SyncClient.open(url) as client:
        assert [one.step_name for one in client.timeline("s")] == ["run", "clerk", "run started"]


# -- forks, transcripts, manual control --------------------------------------------------------------------------------


def test_a_fork_is_a_second_conversation_over_the_same_history(url):
    script = Script("done")
    agent = make_agent(script)
    run_sync(agent, url, "one")
    with SyncClient.open(url) as client:
        client.fork("s", session_id="try")
    run_sync(agent, url, "two")
    assert len(run_sync(agent, url, "three", session_id="try").all_messages()) == 4
    assert [text for role, text in texts(url, "try") if role == "user"] == ["one", "three"]
    assert [text for role, text in texts(url) if role == "user"] == ["one", "two"]


def test_a_turn_that_was_cut_off_reads_as_a_conversation(url):
    def search(q: str) -> str:
        return f"found {q}"

    def die() -> str:
        raise Killed

    agent = make_agent(Script([("search", {"q": "x"})], [("die", {})]), search, die)
    with pytest.raises(Killed):
        run_sync(agent, url)
    assert texts(url) == [("user", "pay"), ("assistant", ""), ("tool", "found x"), ("assistant", "")]
    with SyncClient.open(url) as client:
        found = to_transcript(client.latest("s"))
    assert [call.name for call in found.open_calls] == ["die"]
    assert not found.cursor.is_finished


def test_what_was_extracted_is_continued_by_a_resumable_agent_and_by_hand(url):
    agent = make_agent(Script("done"))
    result = asyncio.run(agent.run("one"))
    with SyncClient.open(url) as client:
        client.save_checkpoint(extract(result, agent_id="clerk", session_id="s", context={"invoice": 7}))
    assert len(run_sync(agent, url, "two").all_messages()) == 4
    with SyncClient.open(url) as client:
        checkpoint = client.latest("s")
    conversation = reconstruct(checkpoint, agent)
    assert len(asyncio.run(agent.run("three", conversation=conversation)).all_messages()) == 6
    assert (
        extract(conversation, agent_id="clerk", session_id="s").execution_state["messages"]
        == (checkpoint.execution_state["messages"])
    )
    with pytest.raises(UsageError, match=r"extract\(\) takes a result"):
        extract("text", agent_id="clerk", session_id="s")
    with pytest.raises(UsageError, match="takes an Agent"):
        reconstruct(checkpoint, object())


# -- size --------------------------------------------------------------------------------------------------------------


def test_300_turns_take_little_more_than_their_transcript(tmp_path):
    words, chance = PAGE.split(), random.Random(7)

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart(" ".join(chance.choices(words, k=600)))], usage=RequestUsage(input_tokens=1))

    agent = Agent(FunctionModel(answer), name="talker")

    async def main() -> tuple[int, int]:
        whole = 0
        async with Client.sqlite(tmp_path / "store.db", durability="fast") as client:
            found = resumable(agent, session_id="s", store=client)
            for number in range(300):
                result = await found.run(" ".join(chance.choices(words, k=600)), turn=str(number))
                whole += len(result.all_messages_json()) if number % 10 == 0 else 0
            return whole, len(result.all_messages_json())

    whole, transcript = asyncio.run(main())
    stored = sum(one.stat().st_size for one in tmp_path.glob("store.db*"))
    assert transcript > 1_000_000
    assert stored <= 1.5 * transcript, (stored, transcript)
    assert whole > 10 * transcript  # the control: the conversation saved whole, after each tenth turn only


def test_a_request_of_a_turn_digests_no_message_of_an_earlier_conversation(tmp_path, monkeypatch):
    """The messages of a conversation from elsewhere have no `run_id` that tells them from the turn's own."""
    dumped: list[int] = []
    dump = messages.dump_messages

    def count(given: Sequence[ModelMessage]) -> list[dict[str, Any]]:
        dumped.append(len(given))
        return dump(given)

    pairs = ([ModelRequest([UserPromptPart(str(one))]), ModelResponse([TextPart("yes")])] for one in range(20))
    agent = Agent(FunctionModel(lambda given, _: ModelResponse([TextPart(str(len(given)))])), name="clerk")

    async def main() -> Any:
        async with Client.sqlite(tmp_path / "store.db") as client:
            before = [message for pair in pairs for message in pair]
            await client.save_checkpoint(extract(before, agent_id="clerk", session_id="s"))
            monkeypatch.setattr(messages, "dump_messages", count)  # as requests are identified
            return await resumable(agent, session_id="s", store=client).run("go on")

    assert asyncio.run(main()).output == "41"
    assert max(dumped) == 1
