"""What CrewAI's own persistence loses, repeats or gives away, and ours does not; CrewAI's own way is the control."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from framework_environments import require
from prose import PROSE

require("crewai")

from crewai import Agent, Crew, Task
from crewai.events.event_bus import crewai_event_bus
from crewai.flow.flow import Flow, listen, start
from crewai.flow.persistence import SQLiteFlowPersistence, persist
from crewai.state import CheckpointConfig
from crewai.tools import BaseTool
from crewai_model import FunctionModel, answer_once_called, call  # before CrewAI: no telemetry
from stored_secrets import assert_secret_is_not_stored

from holdfast import SyncClient
from holdfast.crewai import resumable

TURNS = 300
API_KEY = "sk-control-0123456789"


class Interrupted(BaseException):
    """What a kill does, in a test that stays in its process."""


@pytest.fixture(autouse=True)
def fresh_runtime() -> None:
    """Forget the crews of other tests: CrewAI's checkpoints have all that its events have seen."""
    crewai_event_bus.reset_runtime_state()


def make_agent(model: FunctionModel, *tools: Any) -> Agent:
    return Agent(role="clerk", goal="work", backstory="an office", llm=model, tools=list(tools))


def stored_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def test_a_key_is_stored_by_crewais_checkpoints_only(tmp_path):
    def make_crew(**options: Any) -> Crew:
        agent = make_agent(FunctionModel.make(lambda _: "done", api_key=API_KEY))
        return Crew(agents=[agent], tasks=[Task(description="d", expected_output="e", agent=agent)], **options)

    own = tmp_path / "own"
    make_crew(checkpoint=CheckpointConfig(location=str(own))).kickoff()
    crewai_event_bus.flush()
    assert any(API_KEY.encode() in path.read_bytes() for path in stored_files(own))

    url = f"sqlite:///{tmp_path}/store.db"
    resumable(make_crew(), session_id="s", store=url).kickoff()
    assert_secret_is_not_stored(url, API_KEY)


def test_a_task_that_was_cut_off_repeats_its_tools_by_crewais_checkpoints_only(tmp_path):
    searched: list[str] = []

    class Search(BaseTool):  # CrewAI's checkpoints can't have a tool that is a function
        name: str = "search"
        description: str = "Searches."

        def _run(self, words: str) -> str:
            searched.append(words)
            return f"found {words}"

    def make_crew(*, is_cut_off: bool, **options: Any) -> Crew:
        model = answer_once_called(call("search", words="it"))
        answer = model._answer

        def cut_off(said: Sequence[Any]) -> Any:
            if is_cut_off and said[-1]["role"] == "tool":
                raise Interrupted
            return answer(said)

        model._answer = cut_off
        agent, idle = make_agent(model, Search()), make_agent(FunctionModel.make(lambda _: "ready"))
        tasks = [
            Task(description="begin", expected_output="e", agent=idle),
            Task(description="look", expected_output="e", agent=agent),
        ]
        return Crew(agents=[agent, idle], tasks=tasks, **options)

    own = tmp_path / "own"
    with pytest.raises(Interrupted):
        make_crew(is_cut_off=True, checkpoint=CheckpointConfig(location=str(own))).kickoff()
    crewai_event_bus.flush()
    [saved] = stored_files(own)  # after the first task: the second one begins again
    assert saved.stat().st_size
    make_crew(is_cut_off=False).kickoff()
    assert searched == ["it", "it"]

    searched.clear()
    url = f"sqlite:///{tmp_path}/store.db"
    with pytest.raises(Interrupted):
        resumable(make_crew(is_cut_off=True), session_id="s", store=url).kickoff()
    assert resumable(make_crew(is_cut_off=False), session_id="s", store=url).kickoff().raw == "done: found it"
    assert searched == ["it"]


def test_a_persisted_flow_runs_its_methods_again_by_crewais_own_means_only(tmp_path):
    ran: list[str] = []

    def make_flow(*, is_cut_off: bool = False) -> Flow[Any]:
        @persist(SQLiteFlowPersistence(str(tmp_path / "own.db")))
        class Counted(Flow[dict]):
            @start()
            def first(self) -> str:
                ran.append("first")
                return "the result of the first one"

            @listen(first)
            def second(self, result: str) -> str:
                if is_cut_off:
                    raise Interrupted
                ran.append("second")
                return f"I got {result}"

        return Counted(suppress_flow_events=True)

    broken = make_flow(is_cut_off=True)
    with pytest.raises(Interrupted):
        broken.kickoff()
    make_flow().kickoff(inputs={"id": broken.state["id"]})
    assert ran == ["first", "first", "second"]

    ran.clear()
    url = f"sqlite:///{tmp_path}/store.db"
    with pytest.raises(Interrupted):
        resumable(make_flow(is_cut_off=True), session_id="s", store=url).kickoff()
    assert resumable(make_flow(), session_id="s", store=url).kickoff() == "I got the result of the first one"
    assert ran == ["first", "second"]


def has_second_method(path: Path) -> bool:
    """Return whether a checkpoint of CrewAI was made after the method `second`."""
    return "second" in json.loads(path.read_text("utf-8"))["entities"][0]["checkpoint_completed_methods"]


def test_a_listener_gets_none_after_a_restore_by_crewais_checkpoints_only(tmp_path):
    got: list[Any] = []

    class Chain(Flow[dict]):
        @start()
        def first(self) -> str:
            return "one"

        @listen(first)
        def second(self, result: Any) -> str:
            return f"{result}, two"

        @listen(second)
        def third(self, result: Any) -> str:
            got.append(result)
            if len(got) == 1:
                raise Interrupted
            return f"{result}, three"

    saved = None
    for number in range(20):  # CrewAI writes its checkpoints in threads, and does not write each of them
        got.clear()
        own = tmp_path / f"own-{number}"
        config = CheckpointConfig(location=str(own), on_events=["method_execution_finished"])
        with pytest.raises(Interrupted):
            Chain(checkpoint=config).kickoff()
        crewai_event_bus.flush()
        saved = next(filter(has_second_method, stored_files(own)), None)
        if saved is not None:
            break
    assert saved is not None
    Chain.from_checkpoint(CheckpointConfig(restore_from=str(saved))).kickoff()
    assert got == ["one, two", None]

    got.clear()
    url = f"sqlite:///{tmp_path}/store.db"
    with pytest.raises(Interrupted):
        resumable(Chain(), session_id="s", store=url).kickoff()
    assert resumable(Chain(), session_id="s", store=url).kickoff() == "one, two, three"
    assert got == ["one, two", "one, two"]


def test_every_task_is_saved_at_once(tmp_path):
    """CrewAI writes its checkpoints in threads, while the crew goes on; some are never written."""
    count = 30

    def make_crew(**options: Any) -> Crew:
        agent = make_agent(FunctionModel.make(lambda _: "done"))
        tasks = [Task(description=f"task {number}", expected_output="e", agent=agent) for number in range(count)]
        return Crew(agents=[agent], tasks=tasks, **options)

    own = tmp_path / "own"
    make_crew(checkpoint=CheckpointConfig(location=str(own))).kickoff()
    crewai_event_bus.flush()
    written = stored_files(own)
    url = f"sqlite:///{tmp_path}/store.db"
    resumable(make_crew(), session_id="s", store=url).kickoff()
    with SyncClient.open(url) as client:
        saved = [one.step_name for one in client.timeline("s", limit=None)]
    assert saved.count("clerk") == count
    # How many CrewAI writes depends on the machine; each has all tasks, so together they are quadratic.
    ours = sum(path.stat().st_size for path in tmp_path.glob("store.db*"))
    assert len(written) <= count
    assert sum(path.stat().st_size for path in written) > 3 * ours


def make_text(chance: random.Random, length: int) -> str:
    """Return English prose, as people and models write it."""
    begins = chance.randrange(len(PROSE) - length)
    return PROSE[begins : begins + length]


def test_a_conversation_of_300_turns_is_stored_once(tmp_path):
    """After 300 turns of seven kilobytes, at most one and a half times the conversation."""
    chance = random.Random(7)
    model = FunctionModel.make(lambda _: make_text(chance, 3500))
    with SyncClient.open(f"sqlite:///{tmp_path}/store.db", durability="fast") as client:
        agent = resumable(make_agent(model), session_id="s", store=client)
        for number in range(TURNS):
            agent.kickoff(f"{number} {make_text(chance, 3500)}", turn=str(number))
        transcript = len(json.dumps(client.latest(session_id="s").execution_state["messages"]))
    stored = sum(one.stat().st_size for one in tmp_path.glob("store.db*"))
    assert transcript > 2_000_000
    assert stored <= 1.5 * transcript, f"{stored} bytes for a transcript of {transcript}"
