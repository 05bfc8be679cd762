"""Haystack's agents: turns, tools, hooks, people, sub-agents, forks, transcripts, and states saved by hand."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from framework_environments import require
from survives import survives

require("haystack")

from haystack_model import FunctionModel, answer_once_called, call, echo, refuse, results_of  # isort: skip  # first

from haystack.components.agents import Agent, State
from haystack.components.generators.chat import LLM, MockChatGenerator
from haystack.dataclasses import ByteStream, ChatMessage, Document, ImageContent, ReasoningContent, TextContent
from haystack.hooks import hook
from haystack.hooks.human_in_the_loop import (
    AlwaysAskPolicy,
    AskOncePolicy,
    BlockingConfirmationStrategy,
    ConfirmationHook,
    SimpleConsoleUI,
    ToolExecutionDecision,
)
from haystack.tools import AgentTool, SearchableToolset, Toolset, tool
from haystack_turns import Interrupted, in_both_ways, run, run_awaited, say

from holdfast import Client, SyncClient
from holdfast.errors import ApprovalPendingError, CorruptError, HoldfastWarning, UnfinishedTurnError, UsageError
from holdfast.haystack import extract, reconstruct, resumable
from holdfast.transcript import BlobPart, ReasoningPart, to_transcript


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


# -- turns -------------------------------------------------------------------------------------------------------------


@in_both_ways
def test_a_finished_run_returns_its_recorded_outputs(url, go):
    @tool(outputs_to_state={"found": {"source": "documents"}})
    def search(words: str) -> dict[str, Any]:
        """Search."""
        return {"documents": [Document(content=words, meta={"page": 7}, blob=ByteStream(b"\0\1", mime_type="x/y"))]}

    def make(model: FunctionModel) -> Any:
        schema = {"found": {"type": list[Document]}}
        agent = Agent(chat_generator=model, tools=[search], system_prompt="Be brief.", state_schema=schema)
        return resumable(agent, session_id="s", store=url)

    done = go(make(answer_once_called(call("search", words="it"))), "look", turn="1")
    again = go(make(refuse()), "look", turn="1")
    assert again == done
    assert (again["step_count"], again["exit_reason"], again["tool_call_counts"]) == (2, "text", {"search": 1})
    assert again["found"][0].blob.data == b"\0\1"
    assert again["messages"][0].text == "Be brief."
    assert again["last_message"] == again["messages"][-1]


def test_runs_of_an_agent_are_one_conversation_in_every_life(url):
    for number, heard in enumerate(("1 heard", "2 heard", "3 heard")):
        agent = resumable(Agent(chat_generator=echo(), system_prompt="Listen."), session_id="s", store=url)
        assert (run, run_awaited)[number % 2](agent, f"message {number}")["last_message"].text == heard
    same = say("message 3")
    assert [agent.run(same)["last_message"].text for _ in range(2)] == ["4 heard", "5 heard"]
    with SyncClient.open(url) as client:
        spoken = to_transcript(client.latest(session_id="s"))
    said = [(f"message {number}", f"{number + 1} heard") for number in range(4)] + [("message 3", "5 heard")]
    assert [one.text for one in spoken] == [text for pair in said for text in pair]


@in_both_ways
def test_a_misspelt_tool_is_refused(url, go):
    @tool
    def search(words: str) -> str:
        """Search."""
        return words

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    @tool
    def refund(amount: int) -> str:
        """Pay back."""
        return "paid back"

    cashier = AgentTool(Agent(chat_generator=echo(), tools=[pay]), name="cashier", description="Pays.")
    agent = Agent(chat_generator=echo(), tools=[Toolset([search]), cashier])

    def make(**tools: str) -> Any:
        return resumable(agent, session_id="s", store=url, tools=tools)

    with pytest.raises(UsageError, match=r"'serch'.*Did you mean 'search'.*It has 'cashier', 'pay', 'search'"):
        go(make(serch="read"), "hi")
    with SyncClient.open(url) as client:
        assert client.latest(session_id="s") is None
    go(make(search="read", pay="irreversible"), "hi")
    go(make(refund="irreversible"), "hi", tools=[refund])  # of this run only
    found = SearchableToolset(catalog=[search, pay])
    go(resumable(Agent(chat_generator=echo(), tools=found), session_id="u", store=url, tools={"later": "read"}), "")
    with pytest.warns(HoldfastWarning, match=r"'serch'.*Did you mean 'search'"):
        go(resumable(Agent(chat_generator=echo(), tools=found), session_id="t", store=url, tools={"serch": "read"}), "")


def test_another_run_is_refused_while_one_is_unfinished(url):
    def interrupt(_: Any) -> Any:
        raise Interrupted

    with pytest.raises(Interrupted):
        run(resumable(Agent(chat_generator=FunctionModel(interrupt)), session_id="s", store=url), "this")
    agent = resumable(Agent(chat_generator=echo()), session_id="s", store=url)
    with pytest.raises(UnfinishedTurnError, match="that"):
        run(agent, "that")
    assert run_awaited(agent, "this")["last_message"].text == "1 heard"  # begun by `run`
    assert run(agent, "that")["last_message"].text == "2 heard"


@survives("an undeclared tool under way", "the model reads that it was interrupted")
@in_both_ways
def test_a_run_that_was_cut_off_asks_no_question_twice(url, go):
    paid: list[str] = []

    @tool
    def pay(invoice: str) -> str:
        """Pay."""
        paid.append(invoice)
        if len(paid) == 2:
            raise Interrupted
        return f"receipt {invoice}"

    def life(model: FunctionModel) -> Any:
        return go(resumable(Agent(chat_generator=model, tools=[pay]), session_id="s", store=url), "pay both")

    calls = (call("pay", "1", invoice="a"), call("pay", "2", invoice="b"))
    first, second = answer_once_called(*calls), answer_once_called(*calls)
    with pytest.raises(Interrupted):
        life(first)
    done = life(second)
    assert (first.asked, second.asked, paid) == (2, 1, ["a", "b"])
    assert done["step_count"] == 3
    told = done["messages"][-2].tool_call_result
    assert (told.error, "its outcome is unknown" in told.result) == (True, True)
    assert "receipt a" in done["last_message"].text


def test_the_users_objects_stay_as_they_are(url):
    seen: list[Any] = []

    @tool
    def look() -> str:
        """Look."""
        seen.append((agent.chat_generator, agent.tools, agent.hooks))
        if len(seen) == 1:  # another run of the same agent, within the turn: nothing of it is recorded
            seen.append(agent.run(say("aside"))["last_message"].text)
        return "seen"

    @hook
    def note(state: State) -> None:
        pass

    model, tools, hooks = answer_once_called(call("look")), [look], {"before_llm": [note]}
    agent = Agent(chat_generator=model, tools=tools, hooks=hooks)
    assert run(resumable(agent, session_id="s", store=url), "go")["last_message"].text == "done: seen"
    mine = (model, tools, hooks)
    assert [all(a is b for a, b in zip(one, mine, strict=True)) for one in seen if isinstance(one, tuple)] == [True] * 2
    assert "done: seen" in seen
    with SyncClient.open(url) as client:
        assert sum(one.step_name == "look" for one in client.timeline("s")) == 1


def test_what_resumable_does_not_take_is_refused(url):
    agent = Agent(chat_generator=echo())
    with pytest.raises(UsageError, match="takes an Agent or a Pipeline"):
        resumable(echo(), session_id="s", store=url)
    with pytest.raises(UsageError, match="SyncClient"):
        resumable(agent, session_id="s", store=42)

    async def block() -> None:
        async with Client.memory() as client:
            with pytest.raises(UsageError, match="must be a SyncClient"):
                run(resumable(agent, session_id="s", store=client), "hello")

    asyncio.run(block())
    with SyncClient.memory() as client, pytest.raises(UsageError, match="must be a Client"):
        run_awaited(resumable(agent, session_id="s", store=client), "hello")


def test_an_llm_is_an_agent_without_tools(url):
    def make(model: FunctionModel) -> Any:
        llm = LLM(chat_generator=model, user_prompt="Say {{ word }}.")
        return resumable(llm, session_id="s", store=url)

    done = make(FunctionModel(lambda said: said[-1].text)).run(word="yes", turn="1")
    assert done["last_message"].text == "Say yes."
    assert asyncio.run(make(refuse()).run_async(word="yes", turn="1")) == done


# -- hooks -------------------------------------------------------------------------------------------------------------


@survives("a hook that changed the `State`", "not run again; its change is applied")
@survives("a hook that changed nothing", "runs again")
@in_both_ways
def test_a_hook_that_changed_the_state_is_not_run_again(url, go):
    made: list[str] = []
    looked: list[int] = []

    @hook
    def stamp(state: State) -> None:
        made.append(uuid.uuid4().hex)
        state.set("messages", [ChatMessage.from_user(f"stamp {made[-1]}")])

    @hook
    def look(state: State) -> None:
        looked.append(len(state.data["messages"]))

    def life(*, is_cut_off: bool) -> Any:
        model = FunctionModel(lambda said: interrupt() if is_cut_off and len(said) > 3 else message(said))
        agent = Agent(chat_generator=model, tools=[drop], hooks={"before_llm": [stamp, look]})
        return go(resumable(agent, session_id="s", store=url), "go"), model.asked

    def message(said: Any) -> Any:
        return said[1].text if len(said) > 3 else ChatMessage.from_assistant(tool_calls=[call("drop")])

    @tool
    def drop() -> str:
        """Drop."""
        return "dropped"

    def interrupt() -> Any:
        raise Interrupted

    with pytest.raises(Interrupted):
        life(is_cut_off=True)
    done, asked = life(is_cut_off=False)
    assert (done["last_message"].text, asked) == (f"stamp {made[0]}", 1)
    assert len(made) == 2
    assert looked == [2, 5, 2, 5]  # it changes nothing, so it may well run again


@survives("a conversation that a hook shortened", "stays short; nothing said is lost")
def test_a_shortened_conversation_stays_short_and_earlier_outputs_stay_whole(url):
    @hook
    def shorten(state: State) -> None:
        said = state.data["messages"]
        if len(said) > 4:
            state.set("messages", [ChatMessage.from_user("summary"), said[-1]], handler_override=lambda _, new: new)

    def life(model: FunctionModel) -> list[Any]:
        agent = Agent(chat_generator=model, hooks={"before_llm": [shorten]})
        agent = resumable(agent, session_id="s", store=url)
        return [run(agent, f"message {n}", turn=str(n)) for n in range(4)]

    def texts(outputs: list[Any]) -> list[Any]:
        return [[one.text for one in output["messages"]] for output in outputs]

    first = texts(life(FunctionModel(lambda said: f"{len(said)} read")))
    assert first[1] == ["message 0", "1 read", "message 1", "3 read"]
    assert first[2] == ["summary", "message 2", "2 read"]
    assert first[3] == ["summary", "message 2", "2 read", "message 3", "4 read"]
    assert texts(life(refuse())) == first
    with SyncClient.open(url) as client:
        spoken = [one.text for one in to_transcript(client.latest("s"))]
        stored = client.latest("s")
    assert spoken[:4] == first[1]  # nothing that was said is lost
    assert [one.text for one in reconstruct(stored, Agent(chat_generator=echo()))] == first[3]


# -- people ------------------------------------------------------------------------------------------------------------


def decide_elsewhere(url: str, *words: str) -> None:
    with SyncClient.open(url) as client:
        [asked] = client.approvals("s")
    command = [words[0], asked.approval_id, *words[1:], "--by", "ann", "--store", url]
    subprocess.run([sys.executable, "-m", "holdfast", *command], check=True, capture_output=True)


def ask_before(strategy: Any = None, policy: Any = None) -> dict[str, Any]:
    asking = BlockingConfirmationStrategy(
        confirmation_policy=policy or AlwaysAskPolicy(), confirmation_ui=SimpleConsoleUI()
    )
    return {"before_tool": [ConfirmationHook({("archive", "other"): strategy or asking})]}


def archiver(archived: list[str]) -> Any:
    @tool
    def archive(invoice: str) -> str:
        """Archive."""
        archived.append(invoice)
        return f"archived {invoice}"

    return archive


@survives("questions to a person", "wait, and keep their answer")
@in_both_ways
@pytest.mark.parametrize(
    ("words", "heard", "done"),
    [
        (["approve", "--yes"], "archived a", ["a"]),
        (["approve", "--yes", "--modify", '{"invoice": "b"}'], "archived b", ["b"]),
        (["reject", "--note", "not that one"], "With user feedback: not that one", []),
    ],
)
def test_a_question_waits_for_a_person_in_any_process(url, go, words, heard, done):
    archived: list[str] = []

    def life() -> Any:
        model = answer_once_called(call("archive", invoice="a"))
        agent = Agent(chat_generator=model, tools=[archiver(archived)], hooks=ask_before())
        return go(resumable(agent, session_id="s", store=url, tools={"archive": "idempotent"}), "go")

    for _ in range(2):
        with pytest.raises(ApprovalPendingError, match="archive"):
            life()
    assert not archived
    decide_elsewhere(url, *words)
    assert heard in life()["last_message"].text
    assert archived == done


def test_all_questions_of_a_step_wait_at_the_same_time(url):
    archived: list[str] = []
    calls = [call("archive", str(n), invoice=str(n)) for n in range(3)]
    policy = AskOncePolicy()
    agent = Agent(
        chat_generator=answer_once_called(calls, call("archive", "again", invoice="2")),
        tools=[archiver(archived)],
        hooks=ask_before(policy=policy),
    )
    agent = resumable(agent, session_id="s", store=url)
    with pytest.raises(ApprovalPendingError):
        run(agent, "go")
    with SyncClient.open(url) as client:
        asked = client.approvals("s")
        assert len(asked) == 3
        for one in asked:
            client.decide(one.approval_id, "approve", by="ann")
    assert run(agent, "go")["last_message"].text == "done: archived 0, archived 1, archived 2, archived 2"
    assert sorted(archived) == ["0", "1", "2", "2"]  # asked once for each: the policy is the user's


def test_an_answer_is_used_for_its_own_call_only(url):
    """A second call with the same id and arguments is another question, also after a restart."""
    archived: list[str] = []

    def life(*, is_cut_off: bool) -> Any:
        model = answer_once_called(call("archive", "1", invoice="a"), call("archive", "1", invoice="a"))
        answer = model.answer
        model.answer = lambda said: interrupt() if results_of(said) and is_cut_off else answer(said)
        agent = Agent(chat_generator=model, tools=[archiver(archived)], hooks=ask_before())
        return run(resumable(agent, session_id="s", store=url), "go")["last_message"].text

    def interrupt() -> Any:
        raise Interrupted

    with pytest.raises(ApprovalPendingError):
        life(is_cut_off=True)
    decide_elsewhere(url, "approve", "--yes")
    with pytest.raises(Interrupted):
        life(is_cut_off=True)
    with pytest.raises(ApprovalPendingError):
        life(is_cut_off=False)
    assert archived == ["a"]
    decide_elsewhere(url, "approve", "--yes")
    assert life(is_cut_off=False) == "done: archived a, archived a"


def test_a_strategy_of_ones_own_asks_once(url):
    asked: list[str] = []

    class Slack:
        def run(self, *, tool_name: str, tool_params: Any, tool_call_id: Any = None, **_: Any) -> Any:
            asked.append(tool_name)
            return ToolExecutionDecision(tool_name, execute=False, tool_call_id=tool_call_id, feedback="no")

    def life(*, is_cut_off: bool) -> Any:
        model = answer_once_called(call("archive", invoice="a"))
        answer = model.answer
        model.answer = lambda said: interrupt() if results_of(said) and is_cut_off else answer(said)
        agent = Agent(chat_generator=model, tools=[archiver([])], hooks=ask_before(strategy=Slack()))
        return run(resumable(agent, session_id="s", store=url), "go")["last_message"].text

    def interrupt() -> Any:
        raise Interrupted

    with pytest.raises(Interrupted):
        life(is_cut_off=True)
    assert life(is_cut_off=False) == "done: no"
    assert asked == ["archive"]


# -- streams -----------------------------------------------------------------------------------------------------------


@survives("recorded answers", "not streamed again")
def test_a_recorded_answer_is_not_streamed_again(url):
    chunks: list[str] = []

    def life() -> Any:
        agent = Agent(chat_generator=MockChatGenerator("one two three"))
        agent = resumable(agent, session_id="s", store=url)
        return agent.run(say("go"), lambda chunk: chunks.append(chunk.content), turn="1")["last_message"].text

    assert (life(), life()) == ("one two three", "one two three")
    assert "".join(chunks) == "one two three"


# -- forks, transcripts, saves by hand ---------------------------------------------------------------------------------


def test_a_fork_is_a_second_conversation_over_the_same_history(url):
    def heard(session: str, text: str) -> str:
        return run(resumable(Agent(chat_generator=echo()), session_id=session, store=url), text)["last_message"].text

    heard("s", "one")
    with SyncClient.open(url) as client:
        client.fork("s", session_id="other")
    assert (heard("other", "two"), heard("s", "three")) == ("2 heard", "2 heard")
    with SyncClient.open(url) as client:
        assert [one.text for one in to_transcript(client.latest("other")) if one.role == "user"] == ["one", "two"]


def test_a_conversation_reads_well_finished_or_cut_off(url):
    @tool
    def search(words: str) -> str:
        """Search."""
        return f"found {words}"

    def life(*, is_cut_off: bool) -> None:
        model = answer_once_called(call("search", words="it"))
        answer = model.answer
        model.answer = lambda said: interrupt() if results_of(said) and is_cut_off else answer(said)
        run(resumable(Agent(chat_generator=model, tools=[search]), session_id="s", store=url), "look for it")

    def interrupt() -> Any:
        raise Interrupted

    def shown() -> list[Any]:
        with SyncClient.open(url) as client:
            spoken = to_transcript(client.latest(session_id="s"))
            return [spoken.cursor.is_finished, *((one.role, one.text) for one in spoken)]

    with pytest.raises(Interrupted):
        life(is_cut_off=True)
    assert shown() == [False, ("user", "look for it"), ("assistant", ""), ("tool", "")]
    life(is_cut_off=False)
    assert shown() == [
        True, ("user", "look for it"), ("assistant", ""), ("tool", ""), ("assistant", "done: found it"),
    ]  # fmt: skip


@survives("images, files, reasoning", "come back as they were")
def test_images_and_reasoning_survive(url):
    image = ImageContent(base64_image="iVBORw0KGgo=", mime_type="image/png", validation=False)

    @tool(outputs_to_string={"raw_result": True})
    def draw() -> list[Any]:
        """Draw."""
        return [TextContent("a picture"), image]

    def answer(said: Any) -> ChatMessage:
        thought = ReasoningContent("let me see", extra={"signature": "s"})
        if said[-1].is_from("tool"):
            return ChatMessage.from_assistant("seen", reasoning=thought)
        return ChatMessage.from_assistant(tool_calls=[call("draw")], reasoning=thought)

    given = [ChatMessage.from_user(content_parts=["look", image])]
    agent = Agent(chat_generator=FunctionModel(answer), tools=[draw])
    done = resumable(agent, session_id="s", store=url).run(given, turn="1")
    agent = Agent(chat_generator=refuse(), tools=[draw])
    assert resumable(agent, session_id="s", store=url).run(given, turn="1") == done
    assert done["messages"][2].tool_call_result.result == [TextContent("a picture"), image]
    with SyncClient.open(url) as client:
        parts = [part for one in to_transcript(client.latest("s")) for part in one.parts]
    assert BlobPart(mime_type="image/png", data=b"\x89PNG\r\n\x1a\n") in parts
    thoughts = [(part.content, part.encrypted) for part in parts if isinstance(part, ReasoningPart)]
    assert thoughts == [("let me see", '{"signature": "s"}')] * 2


def test_a_message_that_cant_be_read_is_reported(url):
    with SyncClient.open(url) as client:
        state = {"messages": [{"role": "user", "content": [{"unheard_of": 1}]}], "turn": None}
        client.save(agent_id="a", framework="haystack", session_id="s", execution_state=state)
    with pytest.raises(CorruptError, match="ChatMessage"):
        run(resumable(Agent(chat_generator=echo()), session_id="s", store=url), "hello")


def test_a_conversation_saved_by_hand_goes_on_in_another_object(url):
    agent = Agent(chat_generator=echo(), system_prompt="Listen.")
    outputs = agent.run(say("hello"))
    with SyncClient.open(url) as client:
        checkpoint = extract(outputs, agent_id="a", session_id="s", context={"invoice": 7})
        saved = client.restore(client.save_checkpoint(checkpoint))
    messages = reconstruct(saved, agent)
    assert messages == outputs["messages"][1:]
    assert agent.run([*messages, *say("again")])["last_message"].text == "2 heard"
    assert run(resumable(agent, session_id="s", store=url), "again")["last_message"].text == "2 heard"
    for refused in (
        lambda: extract("text", agent_id="a", session_id="s"),
        lambda: reconstruct(saved, echo()),
        lambda: reconstruct("s", agent),
    ):
        with pytest.raises(UsageError, match="takes"):
            refused()
