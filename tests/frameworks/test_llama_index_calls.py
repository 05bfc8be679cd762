"""Calls within steps of LlamaIndex Workflows, and steps at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from framework_environments import require
from survives import survives

require("llama_index")

from llama_index_turns import Caller, Counted, Counter, Flow, Profile
from workflow_parts import Killed, Next, Result, finish, kill, memory
from workflows import Context, step
from workflows.events import StartEvent, StopEvent
from workflows.retry_policy import retry_policy, stop_after_attempt, wait_fixed

from holdfast import Effect
from holdfast.adapters.base.turn import INTERRUPTED, OUTCOME_UNKNOWN
from holdfast.errors import UsageError
from holdfast.llama_index import call_model, call_tool, resumable, stream_model


@survives("steps under way", "run again, with recorded calls")
def test_calls_of_a_step_that_was_cut_off_are_not_made_again():
    async def main() -> None:
        async with memory() as client:
            flow = Caller()
            office = resumable(flow, session_id="s", store=client)
            await kill(office.run())
            flow.is_broken = False
            assert await finish(office.run()) == [["answer 1", "answer 2"], {"receipt": "i-1"}]
            assert flow.done == ["a", "a", "i-1"]
            assert await finish(flow.run()) == [["answer 4", "answer 5"], {"receipt": "i-1"}]  # alone: just calls

    asyncio.run(main())


def test_a_step_under_way_is_stored_without_the_times_of_its_life():
    async def main() -> None:
        async with memory() as client:
            await kill(resumable(Caller(), session_id="s", store=client).run())
            head = await client.latest("s")
            broker = head.execution_state["broker"]
            [attempt] = [item for worker in broker["workers"].values() for item in worker["in_progress"]]
            assert {"work_item_id", "invocation_id"} <= attempt.keys()
            assert not {"first_attempt_at", "elapsed_alive", "last_alive_stamp"} & {*attempt, *broker}

    asyncio.run(main())


@survives("tools under way", "repeated or reported, as declared")
@pytest.mark.parametrize(
    ("declared", "calls", "result"),
    [
        (None, 1, INTERRUPTED),
        ("irreversible", 1, OUTCOME_UNKNOWN),
        ("idempotent", 2, {"receipt": "i-1"}),
        ("read", 2, {"receipt": "i-1"}),
    ],
)
def test_a_tool_that_was_under_way_is_reported_or_repeated_as_declared(declared, calls, result):
    async def main() -> None:
        async with memory() as client:
            flow = Caller()
            flow.is_broken = "in pay"
            tools = {} if declared is None else {"pay": Effect(declared)}
            office = resumable(flow, session_id="s", store=client, tools=tools)
            await kill(office.run())
            flow.is_broken = False
            assert (await finish(office.run()))[1] == result
            assert flow.done.count("i-1") == calls

    asyncio.run(main())


def test_a_step_that_is_tried_again_asks_its_model_again():
    class Retried(Flow):
        async def ask(self, question: str) -> str:
            self.done.append(question)
            return f"answer {len(self.done)}"

        @step(retry_policy=retry_policy(wait=wait_fixed(0.01), stop=stop_after_attempt(3)))
        async def only(self, ctx: Context, ev: StartEvent) -> StopEvent:
            answer = await call_model(self.ask, "a")
            if answer == "answer 1":
                raise ValueError("no JSON")
            if self.is_broken:
                raise Killed
            return StopEvent(result=answer)

    async def main() -> None:
        async with memory() as client:
            flow = Retried()
            office = resumable(flow, session_id="s", store=client)
            await kill(office.run())
            flow.is_broken = False
            assert await finish(office.run()) == "answer 2"  # the attempt that was cut off, not the first one
            assert flow.done == ["a", "a"]
            assert "only failed" in [one.step_name for one in await client.timeline("s")]

    asyncio.run(main())


def test_a_streamed_answer_is_replayed_and_half_of_one_is_not():
    class Streaming(Flow):
        async def stream(self, question: str) -> AsyncIterator[str]:
            self.done.append(question)
            for word in ("one", "two", "three"):
                yield word
                if self.is_broken == "in the stream" and word == "two":
                    raise Killed

        @step
        async def only(self, ctx: Context, ev: StartEvent) -> StopEvent:
            words = [word async for word in stream_model(self.stream, "a")]
            if self.is_broken:
                raise Killed
            return StopEvent(result=words)

    async def main() -> None:
        async with memory() as client:
            flow = Streaming()
            office = resumable(flow, session_id="s", store=client)
            for broken in ("in the stream", "after it"):
                flow.is_broken = broken
                await kill(office.run())
            flow.is_broken = False
            assert await finish(office.run()) == ["one", "two", "three"]
            assert flow.done == ["a", "a"]
            assert await finish(flow.run()) == ["one", "two", "three"]

    asyncio.run(main())


def test_an_answer_whose_class_nothing_declares_is_refused():
    class Undeclared(Flow):
        async def ask(self, question: str):
            return Profile(name="ann")

        @step
        async def only(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=(await call_model(self.ask, "a")).name)

    async def main() -> None:
        async with memory() as client:
            with pytest.raises(UsageError, match="Annotate it"):
                await finish(resumable(Undeclared(), session_id="s", store=client).run())

    asyncio.run(main())


def test_a_long_conversation_is_another_request_if_its_end_or_length_differs():
    class Chat(Flow):
        async def ask(self, messages: list[Any]) -> int:
            self.done.append(len(messages))
            return len(self.done)

        @step
        async def only(self, ctx: Context, ev: StartEvent) -> StopEvent:
            known = list(range(100))
            asked = [known, [*known, 1], [*known[:-1], -1]]
            answers = [await call_model(self.ask, one) for one in asked]
            if self.is_broken:
                self.is_broken = False
                raise Killed
            return StopEvent(result=answers)

    async def main() -> None:
        async with memory() as client:
            flow = Chat()
            office = resumable(flow, session_id="s", store=client)
            await kill(office.run())
            assert await finish(office.run()) == [1, 2, 3]
            assert flow.done == [100, 101, 100]

    asyncio.run(main())


def test_a_tool_object_of_llama_index_is_called_by_its_name():
    class Metadata:
        name = "pay"

    class Tool:
        metadata = Metadata()

        def __init__(self) -> None:
            self.calls: list[int] = []

        async def acall(self, invoice: int) -> str:
            self.calls.append(invoice)
            return f"receipt {invoice}"

    class Using(Flow):
        @step
        async def only(self, ctx: Context, ev: StartEvent) -> StopEvent:
            receipt = await call_tool(tool, invoice=7)
            if self.is_broken:
                raise Killed
            return StopEvent(result=receipt)

    tool = Tool()

    async def main() -> None:
        async with memory() as client:
            flow = Using()
            office = resumable(flow, session_id="s", store=client, tools={"pay": "irreversible"})
            await kill(office.run())
            flow.is_broken = False
            assert await finish(office.run()) == "receipt 7"
            assert tool.calls == [7]
            assert [one.tool for one in await client.effects("s")] == ["pay"]

    asyncio.run(main())


# -- graphs ------------------------------------------------------------------------------------------------------------


@survives("fan-out, `collect_events`, `wait_for_event`", "where they were")
def test_a_list_of_events_is_fanned_out_and_collected_once():
    class Fan(Flow):
        @step
        async def split(self, ev: StartEvent) -> list[Next]:
            return [Next(number=number) for number in range(4)]

        @step(num_workers=2)
        async def work(self, ev: Next) -> Result:
            self.done.append(ev.number)
            if self.is_broken and ev.number == 2:
                await asyncio.sleep(0.05)
                raise Killed
            return Result(number=10 * ev.number)

        @step
        async def join(self, results: list[Result]) -> StopEvent:
            return StopEvent(result=sorted(one.number for one in results))

    async def main() -> None:
        async with memory() as client:
            flow = Fan()
            office = resumable(flow, session_id="s", store=client)
            await kill(office.run())
            assert sorted(flow.done) == [0, 1, 2, 3]
            flow.is_broken = False
            assert await finish(office.run()) == [0, 10, 20, 30]
            assert sorted(flow.done) == [0, 1, 2, 2, 3]

    asyncio.run(main())


def test_a_model_that_reads_steps_side_by_side_is_not_asked_again():
    """In the first life the second one ends first; the next one finds both ended."""

    class Joining(Flow):
        def __init__(self) -> None:
            super().__init__()
            self.is_collected = asyncio.Event()

        async def ask(self, numbers: list[int]) -> str:
            self.done.append(numbers)
            if len(self.done) == 2 and self.is_broken:
                raise Killed
            return "concluded"

        @step
        async def split(self, ev: StartEvent) -> list[Next]:
            return [Next(number=1), Next(number=2)]

        @step(num_workers=2)
        async def work(self, ev: Next) -> Result:
            if ev.number == 1:
                await self.is_collected.wait()
            return Result(number=ev.number)

        @step
        async def join(self, ctx: Context, ev: Result) -> StopEvent | None:
            self.is_collected.set()
            found = ctx.collect_events(ev, [Result] * 2)
            if found is None:
                return None
            await call_model(self.ask, [one.number for one in found])
            return StopEvent(result=await call_model(self.ask, []))

    async def main() -> None:
        async with memory() as client:
            flow = Joining()
            office = resumable(flow, session_id="s", store=client)
            await kill(office.run())
            flow.is_broken = False
            assert await finish(office.run()) == "concluded"
            assert flow.done == [[2, 1], [], []]

    asyncio.run(main())


def test_a_call_is_found_though_other_steps_are_faster_in_the_next_life():
    class Racing(Flow):
        def __init__(self) -> None:
            super().__init__()
            self.is_asked = asyncio.Event()

        async def ask(self, number: int) -> int:
            self.done.append(number)
            return 10 * number

        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> Next | None:
            ctx.send_event(Next(number=1), step="one")
            ctx.send_event(Next(number=2), step="two")
            return None

        @step
        async def one(self, ctx: Context, ev: Next) -> Result | None:
            if not self.is_broken:
                await self.is_asked.wait()  # by the other one
            ctx.send_event(Result(number=1))
            await asyncio.sleep(30 if self.is_broken else 0)
            return None

        @step
        async def two(self, ctx: Context, ev: Next) -> Result | None:
            if self.is_broken:
                await self.is_asked.wait()
                raise Killed
            ctx.send_event(Result(number=2))
            return None

        @step(num_workers=4)
        async def work(self, ctx: Context, ev: Result) -> Counted:
            answer = await call_model(self.ask, ev.number)
            self.is_asked.set()
            await asyncio.sleep(30 if self.is_broken else 0)
            return Counted(number=answer)

        @step
        async def join(self, ctx: Context, ev: Counted) -> StopEvent | None:
            found = ctx.collect_events(ev, [Counted] * 2)
            return None if found is None else StopEvent(result=sorted(one.number for one in found))

    async def main() -> None:
        async with memory() as client:
            flow = Racing()
            office = resumable(flow, session_id="s", store=client)
            await kill(office.run())
            assert flow.done == [1]
            flow.is_broken = False
            flow.is_asked.clear()
            assert await finish(office.run()) == [10, 20]
            assert flow.done == [1, 2]

    asyncio.run(main())


def test_a_fork_continues_with_the_same_state():
    async def main() -> None:
        async with memory() as client:
            flow = Counter()
            await finish(resumable(flow, session_id="s", store=client).run(text="a"))
            await client.fork("s", session_id="try-2")
            assert await finish(resumable(flow, session_id="try-2", store=client).run(text="b")) == "b 2"
            assert await finish(resumable(flow, session_id="s", store=client).run(text="c")) == "c 2"

    asyncio.run(main())
