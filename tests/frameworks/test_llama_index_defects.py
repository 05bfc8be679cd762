"""What the contexts of LlamaIndex workflows lose or repeat, and ours do not; the framework's own way is the control."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from framework_environments import require
from prose import PROSE
from survives import survives

require("llama_index")

from pydantic import BaseModel
from workflow_parts import Killed, Next, Result, finish, kill, memory
from workflows import Context, Workflow, step
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent

from holdfast import Client
from holdfast.llama_index import call_model, resumable


class Flow(Workflow):
    """A workflow that notes what its steps do."""

    def __init__(self) -> None:
        super().__init__(timeout=120)
        self.done: list[str] = []
        self.is_broken = True


async def resume_alone(workflow: Workflow, data: dict[str, Any]) -> Any:
    """Continue a context that was stored as JSON, the framework's own way."""
    context = Context.from_dict(workflow, json.loads(json.dumps(data)))
    return await finish(workflow.run(ctx=context))


# -- a step that failed ------------------------------------------------------------------------------------------------


class Failing(Flow):
    @step
    async def first(self, ev: StartEvent) -> Next:
        self.done.append("first")
        return Next()

    @step
    async def second(self, ev: Next) -> StopEvent:
        self.done.append("second")
        if self.is_broken:
            raise ConnectionError("away")
        return StopEvent(result="ok")


@survives("the step that failed", "runs again; those before it do not")
def test_a_run_that_failed_continues_with_the_step_that_failed():
    async def main() -> None:
        async with memory() as client:
            flow = Failing()
            office = resumable(flow, session_id="s", store=client)
            with pytest.raises(ConnectionError):
                await finish(office.run(task="x"))
            flow.is_broken = False
            assert await finish(office.run(task="x")) == "ok"
            assert flow.done == ["first", "second", "second"]

    asyncio.run(main())


def test_the_frameworks_context_of_a_run_that_failed_begins_again():
    async def main() -> None:
        flow = Failing()
        handler = flow.run(task="x")
        with pytest.raises(ConnectionError):
            await finish(handler)
        data = handler.ctx.to_dict()
        assert data["is_running"] is False
        flow.is_broken = False
        assert await resume_alone(flow, data) == "ok"
        assert flow.done == ["first", "second", "first", "second"]

    asyncio.run(main())


# -- steps beside each other -------------------------------------------------------------------------------------------


class Sent(Event):
    number: int


class Unknown(Event):
    """An event that no step takes."""


class Parallel(Flow):
    """`slow` changes the state and sends an event; `quick` ends meanwhile, and saves that. Then the process ends."""

    def __init__(self) -> None:
        super().__init__()
        self.is_changed, self.is_quick_done = asyncio.Event(), asyncio.Event()
        self.is_noted, self.may_die = asyncio.Event(), asyncio.Event()
        self.seen: list[Any] = []

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Next | None:
        await ctx.store.set("number", 10)
        ctx.send_event(Next(), step="slow")
        ctx.send_event(Next(), step="quick")
        return None

    @step
    async def slow(self, ctx: Context, ev: Next) -> Result | Sent:
        before = await ctx.store.get("number")
        async with ctx.store.edit_state() as state:
            state.number += 1
        self.seen.append([before, await ctx.store.get("number")])
        ctx.send_event(Sent(number=before))
        self.is_changed.set()
        if self.is_broken:
            await self.may_die.wait()
            await asyncio.sleep(0.05)
            raise Killed
        return Result(number=before + 1)

    @step
    async def note(self, ev: Sent) -> Result:
        self.done.append(f"sent {ev.number}")
        self.is_noted.set()
        return Result(number=ev.number)

    @step
    async def quick(self, ctx: Context, ev: Next) -> Result:
        await self.is_changed.wait()
        await self.is_noted.wait()
        self.done.append("quick")
        async with ctx.store.edit_state() as state:
            state.number += 100
        self.is_quick_done.set()
        return Result(number=0)

    @step
    async def gather(self, ctx: Context, ev: Result) -> StopEvent | None:
        found = ctx.collect_events(ev, [Result] * 3)
        if found is None:
            return None
        return StopEvent(result=[await ctx.store.get("number"), sorted(one.number for one in found)])


async def kill_once_quick_is_saved(flow: Parallel, office: Any, client: Client) -> None:
    async def is_saved() -> bool:
        return "quick finished" in [one.step_name for one in await client.timeline("s")]

    handler = office.run()
    async with asyncio.timeout(60):
        while not await is_saved():  # noqa: ASYNC110 - by a record of the store
            await asyncio.sleep(0.01)
    flow.may_die.set()
    await kill(handler)


@survives("what steps under way did to the state, and sent", "done once, also while other steps run")
def test_a_step_that_runs_again_changes_the_state_and_sends_its_events_once():
    async def main() -> None:
        async with memory() as client:
            flow = Parallel()
            office = resumable(flow, session_id="s", store=client)
            await kill_once_quick_is_saved(flow, office, client)
            flow.is_broken = False
            assert await finish(office.run()) == [111, [0, 10, 11]]
            assert flow.seen == [[10, 11], [10, 11]]  # and it has met the same states
            assert flow.done == ["sent 10", "quick"]

    asyncio.run(main())


def test_a_step_that_was_killed_twice_changes_the_state_and_sends_its_events_once():
    async def main() -> None:
        async with memory() as client:
            flow = Parallel()
            office = resumable(flow, session_id="s", store=client)
            await kill_once_quick_is_saved(flow, office, client)
            await kill(office.run())
            flow.is_broken = False
            assert await finish(office.run()) == [111, [0, 10, 11]]
            assert flow.seen == [[10, 11], [10, 11], [10, 11]]
            assert flow.done == ["sent 10", "quick"]

    asyncio.run(main())


def test_a_step_that_was_killed_before_it_sent_its_events_again_sends_them_once():
    class Later(Parallel):
        is_waiting = False

        @step
        async def slow(self, ctx: Context, ev: Next) -> Result | Sent:
            if self.is_waiting:
                await self.may_die.wait()
                raise Killed
            return await super().slow(ctx, ev)

    async def main() -> None:
        async with memory() as client:
            flow = Later()
            office = resumable(flow, session_id="s", store=client)
            await kill_once_quick_is_saved(flow, office, client)
            flow.is_waiting = True
            flow.may_die.clear()
            handler = office.run()
            await handler.send_event(Unknown())  # which saves the run, before the step has got that far
            flow.may_die.set()
            await kill(handler)
            flow.is_waiting = flow.is_broken = False
            assert await finish(office.run()) == [111, [0, 10, 11]]
            assert flow.done == ["sent 10", "quick"]

    asyncio.run(main())


def test_the_frameworks_context_repeats_what_a_step_under_way_has_done():
    async def main() -> None:
        flow = Parallel()
        handler = flow.run()
        await asyncio.wait_for(flow.is_quick_done.wait(), 10)
        await asyncio.sleep(0.2)
        data = handler.ctx.to_dict()
        flow.may_die.set()
        with pytest.raises(Killed):
            await finish(handler)
        flow.is_broken = False
        number, _ = await resume_alone(flow, data)
        assert number == 112  # one too many
        assert flow.done == ["sent 10", "quick", "sent 111"]  # it met its own change, and sent its event again

    asyncio.run(main())


# -- a step that waits -------------------------------------------------------------------------------------------------


class Waiting(Flow):
    async def ask(self, question: str) -> str:
        self.done.append(question)
        return "a plan"

    @step
    async def only(self, ctx: Context, ev: StartEvent) -> StopEvent:
        plan = await call_model(self.ask, "how?")
        asked = InputRequiredEvent(prefix=f"{plan}?")
        answer = await ctx.wait_for_event(HumanResponseEvent, waiter_event=asked)
        return StopEvent(result=f"{plan}: {answer.response}")


async def answer_questions(handler: Any) -> Any:
    asked = []
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            asked.append(event.prefix)
            handler.ctx.send_event(HumanResponseEvent(response="yes"))
    return asked, await handler


def test_a_step_that_waits_has_asked_its_model_once():
    async def main() -> None:
        async with memory() as client:
            flow = Waiting()
            handler = resumable(flow, session_id="s", store=client).run()
            assert await asyncio.wait_for(answer_questions(handler), 10) == (["a plan?"], "a plan: yes")
            assert flow.done == ["how?"]
        flow = Waiting()
        assert (await asyncio.wait_for(answer_questions(flow.run()), 10))[1] == "a plan: yes"
        assert flow.done == ["how?", "how?"]  # the framework alone runs the step again

    asyncio.run(main())


@survives("questions to people", "asked again, until they are answered")
def test_a_question_is_put_to_the_reader_of_the_next_life_again():
    async def main() -> None:
        async with memory() as client:
            flow = Waiting()
            office = resumable(flow, session_id="s", store=client)
            handler = office.run()
            async for event in handler.stream_events():
                assert isinstance(event, InputRequiredEvent)
                await handler.cancel_run()
                break
            handler = office.run()
            assert await asyncio.wait_for(answer_questions(handler), 10) == (["a plan?"], "a plan: yes")
            assert flow.done == ["how?"]

    asyncio.run(main())


def test_a_context_of_the_framework_does_not_ask_again():
    async def main() -> None:
        flow = Waiting()
        handler = flow.run()
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                break
        data = json.loads(json.dumps(handler.ctx.to_dict()))
        await handler.cancel_run()
        resumed = flow.run(ctx=Context.from_dict(flow, data))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(aiter(resumed.stream_events())), 0.3)
        await resumed.cancel_run()

    asyncio.run(main())


# -- names of classes --------------------------------------------------------------------------------------------------

MODULE = """
import asyncio, sys
from pydantic import BaseModel
from workflows import Context, Workflow, step
from workflows.events import Event, StartEvent, StopEvent
from holdfast.llama_index import resumable

class Office(BaseModel):
    count: int = 0

class Paid(Event):
    number: int

class Flow(Workflow):
    @step
    async def first(self, ctx: Context[Office], ev: StartEvent) -> Paid:
        async with ctx.store.edit_state() as state:
            state.count += 1
        return Paid(number=7)

    @step
    async def second(self, ctx: Context[Office], ev: Paid) -> StopEvent:
        if "broken" in sys.argv:
            raise ConnectionError
        return StopEvent(result=[ev.number, await ctx.store.get("count")])

async def main(store):
    print(await resumable(Flow(), session_id="s", store=store).run(task="x"))

if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
"""


@survives("classes of a script (`__main__`)", "found by their own names, also when it is imported")
def test_a_script_that_is_imported_later_finds_its_own_classes(tmp_path):
    (tmp_path / "app.py").write_text(MODULE)
    store = f"sqlite:///{tmp_path}/store.db"
    run = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 60}
    broken = subprocess.run([sys.executable, "app.py", store, "broken"], check=False, **run)  # stores __main__.Office
    assert "ConnectionError" in broken.stderr
    code = f"import asyncio, app; asyncio.run(app.main({store!r}))"
    imported = subprocess.run([sys.executable, "-c", code], check=False, **run)  # now app.Office
    assert imported.stdout == "[7, 1]\n", imported.stderr


class Office(BaseModel):
    count: int = 0


class Counting(Flow):
    @step
    async def only(self, ctx: Context[Office], ev: StartEvent) -> StopEvent:
        async with ctx.store.edit_state() as state:
            state.count += 1
        return StopEvent(result=await ctx.store.get("count"))


def test_a_context_of_the_framework_imports_what_it_is_told_to(tmp_path, monkeypatch):
    """The control of `test_llama_index.py::test_a_store_of_a_stranger_makes_no_class_be_imported`."""
    (tmp_path / "trap.py").write_text("raise SystemExit('executed')")
    monkeypatch.syspath_prepend(tmp_path)

    async def main() -> None:
        flow = Counting()
        handler = flow.run()
        assert await finish(handler) == 1
        data = json.loads(json.dumps(handler.ctx.to_dict()).replace(f"{Office.__module__}.Office", "trap.Office"))
        with pytest.raises(SystemExit):
            await resume_alone(flow, data)

    asyncio.run(main())


# -- size --------------------------------------------------------------------------------------------------------------


def size_of(where: Path) -> int:
    return sum(one.stat().st_size for one in where.rglob("*") if one.is_file())


class Talking(Flow):
    async def answer(self, messages: list[Any]) -> dict[str, str]:
        return {"role": "assistant", "content": f"{len(messages)} {PROSE[31 * len(messages) :][:1500]}"}

    @step
    async def listen(self, ctx: Context, ev: StartEvent) -> Next:
        known = await ctx.store.get("messages", default=[])
        await ctx.store.set("messages", [*known, {"role": "user", "content": ev.text}])
        return Next()

    @step
    async def speak(self, ctx: Context, ev: Next) -> StopEvent:
        messages = await ctx.store.get("messages")
        answer = await call_model(self.answer, messages)
        await ctx.store.set("messages", [*messages, answer])
        return StopEvent(result=answer["content"][:20])


TURNS = 100


def test_a_message_is_stored_once(tmp_path):
    async def main() -> None:
        async with Client.sqlite(tmp_path / "store.db") as client:
            office = resumable(Talking(), session_id="s", store=client)
            for number in range(TURNS):
                await finish(office.run(text=f"{number} {PROSE[100 * number :][:200]}"))
            messages = (await client.latest("s")).execution_state["messages"]
        assert len(messages) == 2 * TURNS
        assert size_of(tmp_path) < 3 * len(json.dumps(messages))  # the framework's contexts, one a step, take 150 times

    asyncio.run(main())
