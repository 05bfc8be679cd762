"""A session whose state is not what its adapter has saved: an error of holdfast, before anything is called.

The state may be a stranger's, or of another framework, or damaged by a program. An adapter reads what it can, so a
change that the framework does not mind is no error.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from call_log import read_calls
from campaign import SOAK, randomness
from framework_environments import is_installed
from moved_agents import CONTINUE, QUESTION, RECEIPT, Office, is_here

from holdfast import SyncClient
from holdfast.adapters.base import session as sessions
from holdfast.codec.codec import Codec
from holdfast.errors import CorruptError, HoldfastError, UsageError
from holdfast.format.state import run_journal

ODD: list[Any] = [None, True, -1, 2**70, "x", b"\x00", [], {}, [[]], [None], {"a": 1}, float("nan"), "\ud800"]
MISSING = object()
MOST = 2000 if SOAK else 60  # changes for each framework
MISTAKES = {  # what a framework says of a model that has really answered so
    "agent_framework": "had an empty call_id",
    "ag2": "Expecting value",  # of arguments that are no JSON
    "autogen": "Reflect on tool use produced no valid text response",
    "crewai": "Invalid response from LLM call - None or empty",
    "openai_agents": "not found in agent clerk",
}


def run_workflow(store: str, session: str, office: Office) -> str:
    from workflows import Context, Workflow, step
    from workflows.events import Event, StartEvent, StopEvent

    from holdfast.llama_index import call_model, call_tool, resumable

    class Paid(Event):
        pass

    class Clerk(Workflow):
        @step
        async def pay(self, ctx: Context, ev: StartEvent) -> Paid | StopEvent:
            messages = await ctx.store.get("messages", default=[])
            said = await call_model(office.answer, str(messages))
            if said is not None:
                return StopEvent(result=said)
            paid = await call_tool(office.pay, invoice="7")
            await ctx.store.set("messages", [*messages, {"role": "user", "content": "pay"}, {"paid": paid}])
            return Paid()

        @step
        async def report(self, ctx: Context, ev: Paid) -> StopEvent:
            said = await call_model(office.answer, str(await ctx.store.get("messages")))
            return StopEvent(result=said)

    async def run() -> str:
        return str(await resumable(Clerk(), session_id=session, store=store, tools={"pay": office.effect}).run())

    return asyncio.run(run())


class ShortOffice(Office):
    """Its model gives up after a few tries: a forged result need not be a receipt."""

    def answer(self, read: str) -> str | None:
        said = super().answer(read)
        return "enough" if len(read_calls(self.directory)["model"]) > 3 else said

    def pay(self, invoice: str) -> str:
        return super().pay(str(invoice))


class LostOffice(Office):
    """Its model pays, and can't be reached afterwards."""

    def answer(self, read: str) -> str | None:
        said = super().answer(read)
        if said is not None:
            raise ConnectionError("the model is away")
        return said


RUN: dict[str, Callable[[str, str, Office], str]] = {
    name: run
    for name, run in {**CONTINUE, "llama_index": run_workflow}.items()
    if name != "langgraph" and is_here(name)
}


@pytest.fixture(autouse=True)
def _a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions._finished.clear()
    monkeypatch.setattr(sessions, "KEEP_STATE", False)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def find_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in inner:
        yield from find_paths(item, (*path, name))


def change(state: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a state with another value at a path, or without it."""
    if not path:
        return value
    changed = copy.deepcopy(state)
    holder = changed
    for name in path[:-1]:
        holder = holder[name]
    if value is MISSING:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return changed


def forge_journals(kept: dict[str, Any], chance: random.Random) -> Iterator[dict[str, Any]]:
    """Yield journals with another answer or result in one of their records, or with a record that is none."""
    codec, steps = Codec(on_unknown_type="plain", warns=False), kept["steps"]
    decoded = [codec.decode(entry[3]) for entry in steps]
    for path, value in choose_changes(decoded, chance):
        forged = change(decoded, path, value)
        if not isinstance(forged, list) or len(forged) != len(steps):
            yield {**kept, "steps": forged}
            continue
        with suppress(HoldfastError):  # of a value that no store keeps
            entries = [[*entry[:3], codec.encode(one), *entry[4:]] for entry, one in zip(steps, forged, strict=True)]
            yield {**kept, "steps": entries}


def choose_changes(state: Any, chance: random.Random) -> list[tuple[tuple[Any, ...], Any]]:
    found = [(path, value) for path in find_paths(state) for value in [*ODD, *([MISSING] if path else [])]]
    return chance.sample(found, min(MOST, len(found)))


@pytest.mark.parametrize("framework", RUN)
def test_a_forged_state_is_an_error_of_holdfast_or_none(framework, store, tmp_path):
    office = Office(tmp_path)
    assert RUN[framework](store, "s", office) == f"paid: {RECEIPT}"
    with SyncClient.open(store, on_unknown_type="plain") as client:
        head = client.latest("s")
        refused = 0
        for number, (path, value) in enumerate(choose_changes(head.execution_state, randomness(framework))):
            forged, name, outside = change(head.execution_state, path, value), f"s{number}", tmp_path / str(number)
            outside.mkdir()
            try:
                # With the context, the turn is a finished one.
                context = head.agent_context if number % 2 else {}
                client.save(head.agent_id, framework, forged, session_id=name, context=context)
            except HoldfastError:
                continue  # of a value that no store keeps
            try:
                RUN[framework](store, name, Office(outside))
            except HoldfastError:
                refused += 1
                assert not read_calls(outside), f"something was called, with {value!r} at {path}"
            except Exception as error:
                raise AssertionError(f"{value!r} at {path}: {error!r}") from error
        assert refused


@pytest.mark.parametrize("framework", RUN)
def test_a_conversation_of_another_framework_is_refused_by_both_names(framework, store, tmp_path):
    other = "strands" if framework != "strands" else "ag2"
    with SyncClient.open(store) as client:
        client.save("clerk", other, {"messages": [{"role": "user", "content": QUESTION}]}, session_id="s")
        with pytest.raises(UsageError, match=rf"is one of {other}, and this agent is one of {framework}.*resume_as"):
            RUN[framework](store, "s", Office(tmp_path))
        assert client.latest("s").framework == other
    assert not read_calls(tmp_path)


@pytest.mark.skipif(not is_installed("claude_agent"), reason="the Claude Agent SDK is not installed")
def test_a_forged_transcript_starts_no_cli(store):
    from claude_agent_sdk import ClaudeAgentOptions

    from holdfast.claude_agent import resumable

    async def ask() -> None:
        options = ClaudeAgentOptions(cli_path="/nowhere/claude")  # it would be an error of the SDK to start that
        async for _ in resumable(options, session_id="s", store=store).query("pay"):
            pass

    with SyncClient.open(store) as client:
        client.save("claude", "claude_agent", {"messages": 7}, session_id="s")
    with pytest.raises(CorruptError, match="messages is a int, not a list"):
        asyncio.run(ask())


@pytest.mark.parametrize("framework", RUN)
def test_a_forged_record_of_a_turn_under_way_is_an_error_of_holdfast_or_none(framework, store, tmp_path):
    (tmp_path / "first").mkdir()
    with pytest.raises(Exception, match="the model is away"):
        RUN[framework](store, "s", LostOffice(tmp_path / "first"))
    with SyncClient.open(store, on_unknown_type="plain") as client:
        head = client.latest("s")
        kept = head.agent_context[run_journal.KEY]
        assert kept["steps"], "nothing was recorded before the model was away"
        refused = 0
        for number, context in enumerate(forge_journals(kept, randomness(framework))):
            name, outside = f"s{number}", tmp_path / str(number)
            outside.mkdir()
            forged = {run_journal.KEY: context}
            client.save(head.agent_id, framework, head.execution_state, session_id=name, context=forged)
            try:
                RUN[framework](store, name, ShortOffice(outside))
            except HoldfastError:
                refused += 1
                assert not read_calls(outside), f"something was called, with {context!r}"
            except Exception as error:
                if MISTAKES.get(framework, "\0") not in str(error):
                    raise AssertionError(f"{context!r}: {error!r}") from error
        assert refused
