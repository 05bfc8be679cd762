"""People in LlamaIndex workflows: questions wait in `holdfast approvals`, or for an event of the program."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from framework_environments import require
from survives import survives

require("llama_index")

from workflow_parts import finish, memory, restart
from workflows import Context, Workflow, step
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent

from holdfast import Client
from holdfast.errors import ApprovalPendingError, UsageError
from holdfast.llama_index import resumable


class AskBoss(InputRequiredEvent):
    invoice: str


class BossSays(HumanResponseEvent):
    approved: bool
    invoice: str
    limit: int = 0


class Asking(Workflow):
    """A step returns the question, another one takes the answer."""

    def __init__(self) -> None:
        super().__init__(timeout=120)
        self.done: list[str] = []

    @step
    async def ask(self, ev: StartEvent) -> InputRequiredEvent:
        self.done.append("ask")
        return InputRequiredEvent(prefix="pay 7?")

    @step
    async def take(self, ev: HumanResponseEvent) -> StopEvent:
        self.done.append("take")
        return StopEvent(result=ev.response)


class Written(Asking):
    """A step writes the question to the stream, and waits, as older programs do."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        self.done.append("ask")
        ctx.write_event_to_stream(InputRequiredEvent(prefix="pay 7?"))
        answer = await ctx.wait_for_event(HumanResponseEvent)
        self.done.append("take")
        return StopEvent(result=answer.response)

    take = None


class Waiting(Asking):
    """A step waits for one kind of answer, with a requirement, which the framework does not store."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        self.done.append("ask")
        answer = await ctx.wait_for_event(
            HumanResponseEvent, waiter_event=InputRequiredEvent(prefix="pay 7?"), requirements={"desk": 3}
        )
        self.done.append("take")
        return StopEvent(result=answer.response)

    take = None


async def decide(client: Client, answer: str = "approve", **options: Any) -> dict[str, Any]:
    [asked] = await client.approvals("s")
    await client.decide(asked.approval_id, answer, by="ann", **options)
    return {"tool": asked.call.tool, **asked.call.arguments}


@pytest.mark.parametrize("kind", [Asking, Written, Waiting])
def test_a_question_waits_in_approvals_and_the_note_answers_it(kind):
    async def main() -> None:
        async with memory() as client:
            flow = kind()
            office = resumable(flow, session_id="s", store=client)
            for _ in range(2):  # asked once, however often the run is started
                with pytest.raises(ApprovalPendingError):
                    await finish(office.run())
                restart()
            asked = await decide(client, note="yes, but only half")
            assert asked == {"tool": "ask", "question": {"prefix": "pay 7?"}, "answer": None}
            assert await finish(office.run()) == "yes, but only half"
            assert flow.done.count("take") == 1
            assert await client.approvals("s") == []

    asyncio.run(main())


@pytest.mark.parametrize(("answer", "response"), [("approve", "APPROVE"), ("reject", "REJECT")])
def test_a_decision_without_a_note_says_what_was_decided(answer, response):
    async def main() -> None:
        async with memory() as client:
            office = resumable(Asking(), session_id="s", store=client)
            with pytest.raises(ApprovalPendingError):
                await finish(office.run())
            await decide(client, answer)
            assert await finish(office.run()) == response

    asyncio.run(main())


class Typed(Asking):
    @step
    async def ask(self, ev: StartEvent) -> AskBoss:
        return AskBoss(invoice="i-7")

    @step
    async def take(self, ev: BossSays) -> StopEvent:
        return StopEvent(result=[ev.approved, ev.invoice, ev.limit, ev.by])


def test_fields_of_the_answer_are_filled_from_the_decision_and_the_question():
    async def main() -> None:
        async with memory() as client:
            office = resumable(Typed(), session_id="s", store=client)
            with pytest.raises(ApprovalPendingError):
                await finish(office.run(text="a"))
            asked = await decide(client, "reject")
            assert await finish(office.run(text="a")) == [False, "i-7", 0, "ann"]
            with pytest.raises(ApprovalPendingError):
                await finish(office.run(text="b"))
            await decide(client, "modify", arguments={"question": asked["question"], "answer": {"limit": 50}})
            assert await finish(office.run(text="b")) == [True, "i-7", 50, "ann"]
            with pytest.raises(ApprovalPendingError):
                await finish(office.run(text="c"))
            await decide(client, "modify", arguments={"question": asked["question"], "answer": {"limit": "a lot"}})
            with pytest.raises(UsageError, match="is no BossSays"):
                await finish(office.run(text="c"))

    asyncio.run(main())


async def read(handler: Any, answer: Event | None) -> list[str]:
    """Read a stream, and answer its questions."""
    questions = []
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            questions.append(event.prefix)
            if answer is None:
                break
            handler.ctx.send_event(answer)
    return questions


@pytest.mark.parametrize("kind", [Asking, Written, Waiting])
def test_a_reader_of_the_stream_answers_and_nothing_waits_in_approvals(kind):
    async def main() -> None:
        async with memory() as client:
            flow = kind()
            handler = resumable(flow, session_id="s", store=client).run()
            reader = asyncio.ensure_future(read(handler, HumanResponseEvent(response="yes", desk=3)))
            assert await finish(handler) == "yes"
            assert await reader == ["pay 7?"] * (2 if kind is Written else 1)  # it is written again with the step
            assert await client.approvals("s", pending=False) == []

    asyncio.run(main())


@pytest.mark.parametrize("kind", [Asking, Written, Waiting])
def test_a_reader_that_leaves_lets_the_question_wait_and_the_next_life_streams_on(kind):
    async def main() -> None:
        async with memory() as client:
            office = resumable(kind(), session_id="s", store=client)
            handler = office.run()
            assert await read(handler, None) == ["pay 7?"]
            with pytest.raises(ApprovalPendingError):
                await finish(handler)
            restart()
            handler = office.run()  # nobody has decided: the reader is asked again
            assert await read(handler, None) == ["pay 7?"]
            with pytest.raises(ApprovalPendingError):
                await finish(handler)
            restart()
            await decide(client, note="yes")
            handler = office.run()
            kinds = [type(event) async for event in handler.stream_events()]
            assert kinds[-1] is StopEvent
            assert await finish(handler) == "yes"

    asyncio.run(main())


@survives("events that were sent from outside", "not lost")
def test_an_answer_that_was_sent_is_not_lost():
    class Slow(Asking):
        is_broken = True

        @step
        async def take(self, ev: HumanResponseEvent) -> StopEvent:
            self.done.append("take")
            if self.is_broken:
                raise ConnectionError
            return StopEvent(result=ev.response)

    async def main() -> None:
        async with memory() as client:
            flow = Slow()
            office = resumable(flow, session_id="s", store=client)
            handler = office.run()
            reader = asyncio.ensure_future(read(handler, HumanResponseEvent(response="yes")))
            with pytest.raises(ConnectionError):
                await finish(handler)
            await reader
            flow.is_broken = False
            assert await finish(office.run()) == "yes"
            assert flow.done == ["ask", "take", "take"]

    asyncio.run(main())


def test_an_event_of_the_program_may_be_sent_before_the_run_has_begun():
    async def main() -> None:
        async with memory() as client:
            handler = resumable(Asking(), session_id="s", store=client).run()
            await handler.send_event(HumanResponseEvent(response="early"))
            assert await finish(handler) == "early"

    asyncio.run(main())


class Two(Asking):
    """Two questions at the same time."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> AskBoss | None:
        for invoice in "ab":
            ctx.send_event(StartEvent(invoice=invoice), step="put")
        return None

    @step(num_workers=2)
    async def put(self, ctx: Context, ev: StartEvent) -> StopEvent | None:
        if "invoice" not in ev:
            return None
        asked = AskBoss(invoice=ev.invoice)
        answer = await ctx.wait_for_event(
            BossSays, waiter_event=asked, waiter_id=ev.invoice, requirements={"invoice": ev.invoice}
        )
        answers = [*await ctx.store.get("answers", default=[]), f"{answer.invoice} {answer.approved}"]
        await ctx.store.set("answers", answers)
        return StopEvent(result=sorted(answers)) if len(answers) == 2 else None

    take = None


def test_several_questions_wait_at_the_same_time():
    async def main() -> None:
        async with memory() as client:
            office = resumable(Two(), session_id="s", store=client)
            with pytest.raises(ApprovalPendingError):
                await finish(office.run())
            asked = await client.approvals("s")
            assert sorted(one.arguments["question"]["invoice"] for one in asked) == ["a", "b"]
            for one in asked:
                answer = "approve" if one.arguments["question"]["invoice"] == "a" else "reject"
                await client.decide(one.approval_id, answer, by="ann")
            restart()
            assert await finish(office.run()) == ["a True", "b False"]

    asyncio.run(main())
