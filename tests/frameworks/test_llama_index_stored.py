"""What the store has of the turns of a workflow: a text that its model answered, and a step that runs alone, once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from framework_environments import require

require("llama_index")

from llama_index_turns import Flow
from workflow_parts import Killed, Next, finish, kill, memory, restart
from workflows import Context, step
from workflows.events import StartEvent, StopEvent

from holdfast.adapters.base.session_transcript import read_results
from holdfast.llama_index import call_model, resumable
from holdfast.transcript import to_transcript

LONG = "The invoice is paid. " * 20


class Teller(Flow):
    """Returns what its model has said to the task; the model may be asked in a conversation that is kept."""

    def __init__(self, *, keeps_messages: bool = True) -> None:
        super().__init__()
        self.is_broken, self.keeps_messages = False, keeps_messages

    async def ask(self, task: str) -> dict[str, Any]:
        self.done.append(task)
        return {"role": "assistant", "content": f"{task}: {LONG}"}

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Next:
        await ctx.store.set("task", ev.task)
        return Next()

    @step
    async def tell(self, ctx: Context, ev: Next) -> StopEvent:
        uses = 1 + await ctx.store.get("uses", default=0)
        await ctx.store.set("uses", uses)
        task = await ctx.store.get("task")
        answer = await call_model(self.ask, task)
        if self.is_broken:
            raise Killed
        if self.keeps_messages:
            await ctx.store.set("messages", [{"role": "user", "content": task}, answer])
        return StopEvent(result=answer["content"])


# -- results -----------------------------------------------------------------------------------------------------------


def count_stored(checkpoint: Any) -> int:
    """Return how often the records of a session have the long text."""
    return json.dumps([found.value for found in read_results(checkpoint, 0)]).count(LONG)


def test_a_text_that_the_model_answered_is_recorded_once():
    async def main() -> None:
        async with memory() as client:
            office = resumable(Teller(), session_id="s", store=client)
            assert await finish(office.run(task="a")) == f"a: {LONG}"
            assert count_stored(await client.latest("s")) == 1

    asyncio.run(main())


def test_a_recorded_text_is_found_after_later_turns_and_in_a_fork():
    async def main() -> None:
        async with memory() as client:
            flow = Teller()
            for task in "ab":  # the second turn replaces the conversation
                await finish(resumable(flow, session_id="s", store=client).run(task=task))
            await client.fork("s", session_id="try-2")
            restart()
            for session in ("s", "try-2"):
                office = resumable(flow, session_id=session, store=client)
                assert [await finish(office.run(task=task)) for task in "ab"] == [f"a: {LONG}", f"b: {LONG}"]
            assert flow.done == ["a", "b"]

    asyncio.run(main())


def test_a_recorded_text_is_in_the_transcript_of_a_workflow_without_messages():
    async def main() -> None:
        async with memory() as client:
            office = resumable(Teller(keeps_messages=False), session_id="s", store=client)
            await finish(office.run(task="a"))
            told = to_transcript(await client.latest("s"))
            assert [(one.role, one.text) for one in told] == [
                ("user", '{"task": "a"}'),
                ("assistant", f"a: {LONG}"),
            ]

    asyncio.run(main())


# -- work in progress --------------------------------------------------------------------------------------------------


def test_the_work_of_a_step_that_runs_alone_is_stored_once():
    async def main() -> None:
        async with memory() as client:
            flow = Teller()
            flow.is_broken = True
            await kill(resumable(flow, session_id="s", store=client).run(task="a"))
            [called, began, *_] = await client.timeline("s")
            states = [(await client.restore(one.checkpoint_id)).execution_state for one in (began, called)]
            assert (began.step_name, called.step_name) == ("begin finished", "tell")
            assert states[0]["broker"] == states[1]["broker"]

    asyncio.run(main())


def test_a_step_that_ran_alone_finds_its_call_and_changes_the_state_once():
    async def main() -> None:
        async with memory() as client:
            flow = Teller()
            office = resumable(flow, session_id="s", store=client)
            for is_broken in (True, True, False):
                flow.is_broken = is_broken
                await (kill if is_broken else finish)(office.run(task="a"))
            assert flow.done == ["a"]
            assert (await client.latest("s")).execution_state["state"]["value"]["uses"] == 1

    asyncio.run(main())
