"""Sessions that moved to another framework continue there: one more model call, and no tool runs again."""

from __future__ import annotations

import base64
import io
import json
import subprocess
from pathlib import Path
from typing import Any

import moved_agents
import pytest
from call_log import read_calls
from campaign import SOAK
from conversations import GIF, LONG_NAME, NAMED, OPTIONS, PDF, PNG, checkpoint_of, convert
from crash_kit import SETTINGS, Finished, assert_called_once, run_program, run_until_done, spread
from framework_environments import is_installed
from moved_agents import CONTINUE, QUESTION, RECEIPT, Office, ReadingOffice, is_here, make_source
from paths import ROOT

from holdfast import SyncClient
from holdfast.client.conversion_targets import TARGETS
from holdfast.errors import ConversionError, EffectUnknownError, HoldfastError
from holdfast.model.conversation import BlobPart, TextPart, ToolCallPart, ToolResponsePart, Transcript
from holdfast.model.loss import MEASURED
from holdfast.model.provider_names import valid_name
from holdfast.transcript import TranscriptMessage, to_transcript

LONG = valid_name(LONG_NAME)
HERE = [name for name in CONTINUE if is_here(name)]
# LangGraph runs tools itself: only tools of `run.effect` are in the ledger.
WITH_LEDGER = [name for name in HERE if name != "langgraph"]


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def move(store: str, office: Office, target: str) -> str:
    with SyncClient.open(store) as client:
        make_source(client, office)
        return client.resume_as("source", target).save("clerk")


@pytest.mark.parametrize("target", HERE)
def test_one_more_model_call_finishes_the_task_and_no_tool_runs_again(target, store, tmp_path):
    office = Office(tmp_path)
    session = move(store, office, target)
    assert CONTINUE[target](store, session, office) == f"paid: {RECEIPT}"
    assert {name: len(lines) for name, lines in read_calls(tmp_path).items()} == {"pay": 1, "model": 1}
    with SyncClient.open(store, on_unknown_type="plain") as client:
        here = to_transcript(client.latest(session)) if target != "langgraph" else None
        assert client.latest("source").framework == "custom"
    if here is not None:
        assert [one.role for one in here][:3] == ["user", "assistant", "tool"]
        last = here.messages[-1]
        if target == "smolagents":  # its answer is the result of a call
            last = TranscriptMessage(role="assistant", parts=last.tool_responses[0].content)
        assert last.text == f"paid: {RECEIPT}"


def is_in(read: str, value: str | bytes | None) -> bool:
    """Return whether a model read a text or data, as JSON or Python write it."""
    if isinstance(value, str):
        return value in read or json.dumps(value)[1:-1] in read
    data = value or b""
    forms = (base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode(), repr(data)[2:-1])
    return any(one in read or json.dumps(one)[1:-1] in read for one in forms)


@pytest.mark.parametrize("target", [one for one in HERE if one != "ag2"])  # whose model here takes no images
def test_a_real_model_reads_everything_that_the_table_does_not_name(target, store, tmp_path):
    office = ReadingOffice(tmp_path)
    with SyncClient.open(store, on_unknown_type="plain") as client:
        asked = convert(NAMED, "anthropic").converted.state
        client.save("loop", session_id="rich", execution_state=dict(asked))
        plan = client.resume_as("rich", target, accept=list(MEASURED))
        session = plan.save("clerk")
    assert CONTINUE[target](store, session, office) == "seen"
    [read] = office.read
    said = [*("Grüße, 世界 🙂", "look", "I look it up.", "bob is here", "see picture", "no such archive")]
    said += [*("lookup", LONG, "c1", "c2", "2.5", "not JSON", "Bob is here.", "Earlier: nothing.", "Go on.")]
    if target == "smolagents":  # its model reads calls and results as text, without ids
        said = [one for one in said if one not in ("c1", "c2")]
    assert [one for one in said if not is_in(read, one)] == []
    loses = TARGETS[target].loses
    media = [
        ("images", GIF.data),
        ("image_links", "https://a.example/x.png"),
        ("files", PDF.data),
        ("result_images", PNG.data),
        ("result_files", PDF.data),
    ]
    for kind, value in media:
        if target not in ("smolagents", "autogen") and kind not in loses:  # whose images are objects
            assert is_in(read, value), kind


@pytest.mark.parametrize("target", WITH_LEDGER)
def test_a_model_that_forgets_cannot_pay_twice(target, store, tmp_path):
    office = Office(tmp_path, is_forgetful=True)
    session = move(store, office, target)
    CONTINUE[target](store, session, office)
    calls = read_calls(tmp_path)
    assert len(calls["pay"]) == 1
    assert len(calls["model"]) == 2  # it tried, and read that the call was not carried out


@pytest.mark.skipif("crewai" not in HERE, reason="CrewAI is not installed here")
def test_the_first_task_of_a_crew_has_the_conversation_as_context(store, tmp_path):
    from moved_agents import continue_crew

    office = Office(tmp_path)
    session = move(store, office, "crewai")
    assert continue_crew(store, session, office) == f"paid: {RECEIPT}"
    assert {name: len(lines) for name, lines in read_calls(tmp_path).items()} == {"pay": 1, "model": 1}
    with SyncClient.open(store) as client:
        here = to_transcript(client.latest(session))
    assert here.messages[0].text == QUESTION


@pytest.mark.skipif("autogen" not in HERE, reason="AutoGen is not installed here")
def test_the_agents_of_a_team_read_the_conversation(store, tmp_path):
    from moved_agents import continue_team

    office = Office(tmp_path)
    session = move(store, office, "autogen")
    assert continue_team(store, session, office) == f"paid: {RECEIPT}"
    assert {name: len(lines) for name, lines in read_calls(tmp_path).items()} == {"pay": 1, "model": 1}


@pytest.mark.skipif("strands" not in HERE, reason="Strands is not installed here")
def test_models_of_strands_take_everything_that_was_converted(store):
    from strands import Agent
    from strands.models.openai import OpenAIModel
    from strands_model import FunctionModel

    from holdfast.strands import resumable

    save_rich(store, "strands")
    model = FunctionModel(lambda _: "seen")
    resumable(Agent(model=model, callback_handler=None), session_id=OPTIONS.session_id, store=store)("And now?")
    [asked] = model.requests
    assert [one["role"] for one in asked] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
        "user",
    ]
    images = [block["image"] for block in asked[0]["content"] if "image" in block]
    assert images == [{"format": "gif", "source": {"bytes": GIF.data}}]
    results = [block["toolResult"] for block in asked[2]["content"]]
    assert [one["status"] for one in results] == ["success", "error"]
    assert OpenAIModel.format_request_messages(asked)


@pytest.mark.skipif("haystack" not in HERE, reason="Haystack is not installed here")
def test_generators_of_haystack_take_everything_that_was_converted(store):
    from haystack_model import FunctionModel  # isort: skip  # first: it turns telemetry off

    from haystack.components.agents import Agent
    from haystack.dataclasses import ChatMessage

    from holdfast.haystack import resumable

    save_rich(store, "haystack")
    read: list[Any] = []

    def answer(messages: Any) -> str:
        read.extend(messages)
        return "seen"

    agent = Agent(chat_generator=FunctionModel(answer), system_prompt="Be brief.")
    target = resumable(agent, session_id=OPTIONS.session_id, store=store)
    done = target.run([ChatMessage.from_user("And now?")])
    roles = ["system", "user", "assistant", "tool", "tool", "assistant", "tool", "assistant", "user", "user"]
    assert [str(one.role.value) for one in read] == roles
    assert done["last_message"].text == "seen"
    assert base64.b64decode(read[1].images[0].base64_image) == GIF.data
    assert [one.tool_call_result.error for one in read if one.tool_call_result] == [False, True, False]
    assert [one.name for one in read if one.is_from("assistant")] == ["buyer"] * 3
    for one in read:
        if one.tool_call_result is None or isinstance(one.tool_call_result.result, str):
            assert one.to_openai_dict_format()


def save_rich(store: str, target: str) -> None:
    with SyncClient.open(store) as client:
        client.save("clerk", target, convert(NAMED, target).converted.state, session_id=OPTIONS.session_id)


@pytest.mark.skipif("ag2" not in HERE, reason="AG2 is not installed here")
def test_ag2_gets_images_links_files_and_errors_as_its_own():
    from ag2.config.anthropic.mappers import convert_messages
    from ag2.events import ToolErrorEvent, ToolResultsEvent
    from fast_depends.pydantic import PydanticSerializer

    from holdfast.adapters.ag2.conversation import EventLog

    history = EventLog(convert(NAMED, "ag2").converted.state).history
    [found, missing] = next(one for one in history if isinstance(one, ToolResultsEvent)).results
    assert [part.kind for part in found.result.parts[1:]] == ["image", "document"]
    assert isinstance(missing, ToolErrorEvent) and str(missing.error) == "no such archive"
    asked, *_ = convert_messages(history, PydanticSerializer())
    kinds = [one["type"] for one in asked["content"]]
    assert kinds == ["text", "image", "image", "document", "text"]


@pytest.mark.skipif("smolagents" not in HERE, reason="smolagents is not installed here")
def test_an_agent_that_writes_code_continues_as_well_and_has_the_values(store, tmp_path):
    from moved_agents import continue_smolagents, make_smolagent

    from holdfast.smolagents import reconstruct

    office = Office(tmp_path)
    with SyncClient.open(store) as client:
        make_source(client, office)
        state = client.latest("source").execution_state
        client.save("loop", session_id="with plan", execution_state={**state, "plan": ["report"]})
        session = client.resume_as("with plan", "smolagents", carry={"plan": "todo"}).save("clerk")
        agent = reconstruct(client.latest(session), make_smolagent(office, writes_code=True))
    assert agent.state == {"todo": ["report"]}
    assert continue_smolagents(store, session, office, writes_code=True) == f"paid: {RECEIPT}"
    assert {name: len(lines) for name, lines in read_calls(tmp_path).items()} == {"pay": 1, "model": 1}


@pytest.mark.skipif("smolagents" not in HERE, reason="smolagents is not installed here")
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
def test_smolagents_gets_images_of_every_kind(kind, store, tmp_path):
    import PIL.Image
    from moved_agents import make_smolagent

    from holdfast.smolagents import reconstruct

    file = io.BytesIO()
    PIL.Image.new("RGB", (4, 3), "red").save(file, format=kind)
    seen = BlobPart(mime_type=f"image/{kind.lower()}", data=file.getvalue())
    call = ToolCallPart(id="call-1", name="look", arguments={})
    result = ToolResponsePart(id="call-1", name="look", content=(TextPart(content="see"), seen))
    told = [("user", (TextPart(content="look"), seen)), ("assistant", (call,)), ("tool", (result,))]
    moved = convert(Transcript(messages=tuple(TranscriptMessage(role=r, parts=p) for r, p in told)), "smolagents")
    assert not moved.losses
    agent = reconstruct(checkpoint_of("smolagents", moved), make_smolagent(Office(tmp_path)))
    task, action = agent.memory.steps
    assert [one.size for one in (*task.task_images, *action.observations_images)] == [(4, 3), (4, 3)]
    assert action.observations == "see" and action.step_number == 1


@pytest.mark.skipif("smolagents" not in HERE, reason="smolagents is not installed here")
def test_an_image_that_smolagents_cannot_load_is_lost_loudly():
    drawing = BlobPart(mime_type="image/svg+xml", data=b"<svg/>")
    moved = convert(Transcript(messages=(TranscriptMessage(role="user", parts=(drawing,)),)), "smolagents")
    assert [one.kind for one in moved.losses] == ["images"]


# -- real sessions as sources ------------------------------------------------------------------------------------------

SOURCES = [name for name in (*HERE, "langchain") if name != "langgraph" and is_installed(name)]


@pytest.mark.parametrize("source", SOURCES)
def test_a_real_session_moves_to_every_target_whole_and_cut_off(sqlite_places, source):
    targets = [name for name, target in TARGETS.items() if target.opaque is None]
    first, directory = sqlite_places.make("whole")
    whole = run_program(f"{source}_agent", first, directory)
    assert isinstance(whole, Finished)
    second, directory = sqlite_places.make("cut")
    kill_at = whole.commits * 2 // 3
    run_program(f"{source}_agent", second, directory, kill_after_commits=kill_at)
    for store, kill in ((first, None), (second, kill_at)):
        with SyncClient.open(store) as client:
            session = max(client.sessions(), key=lambda one: one.saves).session_id
            for target in targets:
                options = {"at": "last_turn"} if kill is not None else {}
                try:
                    plan = client.resume_as(session, target, dangling="answer", accept=list(MEASURED), **options)
                except HoldfastError as error:  # the first turn was cut off, or an effect is in doubt
                    assert kill is not None and isinstance(error, ConversionError | EffectUnknownError), error
                    continue
                assert not {one.kind for one in plan.losses} & {"text", "arguments", "results", "images"}
                calls = [call.name for one in plan.messages for call in one.tool_calls]
                assert kill is not None or "pay" in calls
                assert plan.save("mover")
            assert client.verify().problems == ()


# -- kills -------------------------------------------------------------------------------------------------------------

PROGRAM = "moved_agent"
KILLED = [name for name in (HERE if SOAK else ("crewai", "pydantic_ai")) if name in HERE]


@pytest.mark.parametrize("target", KILLED)
@pytest.mark.parametrize("when", ["kill_after_commits", "kill_before_commit"])
def test_a_move_killed_at_any_durable_write_is_made_once(sqlite_places, target, when):
    uninterrupted = run_program(PROGRAM, *sqlite_places.make(f"{target}--whole"))
    assert isinstance(uninterrupted, Finished)
    assert uninterrupted.outcome["answer"] == f"paid: {RECEIPT}"
    assert uninterrupted.commits >= 8
    every = range(1, uninterrupted.commits + 1)
    for number in every if when == "kill_after_commits" else spread(uninterrupted.commits):
        store, directory = sqlite_places.make(f"{target}--at-{number}")
        interrupted = run_until_done(PROGRAM, store, directory, **{when: number})
        assert interrupted.outcome["answer"] == f"paid: {RECEIPT}"
        assert_called_once(directory, "pay")
        assert len(interrupted.calls["model"]) <= 1 + (interrupted.lives > 1)
        with SyncClient.open(store, on_unknown_type="plain") as client:
            assert {one.session_id for one in client.sessions()} == {
                "source",
                "lg/moved" if target == "langgraph" else "moved",
            }
            assert client.verify().problems == ()


# -- there and back, in two environments -------------------------------------------------------------------------------

CREWAI = ROOT / ".venv-crewai" / "bin" / "python"


@pytest.mark.skipif("langgraph" not in HERE, reason="LangGraph is not installed here")
def test_from_langgraph_to_crewai_and_back(store, tmp_path):
    """LangGraph and CrewAI are in two environments: their processes share a store, and nothing else."""
    if not CREWAI.exists():
        pytest.skip("there is no .venv-crewai: `make framework-tests` makes it")
    from moved_agents import GO_ON, make_graph

    from holdfast.langgraph import HoldfastSaver

    office = Office(tmp_path)
    thread = {"configurable": {"thread_id": "t"}}
    with HoldfastSaver.from_conn_string(store) as saver:
        graph = make_graph(office, saver, dies_after_paying=True)
        with pytest.raises(RuntimeError, match="power cut"):
            graph.invoke({"messages": [("user", QUESTION)], "plan": ["pay", "report"]}, thread)
    assert {name: len(lines) for name, lines in read_calls(tmp_path).items()} == {"pay": 1, "model": 1}

    with SyncClient.open(store) as client:
        plan = client.resume_as("lg/t", "crewai")
        assert [one.kind for one in plan.losses if one.kind != "message_data"] == ["state"]
        there = plan.save("clerk")
    words = [str(CREWAI), str(Path(moved_agents.__file__)), "crewai", store, there, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=in_crewai(tmp_path), check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"paid: {RECEIPT}"
    assert {name: len(lines) for name, lines in read_calls(tmp_path).items()} == {"pay": 1, "model": 2}

    with SyncClient.open(store) as client:
        plan = client.resume_as(there, "langgraph")
        assert plan.native_id is not None
        home = plan.save("graph").removeprefix("lg/")
    with HoldfastSaver.from_conn_string(store) as saver:
        graph = make_graph(office, saver)
        thread = {"configurable": {"thread_id": home}}
        assert graph.get_state(thread).next == ()
        state = graph.invoke({"messages": [("user", GO_ON)]}, thread)
    assert state["plan"] == ["pay", "report"]  # of the thread that LangGraph has left
    told = [(one.type, str(one.content)) for one in state["messages"]]
    assert told[0] == ("human", QUESTION) and told[2] == ("tool", RECEIPT) and told[-1] == ("ai", f"paid: {RECEIPT}")
    assert [kind for kind, _ in told] == ["human", "ai", "tool", "human", "ai", "human", "ai"]
    assert {name: len(lines) for name, lines in read_calls(tmp_path).items()} == {"pay": 1, "model": 3}


def in_crewai(home: Path) -> dict[str, str]:
    return SETTINGS | {
        "HOME": str(home),
        "CREWAI_STORAGE_DIR": str(home),
        "PYTHONPATH": str(ROOT / "tests" / "support"),
    }
