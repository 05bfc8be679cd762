"""Tools of resumable Pydantic AI agents, and what people decide about them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from framework_environments import require
from survives import survives

require("pydantic_ai")

from pydantic_ai import (
    Agent,
    ApprovalRequired,
    CallDeferred,
    DeferredToolRequests,
    ModelMessage,
    ModelResponse,
    ModelRetry,
    RunContext,
    ToolFailed,
    ToolReturn,
)
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import InMemoryConversationStore
from pydantic_ai.messages import BinaryImage, TextPart, ToolReturnPart
from pydantic_ai.tools import DeferredToolResults
from pydantic_ai_turns import Killed, Receipt, Script, decide, kill_at, make_agent, restart, run_sync

from holdfast import Effect, SyncClient
from holdfast.adapters.base.turn import INTERRUPTED
from holdfast.errors import ApprovalPendingError
from holdfast.pydantic_ai import resumable


@pytest.fixture(autouse=True)
def new_process() -> None:
    restart()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@survives("an undeclared tool under way", "the model reads that it was interrupted")
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


@survives("`ModelRetry` and `ToolFailed` of tools", "given to the model again, and counted")
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


@survives("images and files in results", "come back as they were")
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


@survives("questions to a person", "wait, and keep their answer")
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


@survives("calls that others carry out", "end the turn; their results begin the next")
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
