"""CrewAI's crews, flows and agents: turns, tools, people, forks, transcripts, and states saved by hand."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from framework_environments import require
from survives import survives

require("crewai")

from crewai import Agent, Crew, Task
from crewai.flow.async_feedback import HumanFeedbackPending
from crewai.flow.flow import Flow, listen, start
from crewai.flow.human_feedback import human_feedback
from crewai.tools import BaseTool, tool
from crewai_model import FunctionModel, answer_once_called, call  # before CrewAI: no telemetry
from crewai_turns import Interrupted, echo, make_agent, make_crew, make_flow
from pydantic import BaseModel

from holdfast import Effect, SyncClient
from holdfast.crewai import extract, reconstruct, resumable
from holdfast.errors import ApprovalPendingError, UnfinishedTurnError, UsageError
from holdfast.transcript import to_transcript


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


# -- turns -------------------------------------------------------------------------------------------------------------


def test_a_finished_kickoff_returns_its_recorded_output(url):
    class Report(BaseModel):
        title: str

    first = echo()
    crew = make_crew(make_agent(first))
    done = resumable(crew, session_id="s", store=url).kickoff({"what": "this"}, turn="1")
    second = FunctionModel.make(lambda _: pytest.fail("it was asked again"))
    again = resumable(make_crew(make_agent(second)), session_id="s", store=url).kickoff({"what": "this"}, turn="1")
    assert again == done
    assert (first.asked, again.raw, again.token_usage.total_tokens) == (1, "1 heard", 15)
    assert [message["role"] for message in again.tasks_output[0].messages] == ["system", "user"]  # CrewAI's way

    shaped = FunctionModel.make(lambda _: Report(title="ours"))
    agent = make_agent(shaped)
    told = resumable(agent, session_id="a", store=url).kickoff("report", turn="1", response_format=Report)
    same = resumable(agent, session_id="a", store=url).kickoff("report", turn="1", response_format=Report)
    assert told.pydantic == same.pydantic == Report(title="ours")
    assert shaped.asked == 1


@survives("the conversation of an agent", "sent with its next kickoff")
def test_kickoffs_of_an_agent_are_one_conversation_in_every_life(url):
    for number, heard in enumerate(("1 heard", "2 heard", "3 heard")):
        agent = resumable(make_agent(echo()), session_id="s", store=url)
        assert agent.kickoff(f"message {number}").raw == heard
    assert asyncio.run(agent.kickoff_async("message 3")).raw == "4 heard"
    with SyncClient.open(url) as client:
        spoken = to_transcript(client.latest(session_id="s"))
    words = [text for number in range(4) for text in (f"message {number}", f"{number + 1} heard")]
    assert [one.text for one in spoken] == words


def test_another_kickoff_is_refused_while_one_is_unfinished(url):
    def interrupt(_: Any) -> Any:
        raise Interrupted

    broken = resumable(make_crew(make_agent(FunctionModel.make(interrupt))), session_id="s", store=url)
    with pytest.raises(Interrupted):
        broken.kickoff({"what": "this"})
    crew = resumable(make_crew(make_agent(echo())), session_id="s", store=url)
    with pytest.raises(UnfinishedTurnError, match="'what': 'that'"):
        crew.kickoff({"what": "that"})
    assert crew.kickoff({"what": "this"}).raw == "1 heard"
    assert crew.kickoff({"what": "that"}).raw == "1 heard"


@survives("an undeclared tool under way", "the model reads that it was interrupted")
@survives("token counts", "those of the turn, in all its lives")
def test_a_kickoff_that_was_cut_off_asks_no_question_twice(url):
    paid: list[str] = []

    @tool
    def pay(invoice: str) -> str:
        """Pays."""
        paid.append(invoice)
        if len(paid) == 2:
            raise Interrupted
        return f"receipt {invoice}"

    def life(model: FunctionModel) -> Any:
        return resumable(make_crew(make_agent(model, pay)), session_id="s", store=url).kickoff({"what": "it"})

    calls = (call("pay", "1", invoice="a"), call("pay", "2", invoice="b"))
    first, second = answer_once_called(*calls), answer_once_called(*calls)
    with pytest.raises(Interrupted):
        life(first)
    done = life(second)
    assert paid == ["a", "b"]
    assert done.raw.startswith("done: receipt a, This call was interrupted")
    assert (first.asked, second.asked) == (2, 1)
    assert done.token_usage.successful_requests == 3  # those of both lives


def test_agents_models_and_tools_are_themselves_again_after_a_kickoff(url):
    @tool
    def search() -> str:
        """Searches."""
        return "found"

    class Look(BaseTool):
        name: str = "look"
        description: str = "Looks."

        def _run(self) -> str:
            return "seen"

    agent = make_agent(answer_once_called(call("search"), call("look")), search, Look())
    before = [type(agent.llm), *map(type, agent.tools)]
    assert resumable(agent, session_id="s", store=url).kickoff("go").raw == "done: found, seen"
    assert [type(agent.llm), *map(type, agent.tools)] == before
    assert agent.kickoff("go").raw == "done: found, seen"  # without a session


@pytest.mark.parametrize("is_crew", [True, False])
def test_a_plan_is_asked_for_once(url, is_crew):
    asked: list[str] = []

    def answer(said: Any) -> Any:
        text = str(said)
        asked.append("plan" if "plan" in str(said[0]["content"]).lower() else "work")
        if "work" in asked and is_cut_off:
            raise Interrupted
        return (
            "READY: I am ready to execute the task. the plan is to work" if asked[-1] == "plan" else f"{len(text) > 0}"
        )

    def life() -> Any:
        agent = make_agent(FunctionModel.make(answer), planning=True)
        if is_crew:
            return resumable(make_crew(agent), session_id="s", store=url).kickoff({"what": "it"})
        return resumable(agent, session_id="s", store=url).kickoff("it")

    is_cut_off = True
    with pytest.raises(Interrupted):
        life()
    plans, is_cut_off = asked.count("plan"), False
    life()
    assert plans > 0
    assert asked.count("plan") == plans


def test_calls_that_cant_be_recorded_end_the_turn(url):
    class Odd(FunctionModel):
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "__class__":
                raise TypeError("no other class")
            super().__setattr__(name, value)

    model = Odd.make(lambda _: pytest.fail("it was asked"))
    with pytest.raises(UsageError, match="can't be recorded: TypeError"):
        resumable(make_crew(make_agent(model)), session_id="s", store=url).kickoff({"what": "it"})


def test_sessions_that_share_an_agents_model_record_their_own_calls(url):
    model = echo()

    def talk(number: int) -> str:
        agent = resumable(make_agent(model), session_id=f"s{number}", store=url)
        return [agent.kickoff(f"message {one}").raw for one in range(3)][-1]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(talk, range(4))) == ["3 heard"] * 4
    assert model.asked == 12
    with SyncClient.open(url) as client:
        for number in range(4):
            steps = [one.step_name for one in client.timeline(f"s{number}", limit=None)]
            assert steps.count("clerk") == 3


@survives("`stream=True`", "refused")
def test_what_resumable_does_not_take_is_refused(url):
    crew = make_crew(make_agent(echo()))
    with pytest.raises(UsageError, match="a Crew, a Flow or an Agent"):
        resumable(crew.tasks[0], session_id="s", store=url)

    async def call_it_in_a_loop(target: Any, given: Any) -> None:
        resumable(target, session_id="s", store=url).kickoff(given)

    for target, given in ((crew, {"what": "it"}), (crew.agents[0], "go")):
        with pytest.raises(UsageError, match="kickoff_async"):
            asyncio.run(call_it_in_a_loop(target, given))
    crew.stream = True
    with pytest.raises(UsageError, match="stream = False"):
        resumable(crew, session_id="s", store=url).kickoff({"what": "it"})


def test_what_is_changed_in_memory_or_by_others_between_turns(url):
    """A model and a user change messages in place, another process rolls back: the store tells the conversation."""
    seen: list[list[str]] = []

    def answer(messages: Any) -> str:
        seen.append([one["content"] for one in messages if one["role"] != "system"])
        for one in messages[:-1]:
            one["content"] = "changed by the model"
        return f"answer {len(seen)}"

    with SyncClient.open(url) as client:
        agent = resumable(make_agent(FunctionModel.make(answer)), session_id="s", store=client)
        for number in range(3):
            output = agent.kickoff(f"prompt {number + 1}")
            for one in output.messages:
                one["content"] = "changed by the user"
            if number == 0:
                first = client.latest("s").checkpoint_id
        assert seen[2][:-1] == ["prompt 1", "answer 1", "prompt 2", "answer 2"]
        with SyncClient.open(url) as another:
            another.rollback("s", to=first)
        agent.kickoff("prompt 4")
        assert seen[3][:-1] == ["prompt 1", "answer 1"]


def test_a_misspelt_tool_is_refused(url):
    @tool("search")
    def search(query: str) -> str:
        """Search."""
        return query

    @tool("pay")
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    crew = make_crew(make_agent(echo(), search), tools=[pay])
    with pytest.raises(UsageError, match=r"'serch'.*Did you mean 'search'.*It has 'pay', 'search'"):
        resumable(crew, session_id="s", store=url, tools={"serch": "read"}).kickoff({"what": "this"})
    with pytest.raises(UsageError, match=r"'pay'.*It has 'search'"):
        resumable(make_agent(echo(), search), session_id="s", store=url, tools={"pay": "read"}).kickoff("hello")
    with SyncClient.open(url) as client:
        assert client.latest("s") is None
    tools = {"search": "read", "pay": "irreversible"}
    assert resumable(crew, session_id="s", store=url, tools=tools).kickoff({"what": "this"}).raw == "1 heard"


# -- tools -------------------------------------------------------------------------------------------------------------


@survives("failures of tools", "given to the model again")
def test_a_failure_of_a_tool_reaches_the_model_in_every_life(url):
    @tool
    def search() -> str:
        """Searches."""
        raise ValueError("the index is broken")

    @tool
    def pay(invoice: str) -> str:
        """Pays."""
        raise ValueError(f"no money for {invoice}")

    def life(*, is_cut_off: bool) -> str:
        model = answer_once_called(call("search"), call("pay", invoice="a"))
        answer = model._answer
        if is_cut_off:
            model._answer = lambda said: answer(said) if said[-1].get("name") != "pay" else interrupt(said)
        tools = {"pay": Effect("irreversible", key="invoice", not_done=(ValueError,))}
        agent = make_agent(model, search, pay)
        return resumable(agent, session_id="s", store=url, tools=tools).kickoff("go").raw

    def interrupt(said: Any) -> Any:
        raise Interrupted

    with pytest.raises(Interrupted):
        life(is_cut_off=True)
    answer = life(is_cut_off=False)
    assert "the index is broken" in answer
    assert "no money for a" in answer


@survives("tools in the text of an answer", "replayed")
def test_tools_of_a_model_without_tool_calls_are_recorded(url):
    searched: list[str] = []

    class Search(BaseTool):
        name: str = "search"
        description: str = "Searches."

        def _run(self, words: str) -> str:
            searched.append(words)
            return f"found {words}"

    def answer(said: Any) -> str:
        if "Observation: found it" not in str(said):
            return 'Thought: I search\nAction: search\nAction Input: {"words": "it"}'
        if is_cut_off:
            raise Interrupted
        return "Thought: I know\nFinal Answer: it is found"

    for is_cut_off in (True, False):
        agent = make_agent(FunctionModel.make(answer, has_tools=False), Search())
        crew = resumable(make_crew(agent), session_id="s", store=url)
        if is_cut_off:
            with pytest.raises(Interrupted):
                crew.kickoff({"what": "it"})
        else:
            assert crew.kickoff({"what": "it"}).raw == "it is found"
    assert searched == ["it"]


def test_calls_without_ids_are_known_in_every_life(url):
    """Gemini's calls are parts of its own package, without ids: CrewAI makes them up of addresses."""

    class Part:
        def __init__(self, name: str) -> None:
            self.function_call = SimpleNamespace(name=name, args={})

    Part.__qualname__ = "Part"  # by which CrewAI knows it
    searched: list[str] = []

    @tool
    def search() -> str:
        """Searches."""
        searched.append("it")
        return "found"

    def answer(said: Any) -> Any:
        results = [one for one in said if one["role"] == "tool"]
        sent_back.extend(one.get("raw_tool_call_parts") for one in said if one.get("tool_calls"))
        if len(results) == 2 and is_cut_off:
            raise Interrupted
        return "done" if len(results) == 2 else [Part("search")]

    sent_back: list[Any] = []
    is_cut_off, models = True, [FunctionModel.make(answer), FunctionModel.make(answer)]
    with pytest.raises(Interrupted):
        resumable(make_agent(models[0], search), session_id="s", store=url).kickoff("go")
    assert all(isinstance(part, Part) for parts in sent_back for part in parts)
    is_cut_off = False
    assert resumable(make_agent(models[1], search), session_id="s", store=url).kickoff("go").raw == "done"
    assert (searched, [model.asked for model in models]) == (["it", "it"], [3, 1])


@survives("co-workers, and crews within tools", "their calls are replayed")
def test_a_tool_that_runs_a_crew_records_the_calls_within(url):
    inner_models: list[FunctionModel] = []

    @tool
    def research() -> str:
        """Researches."""
        model = FunctionModel.make(lambda _: "the inner answer")
        inner_models.append(model)
        return str(make_crew(make_agent(model)).kickoff({"what": "that"}).raw)

    def life() -> Any:
        model = answer_once_called(call("research"))
        answer = model._answer

        def cut_off(said: Any) -> Any:
            if said[-1]["role"] == "tool" and len(inner_models) == 1:
                raise Interrupted
            return answer(said)

        model._answer = cut_off
        agent = make_agent(model, research)
        return resumable(agent, session_id="s", store=url, tools={"research": "agent"}).kickoff("go")

    with pytest.raises(Interrupted):
        life()
    assert life().raw == "done: the inner answer"
    assert [model.asked for model in inner_models] == [1, 0]


# -- people ------------------------------------------------------------------------------------------------------------


def decide_elsewhere(url: str, verb: str, *options: str) -> None:
    """Decide the one question that waits, by the command line."""
    program = [sys.executable, "-m", "holdfast"]
    listed = subprocess.run([*program, "approvals", "--store", url, "--json"], capture_output=True, check=True).stdout
    [asked] = json.loads(listed)["approvals"]
    sure = ["--yes"] if verb == "approve" else []
    command = [*program, verb, asked["approval_id"], "--store", url, "--by", "ann", *sure, *options]
    subprocess.run(command, capture_output=True, check=True)


@pytest.mark.parametrize(
    ("words", "heard"),
    [
        (["approve"], "a draft"),
        (["reject", "--note", "be brief"], "a better draft"),
        (["approve", "--modify", '{"answer": "be brief"}'], "a better draft"),
    ],
)
def test_a_person_reviews_a_task_from_another_process(url, words, heard):
    def answer(said: Any) -> str:
        return "a better draft" if "be brief" in str(said) else "a draft"

    def life() -> Any:
        crew = make_crew(make_agent(FunctionModel.make(answer)), human_input=True)
        return resumable(crew, session_id="s", store=url).kickoff({"what": "it"})

    with pytest.raises(ApprovalPendingError):
        life()
    decide_elsewhere(url, *words)
    if heard == "a better draft":
        with pytest.raises(ApprovalPendingError):  # the better draft is reviewed, too
            life()
        decide_elsewhere(url, "approve")
    assert life().raw == heard


def test_an_async_task_that_waits_for_a_person_does_not_block_its_crew(url):
    crew = make_crew(make_agent(echo()), human_input=True, async_execution=True)
    with pytest.raises(ApprovalPendingError):
        resumable(crew, session_id="s", store=url).kickoff({"what": "it"})
    decide_elsewhere(url, "approve")
    assert resumable(crew, session_id="s", store=url).kickoff({"what": "it"}).raw == "1 heard"


@survives("people's answers", "asked for once")
def test_people_answer_a_flow(url):
    told: list[str] = []

    class Telephone:
        """A provider of the program's own, which only tells that somebody must answer."""

        def request_feedback(self, context: Any, flow: Any) -> str:
            told.append(context.method_name)
            raise HumanFeedbackPending(context)

    class Review(Flow[dict]):
        @start()
        @human_feedback(message="good?")
        def write(self) -> str:
            return "a text"

        @listen(write)
        @human_feedback(message="really?", provider=Telephone())
        def check(self, reviewed: Any) -> str:
            return f"{reviewed.output}: {reviewed.feedback}"

        @listen(check)
        def ask_name(self, reviewed: Any) -> str:
            return f"{reviewed.output}, {reviewed.feedback}, by {self.ask('who is it?')}"

    def life() -> Any:
        return resumable(Review(suppress_flow_events=True), session_id="s", store=url).kickoff()

    for note in ("fine", "sure", "ann"):
        with pytest.raises(ApprovalPendingError):
            life()
        decide_elsewhere(url, "approve", "--note", note)
    assert life() == "a text: fine, sure, by ann"
    assert told == ["check"]


# -- manual control, transcripts, forks --------------------------------------------------------------------------------


def test_states_saved_by_hand_go_on_in_other_objects(url):
    agent = make_agent(echo())
    crew, flow = make_crew(agent), make_flow([])
    crew.kickoff(inputs={"what": "it"})
    flow.kickoff()
    told = agent.kickoff("hello")
    with SyncClient.open(url) as client:
        for session, native in (("crew", crew), ("flow", flow), ("agent", told)):
            client.save_checkpoint(extract(native, agent_id="a", session_id=session, context={"by": "hand"}))
        restored = {
            name: client.restore(client.latest(session_id=name).checkpoint_id) for name in ("crew", "flow", "agent")
        }
    assert restored["crew"].agent_context == {"by": "hand"}
    other = reconstruct(restored["crew"], make_crew(make_agent(echo())))
    assert other.tasks[0].output == crew.tasks[0].output
    assert reconstruct(restored["flow"], make_flow([])).state.model_dump() == flow.state.model_dump()
    assert [one["role"] for one in reconstruct(restored["agent"], agent)] == ["user", "assistant"]
    assert resumable(make_agent(echo()), session_id="agent", store=url).kickoff("and now?").raw == "2 heard"
    for refused in (
        lambda: extract("a text", agent_id="a", session_id="s"),
        lambda: reconstruct(restored["crew"], "a text"),
    ):
        with pytest.raises(UsageError, match="takes a Crew, a Flow"):
            refused()


def test_a_fork_is_a_second_conversation_over_the_same_history(url):
    resumable(make_agent(echo()), session_id="s", store=url).kickoff("one")
    with SyncClient.open(url) as client:
        client.fork("s", session_id="other")
    assert resumable(make_agent(echo()), session_id="other", store=url).kickoff("two").raw == "2 heard"
    assert resumable(make_agent(echo()), session_id="s", store=url).kickoff("three").raw == "2 heard"
    with SyncClient.open(url) as client:
        spoken = [one.text for one in to_transcript(client.latest(session_id="other")) if one.role == "user"]
    assert spoken == ["one", "two"]


@pytest.mark.parametrize("is_flow", [False, True])
def test_a_session_is_replayed_from_its_records(url, is_flow):
    called: list[str] = []

    @tool
    def pay(invoice: str) -> str:
        """Pay an invoice."""
        called.append(invoice)
        return f"receipt {invoice}"

    def make() -> Any:
        payer = Agent(
            role="payer", goal="g", backstory="b", llm=answer_once_called(call("pay", invoice="a")), tools=[pay]
        )
        crew = Crew(agents=[payer], tasks=[Task(description="pay", expected_output="a receipt", agent=payer)])

        class Office(Flow):
            @start()
            def begin(self) -> str:
                called.append("begin")
                return crew.kickoff().raw

        return Office(suppress_flow_events=True) if is_flow else crew

    def take(session_id: str, store: str | None = None) -> str:
        result = resumable(make(), session_id=session_id, store=store, tools={"pay": "irreversible"}).kickoff()
        return result if is_flow else result.raw

    assert take("s", url) == "done: receipt a"
    first = list(called)
    with SyncClient.open(url) as client:
        report = client.replay("s", lambda run: take(run.session_id))
        assert (report.result, report.error, called) == ("done: receipt a", None, first)
        assert {step.source for step in report.steps} == {"recorded"}


def test_a_conversation_reads_well_finished_or_cut_off(url):
    @tool
    def search(words: str) -> str:
        """Searches."""
        return f"found {words}"

    def life(*, is_cut_off: bool) -> None:
        model = answer_once_called(call("search", words="it"))
        answer = model._answer
        model._answer = lambda said: answer(said) if said[-1]["role"] != "tool" or not is_cut_off else interrupt()
        resumable(make_agent(model, search), session_id="s", store=url).kickoff("look for it")

    def interrupt() -> Any:
        raise Interrupted

    def shown() -> list[Any]:
        with SyncClient.open(url) as client:
            spoken = to_transcript(client.latest(session_id="s"))
            return [spoken.cursor.is_finished, *((one.role, one.text, one.author) for one in spoken)]

    with pytest.raises(Interrupted):
        life(is_cut_off=True)
    assert shown() == [False, ("user", "look for it", None), ("assistant", "", None), ("tool", "", None)]
    life(is_cut_off=False)
    said = ("assistant", "done: found it", "clerk")
    assert shown() == [True, ("user", "look for it", None), ("assistant", "", "clerk"), ("tool", "", None), said]
    listed = [sys.executable, "-m", "holdfast", "show", "s", "--messages", "--store", url]
    printed = subprocess.run(listed, capture_output=True, check=True, text=True).stdout
    assert "look for it" in printed
    assert "done: found it" in printed
