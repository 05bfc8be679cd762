"""The reference loop: saved after each model call and each tool call, on failure and on cancel;
goes on where it stopped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agent_models import Script, calls
from agent_tools import LOOK, Bank, look, steps
from stores import Store

from holdfast import (
    NOT_DONE,
    AgentState,
    FileCheckpoints,
    ModelError,
    Reply,
    StakesPolicy,
    SyncClient,
    SyncFileCheckpoints,
    UsageError,
    agent,
    tool,
)

# -- a turn ------------------------------------------------------------------------------------------------------------


def test_a_turn_asks_the_model_and_carries_out_its_tools(client):
    model = Script(LOOK, "it is 7")
    bot = agent(model=model, tools=[look], checkpoints=client, session_id="s", system="be brief")
    turn = bot.generate("what is x?")
    assert (turn.text, turn.stop, turn.state.step) == ("it is 7", "end", 2)
    assert [message["role"] for message in turn.state.messages] == ["user", "assistant", "tool", "assistant"]
    assert [message["role"] for message in model.told[-1]] == ["system", "user", "assistant", "tool"]
    assert model.last_answers == ["x is 7"]
    assert not any("id" in message or "timestamp" in message for message in model.told[-1])
    assert model.tools == [
        {
            "type": "function",
            "function": {
                "name": "look",
                "description": "Looks something up.",
                "parameters": {
                    "type": "object",
                    "properties": {"what": {"type": "string"}},
                    "required": ["what"],
                    "additionalProperties": False,
                },
            },
        }
    ]


def test_a_turn_unpacks_into_itself_and_its_state(client):
    bot = agent(model=Script("hello", "bye", "7"), checkpoints=client, session_id="s")
    turn, state = bot.generate("hi")
    assert (turn.text, turn.stop) == ("hello", "end")
    assert state is turn.state
    turn, state = bot.generate("and now?", state)
    assert (turn.text, state.step) == ("bye", 2)
    answer, _ = bot.query("what is x?")
    assert answer.text == "7"


def test_it_is_saved_after_the_prompt_each_answer_and_each_tool(client):
    bank = Bank()
    model = Script(calls(("c1", "look", {"what": "x"}), ("c2", "pay", {"to": "bob", "amount": 5})), "done")
    seen = []
    bot = agent(model=model, tools=[look, bank.pay], checkpoints=client, session_id="s")
    for event in bot.stream("go"):
        kept = AgentState.from_json(client.latest(session_id="s").execution_state)
        if event.kind != "text":
            assert kept == event.state  # what is told is saved
        seen.append((event.kind, len(kept.messages)))
    assert seen == [
        ("message", 2), ("tool_call", 2), ("tool_result", 3), ("tool_call", 3), ("tool_result", 4), ("message", 5),
        ("end", 5),
    ]  # fmt: skip
    assert steps(client) == ["prompt", "model", "look", "pay", "model"]
    assert bot.load() == kept


def test_the_next_turn_goes_on_in_the_conversation_and_steps_are_counted_on(store):
    first = agent(model=Script(LOOK, "7"), tools=[look], checkpoints=store.client(), session_id="s").generate("x?")
    model = Script("hello again")
    second = agent(model=model, tools=[look], checkpoints=store.client(), session_id="s").generate("still there?")
    assert (first.state.step, second.state.step) == (2, 3)
    assert second.state.messages[:4] == first.state.messages
    assert [message["content"] for message in model.told[0] if message["role"] == "user"] == ["x?", "still there?"]
    indexes = [entry.step_index for entry in store.client().timeline(session_id="s")]
    assert indexes == sorted(indexes, reverse=True)


@pytest.mark.parametrize("kind", ["files", "store", "nothing"])
def test_plain_stores_do_as_well(tmp_path, quick, kind):
    checkpoints = {"files": SyncFileCheckpoints(tmp_path), "store": quick.as_store(), "nothing": None}[kind]
    bank = Bank()
    model = Script(calls(("c1", "pay", {"to": "bob", "amount": 5})), "done", "again")
    named = {} if checkpoints is None else {"session_id": "s"}
    bot = agent(model=model, tools=[bank.pay], checkpoints=checkpoints, agent_id="buyer", sync=True, **named)
    turn = bot.generate("pay bob")
    assert (turn.text, bank.paid, model.last_answers) == ("done", [("bob", 5)], ['{"paid": 5}'])
    if kind == "nothing":
        assert bot.load() is None
        return
    assert bot.load() == turn.state
    assert checkpoints.load_metadata("s").agent_id == "buyer"
    assert bot.generate("and?").state.step == 3


def test_the_awaited_one_is_the_same(store: Store):
    async def story():
        called = []

        @tool(kind="idempotent")
        async def note(text: str) -> str:
            called.append(text)
            return "noted"

        class Awaited(Script):
            async def __call__(self, messages, tools):
                await asyncio.sleep(0)
                return super().__call__(messages, tools)

        model = Awaited(calls(("c1", "note", {"text": "hi"}), ("c2", "look", {"what": "y"})), Reply(
            message={"role": "assistant", "content": "ok"}, usage={"total_tokens": 5}, reasoning="easy"))  # fmt: skip
        async with store.async_client() as client:
            bot = agent(model=model, tools=[note, look], checkpoints=client, session_id="s")
            turn = await bot.generate("go")
            assert await bot.load() == turn.state
            kinds = [event.kind async for event in agent(
                model=Awaited("bye"), tools=[note, look], checkpoints=client,
                session_id="s").stream("more")]  # fmt: skip
        assert (called, model.last_answers) == (["hi"], ["noted", "y is 7"])
        assert (turn.state.reasoning, turn.usage) == (("easy",), {"total_tokens": 5})
        assert kinds == ["message", "end"]

    asyncio.run(story())


def test_an_awaited_plain_store_is_used_as_it_is(tmp_path):
    async def story():
        bot = agent(model=Script("hello"), checkpoints=FileCheckpoints(tmp_path), session_id="s")
        turn = await bot.generate("hi")
        assert await bot.load() == turn.state

    asyncio.run(story())


def test_a_model_that_streams_nothing_but_text_has_said_that(client):
    class Speaks:
        said = ("take ", "an ", "umbrella")

        def __call__(self, messages, tools):
            raise AssertionError("it was to be streamed")

        def stream(self, messages, tools):
            yield from self.said

    bot = agent(model=Speaks(), checkpoints=client, session_id="s")
    assert [event.kind for event in bot.stream("rain?")] == ["text", "text", "text", "message", "end"]
    assert client.latest(session_id="s").execution_state["messages"][-1]["content"] == "take an umbrella"
    Speaks.said = ()
    with pytest.raises(ModelError, match="without a word"):
        list(bot.stream("and tomorrow?"))
    assert len(bot.load().messages) == 3  # the prompt is kept, and can be asked again


def test_a_model_that_streams_is_heard_as_it_speaks(client):
    class Speaking(Script):
        def stream(self, messages, tools):
            yield from ["it ", "is ", "7"]
            yield {"role": "assistant", "content": "it is 7"}

    bot = agent(model=Speaking(), checkpoints=client, session_id="s")
    events = list(bot.stream("x?"))
    assert [event.text for event in events if event.kind == "text"] == ["it ", "is ", "7"]
    assert [event.kind for event in events] == ["text", "text", "text", "message", "end"]
    assert events[-1].text == "it is 7"
    assert bot.load() == events[-1].state


def test_too_many_steps_end_the_turn_and_the_next_one_goes_on(client):
    bot = agent(model=Script(LOOK, LOOK, "7"), tools=[look], checkpoints=client, session_id="s", max_steps=2)
    turn = bot.generate("x?")
    assert (turn.stop, turn.state.step) == ("max_steps", 2)
    turn = bot.generate()
    assert (turn.stop, turn.text, turn.state.step) == ("end", "7", 3)


def test_without_a_prompt_nothing_is_done_where_nothing_is_to_be_done(client):
    model = Script("hello")
    bot = agent(model=model, checkpoints=client, session_id="s")
    turn = bot.generate("hi")
    before = client.latest(session_id="s").checkpoint_id
    assert bot.generate().state == turn.state
    assert client.latest(session_id="s").checkpoint_id == before
    assert len(model.told) == 1


def test_calls_that_can_not_be_made_are_answered_with_why(client):
    broken = {"id": "c3", "type": "function", "function": {"name": "look", "arguments": '{"what": '}}
    wrong = calls(("c1", "fly", {}), ("c2", "look", {"where": "x"}))
    wrong["tool_calls"].append(broken)
    model = Script(wrong, "sorry")
    agent(model=model, tools=[look], checkpoints=client, session_id="s").generate("go")
    no_tool, no_argument, no_json = model.last_answers
    assert "there is no tool 'fly'" in no_tool
    assert "missing a required argument: 'what'" in no_argument
    assert "no JSON object" in no_json


def test_a_tool_whose_arguments_have_names_of_ours_is_called_all_the_same(client):
    got = []

    @tool(kind="idempotent")
    def file(name: str, key: str, kind: str, fn: str, approve: bool) -> str:
        got.append((name, key, kind, fn, approve))
        return "filed"

    arguments = {"name": "n", "key": "k", "kind": "x", "fn": "f", "approve": True}
    agent(
        model=Script(calls(("c1", "file", arguments)), "ok"), tools=[file], checkpoints=client, session_id="s"
    ).generate("go")
    assert got == [("n", "k", "x", "f", True)]


def test_ids_of_calls_that_come_up_again_are_other_calls(client):
    looked = []

    @tool(kind="read")
    def count() -> int:
        looked.append(1)
        return len(looked)

    again = calls(("call_0", "count", {}))
    model = Script(again, again, "2")
    agent(model=model, tools=[count], checkpoints=client, session_id="s").generate("go")
    assert model.last_answers == ["1", "2"]


# -- failure and cancel ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpoints", ["client", "files"])
def test_a_failure_of_the_model_loses_nothing_and_is_noted(tmp_path, quick, checkpoints):
    kept = quick if checkpoints == "client" else SyncFileCheckpoints(tmp_path)
    model = Script(LOOK, ConnectionError("gone"), "7")
    bot = agent(model=model, tools=[look], checkpoints=kept, session_id="s")
    with pytest.raises(ConnectionError):
        bot.generate("x?")
    state = bot.load()
    assert [message["role"] for message in state.messages] == ["user", "assistant", "tool"]
    assert state.metadata["stopped"]["why"] == "failed"
    assert "gone" in state.metadata["stopped"]["error"]
    turn = bot.generate()
    assert (turn.text, turn.state.step) == ("7", 2)
    assert "stopped" not in turn.state.metadata


def test_a_turn_that_is_cancelled_is_saved_and_goes_on(store: Store):
    async def story():
        entered = asyncio.Event()

        async def hangs(messages, tools):
            if any(message["role"] == "tool" for message in messages):
                entered.set()
                await asyncio.Event().wait()
            return LOOK

        async with store.async_client() as client:
            bot = agent(model=hangs, tools=[look], checkpoints=client, session_id="s")
            turn = asyncio.create_task(bot.generate("x?"))
            await entered.wait()
            turn.cancel()
            with pytest.raises(asyncio.CancelledError):
                await turn
            state = await bot.load()
            assert [message["role"] for message in state.messages] == ["user", "assistant", "tool"]
            assert state.metadata["stopped"]["why"] == "cancelled"
            resumed = agent(model=Script("7"), tools=[look], checkpoints=client, session_id="s")
            assert (await resumed.generate()).text == "7"

    asyncio.run(story())


def test_who_stops_listening_keeps_what_was_told(client):
    bot = agent(model=Script(LOOK, "7"), tools=[look], checkpoints=client, session_id="s")
    events = bot.stream("x?")
    for event in events:
        if event.kind == "tool_result":
            break
    events.close()
    assert len(bot.load().messages) == 3
    assert bot.generate().text == "7"  # the session is free, and goes on


# -- files -------------------------------------------------------------------------------------------------------------


def test_files_of_a_workspace_are_kept_with_each_tool(disk_store, tmp_path):
    site = tmp_path / "site"
    site.mkdir()

    @tool(kind="read")
    def write(name: str, text: str) -> str:
        (site / name).write_text(text)
        return "written"

    client = disk_store.client()
    wanted = [calls((f"c{n}", "write", {"name": "a.txt", "text": f"version {n}"})) for n in range(3)]
    bot = agent(model=Script(*wanted, "done"), tools=[write], checkpoints=client, session_id="s", workspace=site)
    bot.generate("go")
    workspace = client.workspace(site)
    written = [entry for entry in reversed(client.timeline(session_id="s")) if entry.step_name == "write"]
    assert [workspace.read(entry.checkpoint_id, "a.txt") for entry in written] == [
        b"version 0",
        b"version 1",
        b"version 2",
    ]
    workspace.restore(written[0].checkpoint_id, scope="both", session_id="s")
    again = agent(model=Script(wanted[2], "done"), tools=[write], checkpoints=client, session_id="s", workspace=site)
    assert (site / "a.txt").read_text() == "version 0"
    again.generate()
    assert (site / "a.txt").read_text() == "version 2"  # made again, though it was made on the branch that was left


# -- arguments ---------------------------------------------------------------------------------------------------------


def is_paid(to: str) -> bool:
    return True


def test_arguments_that_can_not_be_right_are_refused(quick: SyncClient):
    for wrong in (
        {"model": "gpt"},
        {"tools": [7]},
        {"tools": [look, look]},
        {"checkpoints": 7},
        {"max_steps": 0},
        {"on_open_call": "guess"},
        {"sync": False},
        {"checkpoints": None, "policy": StakesPolicy()},
    ):
        with pytest.raises(UsageError):
            agent(**{"model": Script(), "checkpoints": quick, **wrong})
    asking = agent(model=Script("never asked"), tools=[Bank(approve=True).pay], sync=True)
    for bot in (asking, agent(model=Script("never asked"), tools=[asking.as_tool("payer", "Pays.")], sync=True)):
        with pytest.raises(UsageError, match="'pay' waits for approval"):
            bot.generate("pay")
    with pytest.raises(UsageError, match="kind"):
        tool(kind="harmless")(print)
    with pytest.raises(UsageError, match="no option"):
        tool(danger=True)(print)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"identity": ("to",), "volatile": "to"}, "'to' is in identity= and in volatile="),
        ({"on_repeat": "compensate"}, "needs undo="),
        ({"on_repeat": "sometimes"}, "on_repeat is 'sometimes'"),
        ({"kind": "read", "probe": lambda to: NOT_DONE}, "probe= says nothing"),
        ({"kind": "workspace", "undo": lambda result: None}, "undo= says nothing"),
        ({"probe": "find"}, "probe is 'find', which can't be called"),
        ({"undo": 7}, "undo is 7, which can't be called"),
        ({"probe": is_paid}, "its probe is annotated to return bool"),
        ({"not_done": 7}, "not_done has 7"),
    ],
)
def test_a_tool_with_options_that_can_not_be_right_is_refused_when_it_is_made(options: dict[str, Any], says: str):
    with pytest.raises(UsageError, match=says):
        tool(look.fn, **options)
    with SyncClient.memory() as client, client.run("s") as run, pytest.raises(UsageError, match=r"kind|" + says):
        run.tool(look.fn, **options)


def test_a_session_without_a_store_is_refused():
    with pytest.raises(UsageError, match=r"no store to keep that session in.*checkpoints="):
        agent(model=Script("never asked"), session_id="s")
    assert agent(model=Script("hello"), sync=True).generate("hi").text == "hello"


def test_a_state_to_go_on_from_that_is_none_is_refused(quick: SyncClient):
    for kept in ({"checkpoints": quick, "session_id": "s"}, {}):
        bot = agent(model=Script("never asked"), **kept, sync=True)
        for wrong in ({"messages": []}, AgentState.initial().to_json(), "s"):
            with pytest.raises(UsageError, match=r"AgentState\.from_json"):
                bot.generate("hi", wrong)
            with pytest.raises(UsageError, match=r"AgentState\.from_json"):
                next(bot.stream("hi", wrong))
    assert quick.latest(session_id="s") is None


def test_what_a_model_must_not_give_is_refused(quick):
    for wrong in (7, {"role": "user", "content": "x"}, {"choices": []}, {}, {"id": "x", "object": "nothing"}):
        with pytest.raises(UsageError, match="the model"):
            agent(model=Script(wrong), checkpoints=quick).generate("hi")
    with pytest.raises(ModelError, match="overloaded"):
        agent(model=Script({"error": {"message": "overloaded"}}), checkpoints=quick).generate("hi")


def test_a_session_of_something_else_is_not_taken_over(quick):
    kept = quick.save(agent_id="other", session_id="s", execution_state={"rows": 3})
    with pytest.raises(UsageError, match="no state of an agent loop"):
        agent(model=Script("x"), checkpoints=quick, session_id="s").generate("hi")
    assert quick.latest(session_id="s").checkpoint_id == kept
