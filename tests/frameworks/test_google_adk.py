"""Turns, services, manual control, transcripts and forks of agents of Google ADK."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from framework_environments import require
from stored_secrets import assert_secret_is_not_stored
from survives import survives

require("google_adk")

from fastapi.openapi.models import OAuth2, OAuthFlowAuthorizationCode, OAuthFlows
from google.adk.agents import LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps.app import App
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_tool import AuthConfig
from google.adk.events.event import Event
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import FunctionTool, exit_loop
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.workflow import Workflow
from google.genai import types
from google_adk_events import responses, sender
from google_adk_turns import FakeModel, Killed, agent, picture, restart, run

from holdfast import NOT_DONE, Client, Effect, SyncClient, UsageError
from holdfast.adapters.base import session as sessions
from holdfast.errors import ApprovalPendingError, UnfinishedTurnError
from holdfast.google_adk import extract, reconstruct, resumable
from holdfast.transcript import to_transcript


@pytest.fixture(autouse=True)
def as_a_new_process() -> None:
    sessions._finished.clear()


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


def texts(events: list[Event]) -> list[str]:
    parts = [part for event in events for part in (event.content.parts if event.content else None) or ()]
    return [part.text for part in parts if part.text]


# -- turns -------------------------------------------------------------------------------------------------------------


def test_a_model_that_makes_up_a_tool_is_told(store):
    made_up = agent(("pay_all", {"invoice": "7"}), "sorry")
    events = run(resumable(made_up, session_id="s", store=store), "pay")
    [response] = responses(events)
    assert "no tool with that name is available" in response["error"]
    assert texts(events) == ["sorry"]


@survives("finished turns", "yield their events again")
def test_a_finished_turn_returns_its_recorded_events(store):
    first = run(resumable(agent("hello"), session_id="s", store=store), "hi")
    restart()
    again = run(resumable(agent("never asked"), session_id="s", store=store), "hi")
    assert [one.model_dump() for one in again] == [one.model_dump() for one in first]
    assert texts(again) == ["hello"]


def test_a_server_names_its_turns(store):
    target = resumable(agent("one", "two"), session_id="s", store=store)
    told = [texts(run(target, "hi", turn=turn)) for turn in ("message-1", "message-1", "message-2")]
    assert told == [["one"], ["one"], ["two"]]


def test_a_turn_sees_the_conversation_before_it(store):
    run(resumable(agent("hello Ada"), session_id="s", store=store), "I am Ada")
    restart()
    second = agent("Ada")
    run(resumable(second, session_id="s", store=store), "who am I?", turn="2")
    [request] = second.model.asked
    assert [content.parts[0].text for content in request.contents] == ["I am Ada", "hello Ada", "who am I?"]


def test_another_turn_while_one_is_unfinished_is_refused(store):
    with pytest.raises(Killed):
        run(resumable(agent(), session_id="s", store=store), "first")
    with pytest.raises(UnfinishedTurnError, match=r"'first'.*'second'"):
        run(resumable(agent("x"), session_id="s", store=store), "second")
    assert texts(run(resumable(agent("done"), session_id="s", store=store), "first")) == ["done"]


def test_a_turn_that_its_reader_leaves_continues(store):
    async def read_one(target: Any) -> None:
        async for _ in target.run_async(user_id="ann", new_message="hi"):
            break

    def look() -> str:
        """Look."""
        return "seen"

    asyncio.run(read_one(resumable(agent(("look", {}), tools=[look]), session_id="s", store=store)))
    assert texts(run(resumable(agent("done", tools=[look]), session_id="s", store=store), "hi")) == ["done"]


def test_a_session_belongs_to_its_user(store):
    run(resumable(agent("hello"), session_id="s", store=store), "hi")
    target = resumable(agent("hello"), session_id="s", store=store)
    with pytest.raises(UsageError, match="belongs to the user 'ann', not to 'bob'"):
        list(target.run(user_id="bob", new_message="and?"))


@pytest.mark.parametrize(("given", "match"), [(7, "it must be a types.Content, or a text")])
def test_what_is_no_message_is_refused(store, given, match):
    with pytest.raises(UsageError, match=match):
        run(resumable(agent("x"), session_id="s", store=store), given)


def test_what_is_no_agent_is_refused():
    with pytest.raises(UsageError, match="takes an agent, a workflow or an App of Google ADK, not a str"):
        resumable("agent", session_id="s")


def test_a_streamed_answer_comes_in_parts_and_is_recorded_whole(store):
    config = RunConfig(streaming_mode=StreamingMode.SSE)
    target = resumable(agent("hello"), session_id="s", store=store)
    assert [event.partial for event in run(target, "hi", run_config=config)] == [True, None]
    restart()
    assert texts(run(resumable(agent(), session_id="s", store=store), "hi", run_config=config)) == ["hello"]


def test_what_is_changed_in_memory_or_by_others_between_turns(store):
    """A callback and a user change events in place, another process rolls back: the store tells the conversation."""
    seen: list[list[str]] = []

    def look(callback_context: Any) -> None:
        session = callback_context._invocation_context.session
        seen.append([event.content.parts[0].text for event in session.events])
        for event in session.events[:-1]:
            event.content.parts[0].text = "changed by a callback"

    agent = LlmAgent(name="a", model=FakeModel(answers=list("1234"), asked=[]), before_agent_callback=look)

    async def main() -> None:
        async with Client.open(store) as client:
            app = resumable(agent, session_id="s", store=client)
            for number in range(3):
                async for event in app.run_async(user_id="u", new_message=f"prompt {number + 1}"):
                    last = event
                last.content.parts[0].text = "changed by the user"
                if number == 0:
                    first = (await client.latest("s")).checkpoint_id
            assert seen[2] == ["prompt 1", "1", "prompt 2", "2", "prompt 3"]
            async with Client.open(store) as another:
                await another.rollback("s", to=first)
            async for _ in app.run_async(user_id="u", new_message="prompt 4"):
                pass
            assert seen[3] == ["prompt 1", "1", "prompt 4"]

    asyncio.run(main())


def test_a_misspelt_tool_is_refused(store):
    def search(query: str) -> str:
        return query

    def pay(amount: int) -> str:
        return "paid"

    inner = LlmAgent(name="inner", model=FakeModel(answers=[], asked=[]), tools=[pay])
    agent = LlmAgent(
        name="a", model=FakeModel(answers=["1", "2"], asked=[]), tools=[search, AgentTool(inner)], sub_agents=[]
    )
    misspelt = resumable(agent, session_id="s", store=store, tools={"serch": "read"})
    with pytest.raises(UsageError, match=r"'serch'.*Did you mean 'search'.*'inner', 'pay', 'search'"):
        list(misspelt.run(user_id="u", new_message="hello"))
    with SyncClient.open(store) as client:
        assert client.latest("s") is None
    right = resumable(agent, session_id="s", store=store, tools={"search": "read", "pay": "read"})
    list(right.run(user_id="u", new_message="hello"))

    class Further(BaseToolset):
        async def get_tools(self, readonly_context: Any = None) -> list[Any]:
            return []

    agent.tools.append(Further())  # which is asked for its tools during the turn
    other = resumable(agent, session_id="s", store=store, tools={"other": "read"})
    list(other.run(user_id="u", new_message="hello again"))


# -- tools -------------------------------------------------------------------------------------------------------------


SEND = ("send", {"to": "bob"})


@survives("an undeclared tool under way", "the model reads that it was interrupted")
def test_an_undeclared_call_that_was_under_way_is_told_to_the_model(store):
    called: list[str] = []
    with pytest.raises(Killed):
        run(resumable(agent(SEND, tools=[sender(called, kill=True)]), session_id="s", store=store), "send it")
    restart()
    events = run(resumable(agent("ok", tools=[sender(called)]), session_id="s", store=store), "send it")
    assert called == ["bob"]
    assert "interrupted" in json.dumps(responses(events))


def test_a_declared_call_that_was_not_done_is_made_again(store):
    called: list[str] = []
    tools = {"send": Effect("irreversible", key="to", probe=lambda to: NOT_DONE)}
    target = resumable(agent(SEND, tools=[sender(called, kill=True)]), session_id="s", store=store, tools=tools)
    with pytest.raises(Killed):
        run(target, "send it")
    restart()
    target = resumable(agent("ok", tools=[sender(called)]), session_id="s", store=store, tools=tools)
    assert responses(run(target, "send it")) == [{"result": "sent to bob"}]
    assert called == ["bob", "bob"]


@survives("state that tools have set", "is set again, without the tool")
def test_what_a_tool_does_to_the_state_is_replayed(store):
    counted: list[int] = []

    def count(tool_context: Any) -> int:
        """Count."""
        counted.append(1)
        tool_context.state["count"] = tool_context.state.get("count", 0) + 1
        tool_context.state["temp:seen"] = True
        return tool_context.state["count"]

    def build(*answers: Any) -> LlmAgent:
        return agent(*answers, tools=[count], instruction="so far: {count?}")

    with pytest.raises(Killed):
        run(resumable(build(("count", {}), ("count", {})), session_id="s", store=store), "count twice")
    restart()
    last = build("done")
    assert responses(run(resumable(last, session_id="s", store=store), "count twice")) == [{"result": 1}, {"result": 2}]
    assert len(counted) == 2
    assert "so far: 2" in str(last.model.asked[-1].config.system_instruction)
    with SyncClient.open(store) as client:
        assert client.latest("s").execution_state["state"] == {"count": 2}


def test_callbacks_and_plugins_run_as_without_us(store):
    seen: list[str] = []

    class Watcher(BasePlugin):
        async def after_model_callback(self, **_: Any) -> None:
            seen.append("plugin after model")

        async def before_tool_callback(self, **_: Any) -> None:
            seen.append("plugin before tool")

    def before_model(callback_context: Any, llm_request: Any) -> None:
        seen.append("before model")

    def after_tool(tool: Any, args: Any, tool_context: Any, tool_response: Any) -> Any:
        return {"changed": tool_response}

    target = agent(SEND, "ok", tools=[sender([])], before_model_callback=before_model, after_tool_callback=after_tool)
    app = App(name="office", root_agent=target, plugins=[Watcher(name="watcher")])
    events = run(resumable(app, session_id="s", store=store), "send it")
    assert responses(events) == [{"changed": "sent to bob"}]
    assert seen == ["before model", "plugin after model", "plugin before tool", "before model", "plugin after model"]
    assert isinstance(target.model, FakeModel)  # the agent is as it was
    assert len(app.plugins) == 1


@survives("parallel, sequential and loop agents", "finished ones are not run again")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_agents_in_parallel_in_a_sequence_and_in_a_loop_are_not_repeated(store):
    def build(kill: bool) -> tuple[Any, list[LlmAgent]]:
        left, right = agent("left", name="left"), agent("right", name="right")
        looping = agent("again", ("exit_loop", {}), name="looping", tools=[exit_loop])
        last = agent(*(() if kill else ("last",)), name="last")
        both = ParallelAgent(name="both", sub_agents=[left, right])
        loop = LoopAgent(name="loop", sub_agents=[looping], max_iterations=5)
        return SequentialAgent(name="all", sub_agents=[both, loop, last]), [left, right, looping]

    target, _ = build(kill=True)
    with pytest.raises(Killed):
        run(resumable(target, session_id="s", store=store), "go")
    restart()
    target, finished = build(kill=False)
    events = run(resumable(target, session_id="s", store=store), "go")
    assert sorted(texts(events)) == ["again", "last", "left", "right"]
    assert [len(one.model.asked) for one in finished] == [0, 0, 0]


class SlowModel(FakeModel):
    seconds: float = 0.2

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        await asyncio.sleep(self.seconds)
        async for response in super().generate_content_async(llm_request, stream):
            yield response


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_agent_that_hears_parallel_ones_in_another_order_is_not_asked_again(store):
    """In the first life the second one is quicker; in the next one both answers are replayed at once."""
    sealed: list[str] = []

    def seal(what: str) -> str:
        sealed.append(what)
        return f"sealed {what}"

    def make(*answers: Any) -> tuple[Any, LlmAgent]:
        slow = LlmAgent(name="slow", model=SlowModel(answers=["one"], asked=[]))
        both = ParallelAgent(name="both", sub_agents=[slow, agent("two", name="quick")])
        last = agent(*answers, tools=[seal], name="last")
        return resumable(SequentialAgent(name="root", sub_agents=[both, last]), session_id="s", store=store), last

    with pytest.raises(Killed):
        run(make(("seal", {"what": "it"}))[0], "go")
    restart()
    target, last = make("concluded")
    assert texts(run(target, "go"))[-1] == "concluded"
    assert sealed == ["it"]
    [asked] = last.model.asked
    assert asked.contents[-1].parts[0].function_response.response == {"result": "sealed it"}


@survives("nodes of a workflow", "agents are not run again; plain functions are")
def test_nodes_of_a_workflow_are_not_repeated(store):
    counted: list[str] = []

    def prepare(node_input: Any) -> str:
        counted.append("prepared")
        return "prepared"

    def build(*answers: str) -> tuple[Workflow, list[LlmAgent]]:
        first = agent("first", name="first")
        second = agent(*answers, name="second")
        return Workflow(name="flow", edges=[("START", first, prepare, second)]), [first, second]

    flow, _ = build()
    with pytest.raises(Killed):
        run(resumable(flow, session_id="s", store=store), "go")
    restart()
    flow, (first, second) = build("second")
    assert texts(run(resumable(flow, session_id="s", store=store), "go")) == ["first", "second"]
    assert (len(first.model.asked), len(second.model.asked)) == (0, 1)
    assert counted == ["prepared", "prepared"]  # a plain function is no call of a tool: it runs again


def test_after_a_rollback_an_irreversible_call_is_not_repeated(store):
    called: list[str] = []
    tools = {"send": Effect("irreversible", key="to")}
    run(resumable(agent("hello"), session_id="s", store=store), "hi")
    with SyncClient.open(store) as client:
        before = client.latest("s").checkpoint_id

    def send_it(*answers: Any) -> list[Event]:
        target = agent(*answers, tools=[sender(called)])
        return run(resumable(target, session_id="s", store=store, tools=tools), "send it", turn="2")

    assert responses(send_it(SEND, "ok")) == [{"result": "sent to bob"}]
    with SyncClient.open(store) as client:
        client.rollback("s", to=before)
    restart()
    assert "not carried out" in json.dumps(responses(send_it(SEND, "I see.")))
    assert called == ["bob"]


@survives("secrets of credentials that a tool asks for", "are never stored")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_secrets_of_credentials_that_a_tool_asks_for_are_not_stored(store, tmp_path):
    secret, code = "GOCSPX-adk-0123456789", "4/0-adk-code-9876543210"
    called: list[Any] = []
    config = AuthConfig(
        auth_scheme=OAuth2(
            flows=OAuthFlows(
                authorizationCode=OAuthFlowAuthorizationCode(
                    authorizationUrl="https://example.com/auth",
                    tokenUrl="https://example.com/token",
                    scopes={"read": "r"},
                )
            )
        ),
        raw_auth_credential=AuthCredential(
            auth_type=AuthCredentialTypes.OAUTH2, oauth2=OAuth2Auth(client_id="office", client_secret=secret)
        ),
    )

    def calendar(tool_context: Any) -> str:
        """Read the calendar."""
        if called:
            return "free"
        called.append(1)
        tool_context.request_credential(config)
        return "waiting for you"

    target = resumable(agent(("calendar", {}), "please log in", "free", tools=[calendar]), session_id="s", store=store)
    events = run(target, "am I free?")
    [asked] = [call for event in events for call in event.get_function_calls() if call.name == "adk_request_credential"]
    assert_secret_is_not_stored(store, secret, tmp_path)
    answer = asked.args["authConfig"]
    answer["exchangedAuthCredential"]["oauth2"]["authResponseUri"] = f"https://office/?code={code}"
    response = types.FunctionResponse(id=asked.id, name=asked.name, response=answer)
    message = types.Content(role="user", parts=[types.Part(function_response=response)])
    assert responses(run(target, message))[0] == {"result": "free"}
    assert_secret_is_not_stored(store, code, tmp_path)
    with SyncClient.open(store) as client:  # the call that ADK makes after the login is recorded, too
        assert [entry.step_name for entry in client.timeline("s")].count("calendar") == 2


# -- people ------------------------------------------------------------------------------------------------------------


def decide(store: str, session: str, decision: str, *options: str) -> None:
    with SyncClient.open(store) as client:
        [asked] = client.approvals(session)
    words = [sys.executable, "-m", "holdfast", "--store", store, decision, asked.short_id, "--by", "ann", *options]
    subprocess.run(words, check=True, capture_output=True, timeout=240)


@survives("questions to a person", "wait, and keep their answer")
@pytest.mark.parametrize(
    ("decision", "options", "wanted"),
    [("approve", ["--yes"], ["bob"]), ("approve", ["--yes", "--modify", '{"to": "eve"}'], ["eve"]), ("reject", [], [])],
)
def test_a_confirmation_is_decided_by_another_process(store, decision, options, wanted):
    called: list[str] = []
    tools = [FunctionTool(sender(called), require_confirmation=True)]
    with pytest.raises(ApprovalPendingError):
        run(resumable(agent(SEND, tools=tools), session_id="s", store=store), "send it")
    decide(store, "s", decision, *options)
    restart()
    events = run(resumable(agent("done", tools=tools), session_id="s", store=store), "send it")
    assert texts(events) == ["done"]
    assert called == wanted


def test_a_tool_that_asks_for_confirmation_itself_gets_it(store):
    called: list[Any] = []

    def book(days: int, tool_context: Any) -> str:
        """Book days off."""
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="really?")
            return "waiting"
        called.append(days)
        return "booked" if tool_context.tool_confirmation.confirmed else "not booked"

    with pytest.raises(ApprovalPendingError):
        run(resumable(agent(("book", {"days": 3}), tools=[book]), session_id="s", store=store), "book")
    decide(store, "s", "approve", "--yes")
    restart()
    events = run(resumable(agent("done", tools=[book]), session_id="s", store=store), "book")
    assert responses(events) == [{"result": "booked"}]
    assert called == [3]


# -- manual control, transcripts, forks --------------------------------------------------------------------------------


def test_a_session_is_extracted_saved_and_reconstructed(store):
    async def talk() -> Any:
        service = InMemorySessionService()
        target = agent(SEND, "ok", tools=[sender([])])
        runner = Runner(app=App(name="office", root_agent=target), session_service=service, auto_create_session=True)
        message = types.Content(role="user", parts=[types.Part(text="send it"), picture()])
        async for _ in runner.run_async(user_id="ann", session_id="s", new_message=message, state_delta={"n": 1}):
            pass
        return await service.get_session(app_name="office", user_id="ann", session_id="s")

    session = asyncio.run(talk())
    checkpoint = extract(session, agent_id="office", session_id="by-hand", context={"invoice": 7})
    with SyncClient.open(store) as client:
        saved = client.restore(client.save_checkpoint(checkpoint))
    assert (saved.framework, saved.step_name, saved.agent_context) == ("google_adk", "clerk", {"invoice": 7})
    rebuilt = asyncio.run(reconstruct(saved, InMemorySessionService(), session_id="s"))
    assert [event.model_dump() for event in rebuilt.events] == [event.model_dump() for event in session.events]
    assert rebuilt.state == session.state
    following = agent("bob", tools=[sender([])])
    run(resumable(following, session_id="by-hand", store=store), "to whom?")
    assert len(following.model.asked[0].contents) == 5


def test_what_is_no_session_is_refused(store):
    with pytest.raises(UsageError, match="takes a Session of ADK, not a str"):
        extract("s", agent_id="a", session_id="s")
    run(resumable(agent("hello"), session_id="s", store=store), "hi")
    with SyncClient.open(store) as client:
        found = client.latest("s")
    with pytest.raises(UsageError, match="takes a session service of ADK"):
        asyncio.run(reconstruct(found, agent("x")))


def test_a_transcript_has_roles_calls_results_and_images(store):
    content = types.Content(role="user", parts=[types.Part(text="send it"), picture()])
    twice = ["I send it.", SEND, ("send", {"to": "eve"})]
    run(resumable(agent(twice, "ok", tools=[sender([])]), session_id="s", store=store), content)
    with SyncClient.open(store) as client:
        told = to_transcript(client.latest("s"))
        steps = [entry.step_name for entry in client.timeline("s")][::-1]
    assert [message.role for message in told.messages] == ["user", "assistant", "tool", "tool", "assistant"]
    user, asked, answered, also_answered, _ = told.messages
    assert [part.kind for part in user.parts] == ["text", "blob"]
    assert [part.kind for part in asked.parts] == ["text", "tool_call", "tool_call"]
    assert also_answered.parts[0].id == asked.tool_calls[1].id
    assert asked.tool_calls[0].arguments == {"to": "bob"}
    assert answered.parts[0].id == asked.tool_calls[0].id
    assert answered.parts[0].content[0].content == "sent to bob"
    assert (steps[0], steps[-1]) == ("run_async started", "run_async")
    assert set(steps[1:-1]) == {"clerk", "send started", "send"}


def test_messages_of_a_turn_that_was_cut_off_are_shown(store):
    with pytest.raises(Killed):
        run(resumable(agent(SEND, tools=[sender([])]), session_id="s", store=store), "send it")
    with SyncClient.open(store) as client:
        told = to_transcript(client.latest("s"))
    assert [message.role for message in told.messages] == ["user", "assistant", "tool"]
    assert told.messages[1].tool_calls[0].name == "send"


def test_a_fork_continues_by_itself(store):
    run(resumable(agent("one"), session_id="s", store=store), "hi")
    with SyncClient.open(store) as client:
        client.fork("s", session_id="fork")
    run(resumable(agent("main"), session_id="s", store=store), "and?")
    forked = agent("other")
    assert texts(run(resumable(forked, session_id="fork", store=store), "and?")) == ["other"]
    assert [content.parts[0].text for content in forked.model.asked[0].contents] == ["hi", "one", "and?"]
