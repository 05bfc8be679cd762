"""Turns, tools, people, forks and manual checkpoints of resumable agents of Pydantic AI."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from framework_environments import require
from paths import ROOT

require("pydantic_ai")

from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    CallDeferred,
    DeferredToolRequests,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelRetry,
    RequestUsage,
    RunContext,
    ToolFailed,
    ToolReturn,
)
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import InMemoryConversationStore
from pydantic_ai.messages import BinaryImage, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.tools import DeferredToolResults

from holdfast import Client, Effect, SyncClient, UsageError
from holdfast.adapters.base import session as sessions
from holdfast.adapters.base.turn import INTERRUPTED
from holdfast.errors import ApprovalPendingError, HoldfastWarning, UnfinishedTurnError
from holdfast.pydantic_ai import HoldfastDurability, extract, reconstruct, resumable
from holdfast.transcript import to_transcript

Answer = str | list[tuple[str, dict[str, Any]]]


class Killed(BaseException):
    """Stands for the end of the process."""


class Script:
    """A model that answers the nth request of a turn with the nth answer of a plan, and counts."""

    def __init__(self, *plan: Answer) -> None:
        self.plan = plan
        self.asked = 0
        self.seen: list[list[str]] = []
        self.model = FunctionModel(self._answer, stream_function=self._stream)

    def _next(self, messages: list[ModelMessage]) -> ModelResponse:
        self.asked += 1
        requests = [one for one in messages if isinstance(one, ModelRequest)]
        begins = max(n for n, one in enumerate(requests) if isinstance(one.parts[0], UserPromptPart))
        returned = [part for one in requests[begins:] for part in one.parts if isinstance(part, ToolReturnPart)]
        self.seen.append([part.model_response_str() for part in returned])
        step = len(requests) - begins - 1
        wanted = self.plan[step]
        if isinstance(wanted, str):
            return ModelResponse([TextPart(wanted)], usage=RequestUsage(input_tokens=1, output_tokens=1))
        turn = len([one for one in requests if isinstance(one.parts[0], UserPromptPart)])
        calls = [
            ToolCallPart(name, arguments, tool_call_id=f"call-{turn}-{step}-{number}")
            for number, (name, arguments) in enumerate(wanted)
        ]
        return ModelResponse(calls, usage=RequestUsage(input_tokens=1, output_tokens=1))

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return self._next(messages)

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for number, part in enumerate(self._next(messages).parts):
            if isinstance(part, TextPart):
                yield part.content
            else:
                yield {number: DeltaToolCall(part.tool_name, json.dumps(part.args), tool_call_id=part.tool_call_id)}


def make_agent(script: Script, *tools: Any, **options: Any) -> Agent[None, Any]:
    return Agent(script.model, name="clerk", tools=tools, **options)


@pytest.fixture(autouse=True)
def new_process() -> None:
    restart()


def restart() -> None:
    """Forget the turns that this process has finished, as a new one has."""
    sessions._finished.clear()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


def run_sync(agent: Agent[None, Any], url: str, prompt: Any = "pay", **options: Any) -> Any:
    """Take a turn as a new process does."""
    restart()
    keywords = {name: options.pop(name) for name in ("tools", "session_id") if name in options}
    return resumable(agent, store=url, **{"session_id": "s", **keywords}).run_sync(prompt, **options)


def texts(url: str, session: str = "s") -> list[tuple[str, str]]:
    """The conversation of a session, as people read it."""
    with SyncClient.open(url) as client:
        found = to_transcript(client.latest(session))
    return [
        (one.role, one.text or "".join(part.content for r in one.tool_responses for part in r.content)) for one in found
    ]


# -- turns -------------------------------------------------------------------------------------------------------------


class Receipt(BaseModel):
    invoice: int
    paid: bool = True


def test_a_finished_turn_returns_its_recorded_result_in_its_type(url):
    script = Script([("final_result", {"invoice": 7})])
    agent = make_agent(script, output_type=Receipt)
    first = run_sync(agent, url, turn="m-1")
    again = run_sync(agent, url, turn="m-1")
    assert script.asked == 1
    assert first.output == again.output == Receipt(invoice=7)
    assert again.new_messages() == first.new_messages()
    assert (again.run_id, again.usage, again.conversation_id) == (first.run_id, first.usage, "s")


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


# -- tools -------------------------------------------------------------------------------------------------------------


def kill_at(number: int) -> tuple[list[int], Callable[[], None]]:
    calls: list[int] = []

    def count() -> None:
        calls.append(len(calls) + 1)
        if len(calls) == number:
            raise Killed

    return calls, count


def test_an_undeclared_tool_that_was_under_way_is_reported_to_the_model(url):
    calls, count = kill_at(1)

    def pay(invoice: int) -> str:
        count()
        return "paid"

    script = Script([("pay", {"invoice": 7})], "asked a person")
    agent = make_agent(script, pay)
    with pytest.raises(Killed):
        run_sync(agent, url)
    result = run_sync(agent, url)
    assert (calls, result.output) == ([1], "asked a person")
    assert script.seen[-1] == [INTERRUPTED]
    assert result.usage.tool_calls == 1


def test_control_pydantic_ai_calls_the_tool_again():
    """A history that ends in a tool call is resumed by making the call: nothing says that it was under way."""
    calls, count = kill_at(1)
    saved: list[ModelMessage] = []

    def pay(ctx: RunContext[None], invoice: int) -> str:
        saved[:] = ctx.messages
        count()
        return "paid"

    agent = make_agent(Script([("pay", {"invoice": 7})], "done"), pay)

    async def main() -> None:
        with pytest.raises(Killed):
            await agent.run("pay")
        assert isinstance(saved[-1], ModelResponse)
        await agent.run(message_history=list(saved))

    asyncio.run(main())
    assert calls == [1, 2]


@pytest.mark.parametrize("kind", ["undeclared", "read", "idempotent"])
def test_what_tools_tell_pydantic_ai_is_told_again_after_a_crash(url, kind):
    calls: list[int] = []

    def search(q: str) -> str:
        calls.append(1)
        if q == "bad":
            raise ModelRetry("use another word")
        if q == "gone":
            raise ToolFailed("there is no such thing")
        return f"found {q}"

    def die() -> str:
        raise Killed

    script = Script([("search", {"q": "bad"})], [("search", {"q": "gone"})], [("search", {"q": "x"})], [("die", {})])
    agent = make_agent(script, search, die, retries=3)
    tools = {} if kind == "undeclared" else {"search": kind}
    for _ in range(3):
        with pytest.raises(Killed):
            run_sync(agent, url, tools={**tools, "die": "read"})
    assert (len(calls), script.asked) == (3, 4)
    assert [("use another word" in one, "no such thing" in one) for one in script.seen[-1]] == [
        (True, False), (False, True), (False, False),
    ]  # fmt: skip


def test_results_with_files_and_metadata_survive(url):
    image = BinaryImage(b"\x89PNG" * 100, media_type="image/png")

    def draw() -> ToolReturn:
        return ToolReturn("drawn", content=["see", image], metadata={"size": 7})

    def photo() -> list[Any]:
        return ["a photo", image]

    def receipt() -> Receipt:
        return Receipt(invoice=7)

    lives: list[int] = []

    def die() -> str:
        lives.append(1)
        if len(lives) == 1:
            raise Killed
        return "alive"

    script = Script([("draw", {}), ("photo", {}), ("receipt", {})], [("die", {})], "done")
    agent = make_agent(script, draw, photo, receipt, die)
    with pytest.raises(Killed):
        run_sync(agent, url, tools={"die": "read"})
    after = run_sync(agent, url, tools={"die": "read"})
    before = run_sync(agent, url, tools={"die": "read"}, session_id="whole")
    assert [_parts(one) for one in after.all_messages()] == [_parts(one) for one in before.all_messages()]
    parts = [part for one in after.all_messages() for part in one.parts]
    returned = {part.tool_name: part for part in parts if isinstance(part, ToolReturnPart)}
    assert returned["photo"].content[1] == image
    assert returned["draw"].metadata == {"size": 7}


def _parts(message: ModelMessage) -> list[Any]:
    return [(part.part_kind, getattr(part, "content", None)) for part in message.parts]


@pytest.mark.parametrize("is_durable", [True, False])
def test_finished_calls_of_a_run_that_was_cut_off_are_kept_only_with_holdfast(url, is_durable):
    """The control: Pydantic AI saves a conversation after its run, so a run that was cut off leaves nothing."""
    paid: list[int] = []

    def pay(invoice: int) -> str:
        paid.append(invoice)
        return "paid"

    calls, count = kill_at(1)

    def search() -> str:
        count()
        return "found"

    script = Script([("pay", {"invoice": 7})], [("search", {})], "done")
    agent = make_agent(script, pay, search)
    store = InMemoryConversationStore()

    async def take_turn() -> str:
        restart()
        if is_durable:
            return (await resumable(agent, session_id="s", store=url, tools={"search": "read"}).run("pay")).output
        conversation = await store.load("s") or Conversation(conversation_id="s")
        result = await agent.run("pay", conversation=conversation)
        await store.save(result)
        return result.output

    with pytest.raises(Killed):
        asyncio.run(take_turn())
    assert asyncio.run(take_turn()) == "done"
    assert (paid, script.asked, len(calls)) == (([7], 3, 2) if is_durable else ([7, 7], 5, 2))


def test_a_declaration_on_the_function_is_found(url):
    calls, count = kill_at(1)

    @Effect("idempotent")
    def pay(invoice: int) -> str:
        count()
        return "paid"

    agent = make_agent(Script([("pay", {"invoice": 7})], "done"), pay)
    with pytest.raises(Killed):
        run_sync(agent, url)
    assert run_sync(agent, url).output == "done"
    assert calls == [1, 2]


def test_an_effect_is_carried_out_once_in_a_tree(url):
    calls: list[int] = []

    def pay(invoice: int) -> str:
        calls.append(invoice)
        return "paid"

    script = Script([("pay", {"invoice": 7})], "done")
    tools = {"pay": Effect("irreversible", key="invoice")}
    run_sync(make_agent(Script("hi")), url, "hello")
    with SyncClient.open(url) as client:
        before = client.latest("s").checkpoint_id
    run_sync(make_agent(script, pay), url, "one", tools=tools)
    with SyncClient.open(url) as client:
        client.rollback("s", to=before)
    run_sync(make_agent(script, pay), url, "two", tools=tools)
    assert calls == [7]
    assert "not carried out" in script.seen[-1][0]


# -- people ------------------------------------------------------------------------------------------------------------


def archive_script() -> Script:
    return Script([("archive", {"invoice": 7}), ("archive", {"invoice": 8})], "done")


def decide(url: str, *answers: str) -> None:
    """Answer the open questions as another process does: by the command line."""
    for answer in answers:
        command = [sys.executable, "-m", "holdfast", "--store", url]
        listed = subprocess.run([*command, "approvals", "--json"], check=True, capture_output=True, text=True)
        waiting = json.loads(listed.stdout)
        first = min(
            waiting if isinstance(waiting, list) else waiting["approvals"], key=lambda one: str(one["arguments"])
        )
        decided = [*command, answer, first["approval_id"], "--by", "ann", "--note", "because"]
        said = subprocess.run([*decided, *(["--yes"] if answer == "approve" else [])], capture_output=True, check=False)
        assert said.returncode == 0, said.stderr


@pytest.mark.parametrize("dynamic", [False, True])
def test_approvals_wait_for_people_in_any_process(url, dynamic):
    archived: list[int] = []

    def archive(ctx: RunContext[None], invoice: int) -> str:
        if dynamic and not ctx.tool_call_approved:
            raise ApprovalRequired
        archived.append(invoice)
        return f"archived {invoice}"

    script = archive_script()
    agent = Agent(script.model, name="clerk")
    agent.tool(archive, requires_approval=not dynamic)
    with pytest.raises(ApprovalPendingError):
        run_sync(agent, url)
    with SyncClient.open(url) as client:
        assert sorted(dict(one.arguments)["invoice"] for one in client.approvals("s")) == [7, 8]
    assert archived == []
    decide(url, "approve", "reject")
    assert run_sync(agent, url).output == "done"
    assert archived == [7]
    assert script.asked == 2
    assert ["archived 7" in one or "because" in one for one in script.seen[-1]] == [True, True]


def test_a_person_may_change_the_arguments(url):
    archived: list[int] = []

    def archive(invoice: int) -> str:
        archived.append(invoice)
        return f"archived {invoice}"

    agent = Agent(Script([("archive", {"invoice": 7})], "done").model, name="clerk")
    agent.tool_plain(archive, requires_approval=True)
    with pytest.raises(ApprovalPendingError):
        run_sync(agent, url)
    with SyncClient.open(url) as client:
        [asked] = client.approvals("s")
        client.decide(asked.approval_id, "modify", arguments={"invoice": 70}, by="ann")
    assert run_sync(agent, url).output == "done"
    assert archived == [70]


@pytest.mark.parametrize("answer", ["approve", "reject"])
def test_a_stream_asks_people_too(url, answer):
    archived: list[int] = []

    def archive(invoice: int) -> str:
        archived.append(invoice)
        return f"archived {invoice}"

    script = Script([("archive", {"invoice": 7})], "done")
    agent = Agent(script.model, name="clerk")
    agent.tool_plain(archive, requires_approval=True)

    async def main() -> str:
        restart()
        async with resumable(agent, session_id="s", store=url).run_stream("pay") as stream:
            return await stream.get_output()

    with pytest.raises(ApprovalPendingError):
        asyncio.run(main())
    with SyncClient.open(url) as client:
        [asked] = client.approvals("s")
        client.decide(asked.approval_id, answer, by="ann")
    assert asyncio.run(main()) == "done"
    assert archived == ([7] if answer == "approve" else [])
    assert ("denied" in script.seen[-1][0]) == (answer == "reject")


def test_an_effect_that_asks_for_approval_itself_is_carried_out_once(url):
    paid: list[int] = []

    def pay(ctx: RunContext[None], invoice: int) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={"why": "much money"})
        paid.append(invoice)
        return "paid"

    agent = Agent(Script([("pay", {"invoice": 7})], "done").model, name="clerk", tools=[pay])
    tools = {"pay": Effect("irreversible", key="invoice")}
    for _ in range(2):
        with pytest.raises(ApprovalPendingError):
            run_sync(agent, url, tools=tools)
    decide(url, "approve")
    assert run_sync(agent, url, tools=tools).output == "done"
    assert paid == [7]


def test_calls_that_others_carry_out_end_the_turn_and_their_results_begin_the_next(url):
    def book(city: str) -> str:
        raise CallDeferred(metadata={"city": city})

    class Booked(Script):
        def _next(self, messages: list[ModelMessage]) -> ModelResponse:
            if any(isinstance(part, ToolReturnPart) for one in messages for part in one.parts):
                return ModelResponse([TextPart("booked")])
            return super()._next(messages)

    agent = make_agent(Booked([("book", {"city": "Rome"})]), book, output_type=[str, DeferredToolRequests])
    first = run_sync(agent, url)
    again = run_sync(agent, url)
    assert isinstance(again.output, DeferredToolRequests)
    assert again.output == first.output
    assert again.output.metadata == {"call-1-0-0": {"city": "Rome"}}
    results = DeferredToolResults(calls={"call-1-0-0": "room 7"})
    assert run_sync(agent, url, None, deferred_tool_results=results).output == "booked"
    assert run_sync(agent, url, None, deferred_tool_results=results).output == "booked"


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
    words, chance = (ROOT / "docs" / "format.md").read_text("utf-8").split(), random.Random(7)

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
