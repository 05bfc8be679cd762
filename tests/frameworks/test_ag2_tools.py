"""Tools and sub-agents of resumable AG2 agents."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from framework_environments import require
from stored_steps import wait_for_step
from survives import survives

require("ag2")

from ag2 import (
    Agent,
    Context,
    TaskConfig,
    Toolkit,
    ToolResult,
    tool,
)
from ag2.events import (
    BaseEvent,
    ImageInput,
    TaskCompleted,
    ToolCallEvent,
    ToolErrorEvent,
    ToolResultEvent,
)
from ag2.tools import LocalEnvironment, SandboxShellTool
from ag2.tools.final import ClientTool, FunctionToolSchema
from ag2.tools.subagents import background_agent_tool, persistent_stream
from ag2.tools.tool import Tool
from ag2_model import FunctionConfig, call, results_of
from ag2_turns import Killed, _look, call_once_each, count_requests, restart, run, text_of
from pydantic import BaseModel

from holdfast import NOT_DONE, Client, Done, Effect
from holdfast.ag2 import resumable
from holdfast.errors import HoldfastWarning, UsageError


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/store.db"


# -- tools -------------------------------------------------------------------------------------------------------------


@survives("an undeclared tool under way", "the model reads that it was interrupted")
def test_an_undeclared_call_that_was_under_way_is_told_to_the_model(url):
    config = FunctionConfig(call_once_each(call("first"), call("second")))
    called = []

    async def first() -> str:
        called.append("first")
        return "1"

    async def second() -> str:
        called.append("second")
        raise Killed

    async def life() -> Any:
        agent = Agent("a", config=config, tools=[first, second])
        return (await resumable(agent, session_id="s", store=url).ask("go", turn="1")).body

    with pytest.raises(Killed):
        run(life)
    assert run(life).startswith("done: 1, This call was interrupted, and its outcome is unknown")
    assert called == ["first", "second"]
    assert len(config.requests) == 3


@survives("a declared tool under way", "is looked up by its probe")
def test_a_declared_effect_is_looked_up(url):
    config = FunctionConfig(call_once_each(call("pay", invoice="7")))
    called = []

    @tool
    @Effect("irreversible", key="invoice", probe=lambda invoice: Done({"receipt": 7}) if called else NOT_DONE)
    async def pay(invoice: str) -> dict[str, Any]:
        called.append(invoice)
        raise Killed

    async def life() -> Any:
        agent = Agent("a", config=config, tools=[pay])
        return (await resumable(agent, session_id="s", store=url).ask("go", turn="1")).body

    with pytest.raises(Killed):
        run(life)
    assert run(life) == "done: {'receipt': 7}"
    assert called == ["7"]


@pytest.mark.parametrize("declared", [{}, {"fail": "read"}, {"fail": "idempotent"}])
def test_a_failure_is_told_in_the_same_words_in_every_life(url, declared):
    config = FunctionConfig(call_once_each(call("fail"), call("die")))
    lives = iter([Killed(), None])

    async def fail() -> str:
        raise ValueError("no such invoice")

    async def die() -> str:
        if error := next(lives):
            raise error
        return "alive"

    async def life() -> Any:
        agent = Agent("a", config=config, tools=[fail, die])
        return await resumable(agent, session_id="s", store=url, tools={**declared, "die": "read"}).ask("go", turn="1")

    with pytest.raises(Killed):
        run(life)
    told = text_of(results_of(config.requests[-1])[0])
    assert "ValueError: no such invoice" in told
    events = run(lambda: _history(life))
    [failed] = [one for one in events if isinstance(one, ToolErrorEvent)]
    assert (type(failed.error), str(failed.error), text_of(failed)) == (ValueError, "no such invoice", told)
    assert len(config.requests) == 3


async def _history(life: Callable[[], Awaitable[Any]]) -> list[Any]:
    return list(await (await life()).history.get_events())


@survives("classes of tools' results", "become what the model reads of them: JSON")
def test_results_of_all_kinds_are_the_same_in_every_life(url):
    @dataclasses.dataclass
    class Point:
        x: int

    class Place(BaseModel):
        name: str
        zip: str | None = None

    made = {
        "text": "plain",
        "number": 7,
        "nothing": None,
        "data": {"$type": "os.system", "$result": 1},
        "listed": [1, {"a": None}],
        "point": Point(1),
        "place": Place(name="here"),
        "image": ImageInput(data=b"\x89", media_type="image/png"),
        "parts": ToolResult("a", {"b": 1}, metadata={"m": 1}),
    }
    config = FunctionConfig(call_once_each(*(call(name, name) for name in made), call("die")))
    lives = iter([Killed(), None])

    async def die() -> str:
        if error := next(lives):
            raise error
        return "alive"

    def give(name: str) -> Any:
        async def given() -> Any:
            return made[name]

        return tool(given, name=name)

    async def life() -> Any:
        agent = Agent("a", config=config, tools=[*map(give, made), die])
        return await resumable(agent, session_id="s", store=url, tools={"die": "read"}).ask("go", turn="1")

    with pytest.raises(Killed):
        run(life)
    first = results_of(config.requests[-1])
    run(life)
    again = results_of(config.requests[-1])
    assert again[:-1] == first
    assert len(config.requests) == len(made) + 2
    plain = {one.name: one.result.parts[0] for one in again if len(one.result.parts) == 1}
    assert plain["data"].data == {"$type": "os.system", "$result": 1}
    assert (plain["point"].data, plain["place"].data) == ({"x": 1}, {"name": "here", "zip": None})
    assert again[-2].result.metadata == {"m": 1}


@survives("variables that a tool has set", "are set again by a replay")
def test_variables_that_a_tool_changes_in_place_are_there_after_a_crash(url):
    config = FunctionConfig(call_once_each(call("note"), call("die")))
    lives = iter([Killed(), None, None])

    async def note(context: Context) -> str:
        context.variables["notes"].append({"tags": {"x", "y"}})
        context.variables.pop("old", None)
        return "noted"

    async def die(context: Context) -> str:
        if error := next(lives):
            raise error
        return f"{len(context.variables['notes'])} {'old' in context.variables}"

    async def life(session_id: str = "s", **more: Any) -> Any:
        agent = Agent("a", config=config, tools=[note, die])
        return await resumable(agent, session_id=session_id, store=url, tools={"die": "read"}).ask(
            "go", turn="1", variables={"notes": [], **more}
        )

    noted = {"notes": [{"tags": {"x", "y"}}]}
    with pytest.raises(Killed):
        asyncio.run(life(old=1))
    reply = asyncio.run(life(old=1))
    assert (reply.body, reply.context.variables) == ("done: noted, 1 False", noted)
    assert asyncio.run(life(old=1)).context.variables == noted  # recorded
    assert [asyncio.run(life("t")).context.variables for _ in range(2)] == [noted, noted]  # only in its place


def test_a_variable_that_cant_be_stored_is_reported(url):
    async def connect(context: Context) -> str:
        context.variables["connection"] = object()
        return "ok"

    async def main() -> None:
        agent = Agent("a", config=FunctionConfig(call_once_each(call("connect"))), tools=[connect])
        with pytest.warns(HoldfastWarning, match="variable 'connection' to a object"):
            await resumable(agent, session_id="s", store=url).ask("go")

    run(main)


class Gate(Tool):
    """A tool that is no function, as those of MCP servers are not."""

    def __init__(self, called: list[str]) -> None:
        self.name = "gate"
        self.called = called

    def __deepcopy__(self, memo: Any) -> Gate:  # AG2 copies the tools that an agent gets
        return self

    async def schemas(self, context: Any) -> list[Any]:
        return [FunctionToolSchema.from_dict({"function": {"name": "gate"}})]

    def register(self, stack: Any, context: Any, *, middleware: Any = ()) -> None:
        async def execute(event: ToolCallEvent, context: Context) -> None:
            async def open_gate(event: ToolCallEvent, context: Any) -> Any:
                self.called.append(event.arguments)
                return ToolResultEvent.from_call(event, "open")

            made: Any = open_gate
            for one in middleware:
                made = _wrapped(one.on_tool_execution, made)
            await context.send(await made(event.handled_by("gate:1"), context))

        stack.enter_context(context.stream.where(ToolCallEvent.name == "gate").sub_scope(execute))


def _wrapped(hook: Any, inner: Any) -> Any:
    return lambda event, context: hook(inner, event, context)


@survives("toolkits, AG2's shell, tools of MCP servers", "are recorded as functions are")
def test_tools_of_all_kinds_are_recorded(url, tmp_path):
    """Tools in toolkits, AG2's own shell, tools that are no functions, and those that are given with a question."""
    called: list[str] = []
    calls = [
        call("packed"),
        call("run_shell_command", command="echo x >> shell.txt"),
        call("gate"),
        call("given"),
        call("die"),
    ]
    config = FunctionConfig(call_once_each(*calls))
    lives = iter([Killed(), None])

    async def packed() -> str:
        called.append("packed")
        return "packed"

    async def given() -> str:
        called.append("given")
        return "given"

    async def die() -> str:
        if error := next(lives):
            raise error
        return "alive"

    async def life() -> Any:
        shell = SandboxShellTool(LocalEnvironment(tmp_path))
        agent = Agent("a", config=config, tools=[Toolkit(packed), shell, Gate(called), die])
        return (
            await resumable(agent, session_id="s", store=url, tools={"die": "read"}).ask(
                "go", turn="1", tools=[tool(given)]
            )
        ).body

    with pytest.raises(Killed):
        run(life)
    assert run(life) == "done: packed, , open, given, alive"
    assert called == ["packed", "{}", "given"]
    assert (tmp_path / "shell.txt").read_text() == "x\n"
    assert len(config.requests) == 6


def test_a_misspelt_tool_is_refused(url):
    def search(query: str) -> str:
        return query

    def pay(amount: int) -> str:
        return "paid"

    def refund(amount: int) -> str:
        return "paid back"

    async def ask(tools: Any, **options: Any) -> Any:
        config = FunctionConfig(count_requests)
        helper = Agent("helper", config=config, tools=[refund]).as_tool(name="help", description="helps")
        agent = Agent("a", config=config, tools=[search, Toolkit(pay), helper], **options)
        return (await resumable(agent, session_id="s", store=url, tools=tools).ask("hi")).body

    async def main() -> None:
        with pytest.raises(UsageError, match=r"'serch'.*Did you mean 'search'.*'help', 'pay', 'refund', 'search'"):
            await ask({"serch": "read"})
        async with Client.open(url) as client:
            assert await client.latest("s") is None
        subtasks = TaskConfig(extra_tools=[refund])
        tools = {"search": "read", "pay": "irreversible", "refund": "irreversible", "run_subtask": "agent"}
        assert await ask(tools, tasks=subtasks)

    run(main)


def test_a_misspelt_tool_of_an_open_toolkit_is_warned_of(url):
    """A toolkit of another class, such as that of an MCP server, may find further tools in the turn."""

    class Server(Toolkit):
        pass

    async def search(query: str) -> str:
        return query

    async def main() -> None:
        agent = Agent("a", config=FunctionConfig(count_requests), tools=[Server(search)])
        with pytest.warns(HoldfastWarning, match=r"'serch'.*Did you mean 'search'"):
            await resumable(agent, session_id="s", store=url, tools={"serch": "read", "other": "read"}).ask("hi")

    run(main)


def test_a_final_result_and_a_clients_tool_end_a_turn(url):
    async def finish() -> ToolResult:
        return ToolResult("the end", final=True)

    async def main() -> None:
        restart()
        agent = Agent("a", config=FunctionConfig(call_once_each(call("finish"))), tools=[finish])
        reply = await resumable(agent, session_id="s", store=url).ask("go")
        assert (reply.body, reply.response.response_force) == ("the end", True)
        client_tool = ClientTool({"function": {"name": "show"}})
        other = Agent("a", config=FunctionConfig(call_once_each(call("show", page=1))), tools=[client_tool])
        reply = await resumable(other, session_id="t", store=url).ask("go")
        assert [one.arguments for one in reply.response.tool_calls.calls] == ['{"page": 1}']

    run(main)
    run(main)


def test_wrong_arguments_are_told_to_the_model_as_ag2_does(url):
    def answer(events: Sequence[BaseEvent]) -> Any:
        if not results_of(events):
            return [ToolCallEvent("add", id="1", arguments="{not json")]
        return "wrong" if "JSONDecodeError" in text_of(results_of(events)[0]) else "?"

    async def add(a: int) -> int:
        return a

    async def main() -> Any:
        agent = Agent("a", config=FunctionConfig(answer), tools=[add])
        return (await resumable(agent, session_id="s", store=url).ask("go")).body

    assert run(main) == "wrong"


def test_an_agent_that_is_used_without_a_session_is_as_before(url):
    async def main() -> None:
        called = []

        async def note() -> str:
            called.append(1)
            return "noted"

        agent = Agent("a", config=FunctionConfig(call_once_each(call("note"))), tools=[note])
        await resumable(agent, session_id="s", store=url).ask("go")
        assert [(await agent.ask("go")).body for _ in range(2)] == ["done: noted"] * 2
        assert len(called) == 3

    run(main)


def test_a_task_that_outlives_its_turn_is_as_before(url):
    async def main() -> None:
        helper = Agent("helper", config=FunctionConfig(call_once_each(call("note"))), tools=[tool(_look, name="note")])
        said: list[Any] = []
        is_turn_over, is_said = asyncio.Event(), asyncio.Event()

        async def later() -> None:
            await is_turn_over.wait()
            said.append((await helper.ask("hello")).body)
            is_said.set()

        async def begin(context: Context) -> str:
            context.stream.spawn_background(later())
            return "begun"

        config = FunctionConfig(call_once_each(call("begin")))
        agent = Agent("a", config=config, tools=[begin, helper.as_tool(description="helps")])
        await resumable(agent, session_id="s", store=url).ask("go")
        assert said == []
        is_turn_over.set()
        await asyncio.wait_for(is_said.wait(), 60)
        assert said == ["done: seen"]

    run(main)


# -- sub-agents --------------------------------------------------------------------------------------------------------


@survives("sub-agents (`as_tool`) and subtasks", "continue where they stood")
def test_sub_agents_continue_where_they_stood(url):
    """An agent as a tool, in an agent as a tool, and two subtasks at a time."""
    called: list[str] = []
    lives = iter([Killed(), None])

    async def look(what: str) -> str:
        called.append(what)
        if what == "last" and (error := next(lives)):
            raise error
        return f"seen {what}"

    inner = FunctionConfig(call_once_each(call("look", what="inner")))
    outer = FunctionConfig(call_once_each(call("task_inner", objective="look closely")))
    sub = FunctionConfig(
        lambda events: (
            f"sub {text_of(results_of(events)[0])}"
            if results_of(events)
            else [call("look", what=events[0].parts[0].content)]
        )
    )
    main_config = FunctionConfig(
        call_once_each(
            call("task_outer", objective="look"),
            call("run_subtasks", tasks=["one", "two"]),
            call("look", what="last"),
        )
    )

    async def life() -> Any:
        looker = Agent("inner", config=inner, tools=[look])
        middle = Agent("outer", config=outer, tools=[looker.as_tool(description="looks")])
        clerk = Agent(
            "clerk",
            config=main_config,
            tools=[middle.as_tool(description="asks"), look],
            tasks=TaskConfig(config=sub),
        )
        agent = resumable(clerk, session_id="s", store=url, tools={"look": "read"})
        reply = await agent.ask("go", turn="1")
        return reply.body, sum(isinstance(one, TaskCompleted) for one in await reply.history.get_events())

    with pytest.raises(Killed):
        run(life)
    body, completed = run(life)
    assert "seen inner" in body
    assert "sub seen one" in body
    assert "sub seen two" in body
    assert completed == 3
    assert sorted(called) == ["inner", "last", "last", "one", "two"]
    assert [len(one.requests) for one in (inner, outer, sub, main_config)] == [2, 2, 4, 4]


@survives("a worker's memory (`persistent_stream`)", "within a turn only")
def test_a_sub_agent_with_a_memory_of_its_own(url):
    """`persistent_stream()` lives as long as a context: a turn that was cut off has it, a reply of another life not."""
    worker = FunctionConfig(count_requests)
    lives = iter([Killed(), None, None, None])

    async def die() -> str:
        if error := next(lives):
            raise error
        return "alive"

    calls = (call("ask", "1", objective="a"), call("ask", "2", objective="b"), call("die"))

    async def life(*further: str) -> list[str | None]:
        helper = Agent("worker", config=worker).as_tool(name="ask", description="asks", stream=persistent_stream())
        agent = Agent("clerk", config=FunctionConfig(call_once_each(*calls)), tools=[helper, die])
        reply = await resumable(agent, session_id="s", store=url, tools={"die": "read"}).ask("go", turn="1")
        return [reply.body, *[(await reply.ask("on", turn=turn)).body for turn in further]]

    with pytest.raises(Killed):
        run(life)
    first, second = asyncio.run(life("2"))
    assert (first, second) == ("done: request 1, request 2, alive", "done: request 3, request 4, alive")
    assert len(worker.requests) == 4
    assert asyncio.run(life("3"))[1] == "done: request 1, request 2, alive"


@survives("agents in the background", "are refused")
def test_an_agent_in_the_background_is_refused(url):
    async def main() -> None:
        helper = Agent("helper", config=FunctionConfig(count_requests))
        agent = Agent(
            "a", config=FunctionConfig(count_requests), tools=[background_agent_tool(helper, description="helps")]
        )
        with pytest.raises(
            UsageError, match=r"'background_task_helper', which runs an agent in the background.*as_tool"
        ):
            await resumable(agent, session_id="s", store=url).ask("go")

    run(main)


def test_a_model_that_reads_parallel_results_is_not_asked_again(url):
    """In the first life the second tool ends first; the next one replays both at once."""
    sealed: list[str] = []

    async def first() -> str:
        await asyncio.to_thread(wait_for_step, url, "second")
        return "one"

    async def second() -> str:
        return "two"

    def seal(what: str) -> str:
        sealed.append(what)
        return f"sealed {what}"

    def make(*, is_away: bool) -> tuple[Any, FunctionConfig]:
        def answer(events: Sequence[BaseEvent]) -> Any:
            results = results_of(events)
            if len(results) == 3:
                return ConnectionError("away") if is_away else "concluded"
            return [call("seal", what="it")] if results else [call("first"), call("second")]

        config = FunctionConfig(answer)
        agent = Agent("clerk", config=config, tools=[first, second, seal])
        return resumable(agent, session_id="s", store=url), config

    with pytest.raises(ConnectionError):
        run(lambda: make(is_away=True)[0].ask("go", turn="1"))
    agent, config = make(is_away=False)
    assert run(lambda: agent.ask("go", turn="1")).body == "concluded"
    assert (len(config.requests), sealed) == (1, ["it"])
