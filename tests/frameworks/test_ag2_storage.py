"""`HoldfastStorage`, events as plain data, and the defects of AG2's own persistence, each beside its control."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from framework_environments import require
from paths import ROOT
from prose import PAGE
from survives import survives

require("ag2")

import ag2.events
from ag2 import Agent, MemoryStream, ToolResult
from ag2.compact import CompactionSummary
from ag2.events import (
    BaseEvent,
    BinaryResult,
    DataInput,
    HumanMessage,
    ImageInput,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ObserverAlert,
    Severity,
    TaskCompleted,
    TaskFailed,
    TextInput,
    ToolCallEvent,
    ToolCallsEvent,
    ToolErrorEvent,
    ToolNotFoundEvent,
    ToolResultEvent,
    ToolResultsEvent,
    UnknownEvent,
    Usage,
    UsageEvent,
)
from ag2.events._serialization import deserialize_value, serialize_value
from ag2.exceptions import ToolNotFoundError
from ag2.history import MemoryStorage, unanswered_tool_calls
from ag2_model import FunctionConfig, call, results_of

from holdfast import Client, SyncClient
from holdfast.adapters.ag2.event_list import dump_events, load_events
from holdfast.adapters.ag2.events import dump_event, load_event
from holdfast.ag2 import HoldfastStorage, resumable
from holdfast.errors import HoldfastWarning, UsageError
from holdfast.transcript import to_transcript

STREAM = uuid.UUID("5f0c1d9b-0000-4000-8000-000000000007")


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/store.db"


def run(test: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(test())


def answer(events: Sequence[BaseEvent]) -> Any:
    if not results_of(events):
        return [call("look", "c1", what="x"), call("look", "c2", what="y")]
    return f"seen {len(results_of(events))} in {sum(isinstance(one, ModelRequest) for one in events)}"


async def look(what: str) -> str:
    return f"{what} is there"


def make_agent() -> Agent[Any]:
    return Agent("looker", config=FunctionConfig(answer), tools=[look])


class ListStorage:
    """An append-only log, as AG2's documentation has it for a file: `set_history` can't take lines back."""

    def __init__(self) -> None:
        self.lines: list[BaseEvent] = []

    async def save_event(self, event: BaseEvent, context: Any) -> None:
        self.lines.append(event)

    async def get_history(self, stream_id: Any) -> Iterable[BaseEvent]:
        return list(self.lines)

    async def set_history(self, stream_id: Any, events: Iterable[BaseEvent]) -> None:
        known = {id(one) for one in self.lines}
        self.lines += [event for event in events if id(event) not in known]

    async def drop_history(self, stream_id: Any) -> None:
        self.lines.clear()


# -- the storage -------------------------------------------------------------------------------------------------------


def test_a_conversation_continues_in_another_process(url):
    async def talk(message: str) -> tuple[str | None, list[BaseEvent]]:
        async with HoldfastStorage(url) as storage:
            stream = MemoryStream(storage, id=STREAM)
            reply = await make_agent().ask(message, stream=stream)
            return reply.body, list(await stream.history.get_events())

    body, events = asyncio.run(talk("a"))
    assert body == "seen 2 in 1"
    body, more = asyncio.run(talk("b"))
    assert body == "seen 2 in 2"
    assert more[: len(events)] == events

    async def alone() -> list[BaseEvent]:
        stream = MemoryStream()
        await make_agent().ask("a", stream=stream)
        return list(await stream.history.get_events())

    assert Counter(map(type, run(alone))) == Counter(map(type, events))  # parallel calls end in any order
    with SyncClient.open(url) as client:
        head = client.latest(str(STREAM))
        assert [one.role for one in to_transcript(head).messages] == ["user", "assistant", "tool", "assistant"] * 2
        assert client.timeline(str(STREAM))[0].step_name == "ModelResponse"


def test_a_history_is_replaced_and_dropped(url):
    async def main() -> None:
        async with HoldfastStorage(url) as storage:
            assert list(await storage.get_history(STREAM)) == []
            events = [ModelRequest([TextInput(str(number))]) for number in range(4)]
            for wanted in (events, events[1:3], [], events[:1]):
                await storage.set_history(STREAM, wanted)
                assert list(await storage.get_history(STREAM)) == wanted
            await storage.drop_history(STREAM)
            assert list(await storage.get_history(STREAM)) == []
            await storage.drop_history(uuid.uuid4())

    run(main)


def test_a_history_without_its_last_event_is_stored_by_close(url):
    async def main() -> None:
        events = [ModelRequest([TextInput(str(number))]) for number in range(4)]
        async with HoldfastStorage(url) as storage:
            await storage.set_history(STREAM, events)
            await storage.set_history(STREAM, events[:3])
            assert list(await storage.get_history(STREAM)) == events[:3]
            async with HoldfastStorage(url) as other:
                assert list(await other.get_history(STREAM)) == events
        async with HoldfastStorage(url) as other:
            assert list(await other.get_history(STREAM)) == events[:3]
            await other.set_history(STREAM, events[:2])
            await other.set_history(STREAM, events[:1])
            await other.set_history(STREAM, events)
        async with HoldfastStorage(url) as other:
            assert list(await other.get_history(STREAM)) == events

    run(main)


def test_events_of_the_user_that_are_not_for_the_model_are_kept_with_persist_all(url):
    async def main() -> None:
        async with HoldfastStorage(url) as storage:
            stream = MemoryStream(storage, id=STREAM, persist_all=True)
            await Agent("a", config=FunctionConfig(lambda _: "hm", is_streamed=True)).ask("a", stream=stream)
            kinds = [type(one).__name__ for one in await stream.history.get_events()]
        assert kinds == ["ModelRequest", "ModelMessageChunk", "ModelMessage", "UsageEvent", "ModelResponse"]

    run(main)


def test_a_session_of_resumable_is_read_by_the_storage_and_the_other_way(url):
    async def main() -> None:
        await resumable(make_agent(), session_id=str(STREAM), store=url).ask("a")
        async with HoldfastStorage(url) as storage:
            stream = MemoryStream(storage, id=STREAM)
            events = list(await stream.history.get_events())
            assert (await make_agent().ask("b", stream=stream)).body == "seen 2 in 2"
            assert list(await stream.history.get_events())[: len(events)] == events
        assert (await resumable(make_agent(), session_id=str(STREAM), store=url).ask("c")).body == "seen 2 in 3"

    run(main)


# -- defects -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ours", "AG2's own", "a list"])
def test_resume_appends_its_trigger_once(url, kind):
    """`agent.resume` takes the last event out of the history and sends it again. An append-only log has it twice."""

    async def main() -> list[BaseEvent]:
        storage: Any = {
            "ours": HoldfastStorage,
            "AG2's own": lambda _: MemoryStorage(),
            "a list": lambda _: ListStorage(),
        }[kind](url)
        stream = MemoryStream(storage, id=STREAM)
        reply = await make_agent().ask("a", stream=stream)
        events = list(await stream.history.get_events())
        place = next(number for number, one in enumerate(events) if isinstance(one, ToolResultsEvent))
        until = events[: place + 1]
        if kind == "a list":
            storage.lines = until
        else:
            await storage.set_history(STREAM, until)
        assert reply.body == "seen 2 in 1"
        resumed = await make_agent().resume(*until, stream=stream)
        assert resumed.body == ("seen 4 in 1" if kind == "a list" else "seen 2 in 1")  # what the model has read
        found = list(await stream.history.get_events())
        if kind == "ours":
            await storage.close()
            async with HoldfastStorage(url) as other:
                assert list(await other.get_history(STREAM)) == found
        return found

    found = run(main)
    triggers = sum(isinstance(one, ToolResultsEvent) for one in found)
    assert triggers == (2 if kind == "a list" else 1)


def test_a_resume_that_is_killed_does_not_lose_its_trigger(url, tmp_path):
    """The process is killed when the agent has taken the trigger out, before it has appended it again."""
    program = f"""
import asyncio, os, signal, sys, uuid
from ag2 import Agent, MemoryStream
from ag2_model import FunctionConfig
from holdfast.ag2 import HoldfastStorage

class KilledStorage(HoldfastStorage):
    async def save_event(self, event, context):
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    storage = KilledStorage({url!r})
    stream = MemoryStream(storage, id=uuid.UUID({str(STREAM)!r}))
    events = list(await stream.history.get_events())
    await Agent("looker", config=FunctionConfig(lambda _: "never")).resume(*events, stream=stream)

asyncio.run(main())
"""

    async def before() -> list[BaseEvent]:
        async with HoldfastStorage(url) as storage:
            stream = MemoryStream(storage, id=STREAM)
            await make_agent().ask("a", stream=stream)
            events = list(await stream.history.get_events())
            place = next(number for number, one in enumerate(events) if isinstance(one, ToolResultsEvent))
            await storage.set_history(STREAM, events[: place + 1])
            return events[: place + 1]

    events = run(before)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT / "tests" / "support"), "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        check=False,
        timeout=120,
    )
    assert done.returncode == -9

    async def after() -> str | None:
        async with HoldfastStorage(url) as storage:
            stream = MemoryStream(storage, id=STREAM)
            found = list(await stream.history.get_events())
            assert found == events
            return (await make_agent().resume(*found, stream=stream)).body

    assert run(after) == "seen 2 in 1"


def test_a_turn_that_is_cut_off_leaves_a_call_without_answer_in_ag2_only(url):
    """AG2's history then has calls without results, which providers refuse. A session has whole turns only."""

    class Killed(BaseException):
        pass

    async def die(what: str) -> str:
        raise Killed

    async def with_ag2() -> set[str]:
        storage = MemoryStorage()
        stream = MemoryStream(storage, id=STREAM)
        killed = Agent("looker", config=FunctionConfig(answer), tools=[ag2.tool(die, name="look")])
        with pytest.raises(Killed):
            await killed.ask("a", stream=stream)
        return unanswered_tool_calls(list(await storage.get_history(STREAM)))

    async def with_ours() -> list[str]:
        killed = Agent("looker", config=FunctionConfig(answer), tools=[ag2.tool(die, name="look")])
        with pytest.raises(Killed):
            await resumable(killed, session_id="s", store=url).ask("a")
        reply = await resumable(make_agent(), session_id="s", store=url).ask("a")
        events = list(await reply.history.get_events())
        assert unanswered_tool_calls(events) == set()
        return [type(one).__name__ for one in events]

    assert run(with_ag2) == {"c1", "c2"}
    assert run(with_ours).count("ToolResultEvent") == 2


def test_nothing_that_is_stored_is_imported(tmp_path, monkeypatch):
    """AG2's deserialisation imports whatever module the data names: to import is to execute."""
    monkeypatch.syspath_prepend(tmp_path)
    for number in range(2):
        marker = tmp_path / f"executed-{number}"
        (tmp_path / f"hostile_{number}.py").write_text(f"open({str(marker)!r}, 'w').close()\nclass Gift: pass\n")
    for name in ("__event__", "__dataclass__", "__enum__"):
        with suppress(Exception):  # whatever comes of it
            deserialize_value({name: "hostile_0.Gift", "value": 1, "data": {}})
    assert (tmp_path / "executed-0").exists()  # the control
    hostile = "hostile_1.Gift"
    with pytest.warns(HoldfastWarning, match=r"hostile_1\.Gift"):
        loaded = load_event({"$type": hostile, "x": 1, "created_at": 1.0})
    assert loaded == UnknownEvent(type_name=hostile, data={"x": 1})
    assert dump_event(loaded) == {"$type": hostile, "x": 1, "created_at": 1.0}  # nothing is lost
    marked = dict.fromkeys(("__event__", "__dataclass__", "__pydantic__", "__enum__"), hostile)
    kept = ModelRequest([DataInput(marked)])
    assert load_event(dump_event(kept)) == kept
    with pytest.warns(HoldfastWarning, match=r"hostile_1\.Gift"):
        load_event({"$type": "ModelRequest", "parts": [{"$type": hostile}, {"$type": "DataInput", "data": marked}]})
    assert not (tmp_path / "executed-1").exists()
    assert "hostile_1" not in sys.modules


@pytest.mark.parametrize(
    "hostile",
    [
        {"$type": "ModelRequest", "parts": 7, "__class__": "x", "to_dict": "y", "__dict__": {}},
        {"$type": "BaseEvent"},
        {"$type": "ToolResultsEvent", "results": [{"$type": "ToolResult", "parts": [], "__init__": 1}]},
        {"$type": "object"},
        {"$type": ["a"]},
        {},
    ],
)
@pytest.mark.filterwarnings("ignore::holdfast.errors.HoldfastWarning")
def test_hostile_data_makes_an_event_or_an_error(hostile):
    try:
        loaded = load_event(hostile)
    except UsageError:
        return
    assert isinstance(loaded, BaseEvent)
    assert callable(loaded.to_dict)


@pytest.mark.parametrize(
    "hostile",
    [
        [{"$type": "ModelRequest", "$usage": 1.0}],
        [{"$type": "ModelRequest", "$after": [-1]}],
        [{"$type": "ModelResponse", "$after": [5]}],
        [{"$type": "ModelResponse", "$after": [[1.0, 99]]}],
        [{"$type": "ModelResponse", "$after": 7}],
    ],
)
@pytest.mark.filterwarnings("ignore::holdfast.errors.HoldfastWarning")
def test_hostile_lists_are_refused(hostile):
    with pytest.raises(UsageError, match="a stored event can't be loaded"):
        load_events(hostile)


@survives("classes of tools' errors", "built-in ones stay, others are `Exception`")
def test_exceptions_of_built_in_classes_survive_and_others_are_exceptions():
    class OwnError(Exception):
        pass

    errors = [
        ValueError("v"),
        KeyError("k"),
        ToolNotFoundError("t"),
        OwnError("o"),
        UnicodeDecodeError("a", b"b", 1, 2, "c"),
    ]
    ours = [load_event(dump_event(_failed(error))).error for error in errors]
    assert [(type(one), str(one)) for one in ours] == [
        (ValueError, "v"),
        (Exception, "'k'"),  # its text is not its argument
        (Exception, str(errors[2])),
        (Exception, "o"),
        (Exception, str(errors[4])),
    ]
    theirs = [deserialize_value(serialize_value(_failed(error))).error for error in errors]
    assert {type(one) for one in theirs} == {Exception}  # the control
    assert [str(one) for one in theirs] == [str(one) for one in ours]


def _failed(error: Exception) -> ToolErrorEvent:
    return ToolErrorEvent.from_call(ToolCallEvent("look", id="1"), error)


# -- events ------------------------------------------------------------------------------------------------------------

CALL = ToolCallEvent("pay", id="c1", arguments='{"to": "bob"}', vendor_metadata={"caller": {"type": "direct"}})
EVENTS = [
    ModelRequest([TextInput("hello", metadata={"a": 1}), ImageInput("https://a.example/x.png")]),
    ModelRequest([ImageInput(data=b"\x89", media_type="image/png"), ImageInput(file_id="f1"), DataInput([1, None])]),
    ModelResponse(ModelMessage("hi", metadata={"x": [1]}), usage=Usage(prompt_tokens=1.5), model="m", provider="p"),
    ModelResponse(
        tool_calls=ToolCallsEvent([CALL]), response_force=True, files=[BinaryResult(b"\x00", {"filename": "a"})]
    ),
    ToolResultsEvent(
        [ToolResultEvent(parent_id="c1", name="pay", result=ToolResult("ok", {"b": 1}, metadata={"m": 2}))]
    ),
    ToolNotFoundEvent.from_call(CALL, ValueError("none")),
    HumanMessage("yes", parent_id="q1"),
    UsageEvent(Usage(total_tokens=3), kind="subtask", label="worker", parts=[UsageEvent(Usage(total_tokens=3))]),
    TaskCompleted(task_id="t", agent_name="a", objective="o", result={"r": 1}, task_stream=STREAM, usage=Usage()),
    TaskFailed(task_id="t", agent_name="a", objective="o", error=ValueError("no")),
    ObserverAlert(source="s", severity=Severity.FATAL, message="m", data={"d": (1, 2)}),
    CompactionSummary(summary="short", event_count=3),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda one: type(one).__name__)
def test_an_event_is_what_it_was(event, tmp_path):
    with SyncClient.sqlite(tmp_path / "a.db") as client:
        client.save("a", session_id="s", execution_state={"event": dump_event(event)})
        stored = client.latest("s").execution_state["event"]
    loaded = load_event(stored)
    assert type(loaded) is type(event)
    assert loaded.created_at == event.created_at
    if isinstance(event, TaskFailed):
        assert (type(loaded.error), str(loaded.error)) == (ValueError, "no")
    elif isinstance(event, ObserverAlert):
        assert (loaded.severity, loaded.data) == ("fatal", {"d": [1, 2]})  # as in AG2: a tuple is a list
    else:
        assert loaded == event
    assert dump_event(loaded) == stored


def test_every_event_of_ag2_can_be_dumped_and_named():
    names = [name for name in ag2.events.__all__ if isinstance(getattr(ag2.events, name), type)]
    kinds = [one for one in (getattr(ag2.events, name) for name in names) if issubclass(one, BaseEvent)]
    assert len(kinds) > 30
    for kind in kinds:
        if kind in (BaseEvent, UnknownEvent):
            continue
        dumped = dump_event(kind())
        assert dumped["$type"] == kind.__name__
        assert type(load_event(dumped)) is kind


def test_what_events_share_is_stored_once():
    secret = "once " * 100
    result = ToolResultEvent(parent_id="c1", name="pay", result=ToolResult(secret))
    response = ModelResponse(
        tool_calls=ToolCallsEvent([ToolCallEvent("pay", id="c1", arguments=json.dumps({"x": secret}))]),
        usage=Usage(total_tokens=3),
    )
    events = [
        ModelRequest([TextInput("go")]),
        UsageEvent(response.usage),
        response,
        response.tool_calls,
        *response.tool_calls.calls,
        result,
        ToolResultsEvent([result]),
    ]
    dumped = dump_events(events, first=0)
    assert len(dumped) == 3
    assert json.dumps(dumped).count(secret) == 2  # of the call, and of the result
    loaded = load_events(dumped)
    assert loaded == events
    assert loaded[3] is loaded[2].tool_calls
    assert loaded[4] is loaded[3].calls[0]
    assert loaded[6].results[0] is loaded[5]
    of_their_own = (0, 1, 2, 5, 6)  # the calls take the time of the response that they are in
    assert [loaded[place].created_at for place in of_their_own] == [events[place].created_at for place in of_their_own]


def test_a_long_conversation_is_stored_once(tmp_path):
    """After 300 turns of seven kilobytes, at most one and a half times the conversation."""

    async def story() -> tuple[int, int]:
        words, chance = PAGE.split(), random.Random(7)
        config = FunctionConfig(lambda _: " ".join(chance.choices(words, k=600)))
        said = 0
        async with Client.sqlite(tmp_path / "long.db", durability="fast") as client:
            agent = resumable(Agent("talker", config=config), session_id="s", store=client)
            for number in range(300):
                given = " ".join(chance.choices(words, k=600))
                reply = await agent.ask(given, turn=str(number))
                said += len(given.encode()) + len((reply.body or "").encode())
            await client.gc()
        return said, sum(one.stat().st_size for one in tmp_path.glob("long.db*"))

    said, stored = run(story)
    assert said > 1_000_000
    assert stored <= 1.5 * said, (stored, said)
