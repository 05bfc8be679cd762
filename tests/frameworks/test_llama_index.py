"""Workflows of LlamaIndex: turns, state, calls within steps, forks, transcripts, contexts saved by hand."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from framework_environments import require
from survives import survives

require("llama_index")

from llama_index_turns import Caller, Counted, Counter, Flow, Profile
from pydantic import BaseModel
from workflow_parts import Killed, Next, Result, finish, kill, memory, restart
from workflows import Context, step
from workflows.context.serializers import JsonSerializer, PickleSerializer
from workflows.errors import WorkflowCancelledByUser, WorkflowRuntimeError, WorkflowTimeoutError
from workflows.events import HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent
from workflows.runtime.types.plugin import Runtime

from holdfast.errors import HoldfastWarning, UnfinishedTurnError, UnsupportedValueError, UsageError
from holdfast.llama_index import call_tool, extract, reconstruct, resumable
from holdfast.transcript import to_transcript

# -- turns -------------------------------------------------------------------------------------------------------------


def test_a_finished_turn_returns_its_recorded_result():
    async def main() -> None:
        async with memory() as client:
            flow = Counter()
            office = resumable(flow, session_id="s", store=client)
            assert await finish(office.run(text="a")) == "a 1"
            assert await finish(office.run(text="b")) == "b 2"
            restart()
            handler = office.run(text="a")
            events = [event async for event in handler.stream_events()]
            assert [type(one) for one in events] == [StopEvent]
            assert await finish(handler) == events[0].result == "a 1"
            assert handler.get_stop_event().result == "a 1"
            assert handler.is_done()
            assert await finish(office.run(text="c")) == "c 3"
            assert await finish(office.run(text="a", turn="again")) == "a 4"
            assert flow.done == ["a", "b", "c", "a"]

    asyncio.run(main())


def test_another_turn_is_refused_while_one_is_unfinished():
    async def main() -> None:
        async with memory() as client:
            office = resumable(Steps(), session_id="s", store=client)
            await kill(office.run(text="a"))
            with pytest.raises(UnfinishedTurnError, match="text"):
                await finish(office.run(text="b"))

    asyncio.run(main())


def serch(words: str) -> str:
    return words


class Desk:
    def search(self, words: str) -> str:
        return words


class Reader(Flow):
    @step
    async def read(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await call_tool(Desk().search, words=ev.text))


def test_a_tool_that_is_declared_by_nearly_its_name_is_warned_of():
    async def main() -> None:
        async with memory() as client:
            with pytest.warns(HoldfastWarning, match=r"'sear_ch'.*Did you mean 'search'"):
                await finish(resumable(Reader(), session_id="1", store=client, tools={"sear_ch": "read"}).run(text="a"))
            # There is a function of this name, which may be another tool.
            await finish(resumable(Reader(), session_id="2", store=client, tools={"serch": "read"}).run(text="a"))
            await finish(resumable(Reader(), session_id="3", store=client, tools={"search": "read"}).run(text="a"))

    asyncio.run(main())


class Steps(Flow):
    @step
    async def first(self, ev: StartEvent) -> Next:
        self.done.append("first")
        return Next()

    @step
    async def second(self, ev: Next) -> StopEvent:
        self.done.append("second")
        if self.is_broken:
            raise Killed
        return StopEvent(result="ok")


@survives("other code of a step under way", "runs again")
def test_a_finished_step_is_not_run_again():
    async def main() -> None:
        async with memory() as client:
            flow = Steps()
            office = resumable(flow, session_id="s", store=client)
            await kill(office.run(text="a"))
            flow.is_broken = False
            assert await finish(office.run(text="a")) == "ok"
            assert flow.done == ["first", "second", "second"]
            names = [one.step_name for one in await client.timeline("s")]
            assert names == ["run", "first finished"]

    asyncio.run(main())


@survives("events written to the stream", "not written again, if their step has finished")
def test_the_stream_goes_on_after_the_events_of_finished_steps():
    class Telling(Steps):
        @step
        async def first(self, ctx: Context, ev: StartEvent) -> Next:
            ctx.write_event_to_stream(Result(number=1))
            return Next()

        @step
        async def second(self, ctx: Context, ev: Next) -> StopEvent:
            ctx.write_event_to_stream(Result(number=2))
            await asyncio.sleep(0)
            if self.is_broken:
                raise Killed
            return StopEvent(result="ok")

    async def numbers(handler: Any) -> list[int]:
        return [event.number async for event in handler.stream_events() if isinstance(event, Result)]

    async def main() -> None:
        async with memory() as client:
            flow = Telling()
            office = resumable(flow, session_id="s", store=client)
            handler = office.run()
            assert await asyncio.wait_for(numbers(handler), 10) == [1, 2]
            await kill(handler)
            flow.is_broken = False
            handler = office.run()
            assert await asyncio.wait_for(numbers(handler), 10) == [2]
            with pytest.raises(WorkflowRuntimeError, match="already been consumed"):
                await numbers(handler)

    asyncio.run(main())


def test_many_sessions_share_a_workflow_and_run_at_the_same_time():
    async def main() -> None:
        async with memory() as client:
            flow = Counter()
            offices = [resumable(flow, session_id=f"s-{number}", store=client) for number in range(4)]
            results = await asyncio.gather(*(finish(one.run(text="a")) for one in offices))
            assert results == ["a 1"] * 4
            assert await finish(flow.run(text="alone")) == "alone 1"  # the workflow itself runs as before
            assert len(await client.sessions()) == 4

    asyncio.run(main())


def test_a_run_that_was_cancelled_is_continued_by_the_same_call():
    class Slow(Flow):
        @step
        async def first(self, ev: StartEvent) -> Next:
            self.done.append("first")
            return Next()

        @step
        async def second(self, ctx: Context, ev: Next) -> StopEvent:
            if self.is_broken:
                ctx.write_event_to_stream(Result())
                await asyncio.sleep(30)
            return StopEvent(result="ok")

    async def main() -> None:
        async with memory() as client:
            flow = Slow()
            office = resumable(flow, session_id="s", store=client)
            handler = office.run()
            async for event in handler.stream_events():
                if isinstance(event, Result):
                    await handler.cancel_run()
                    break
            assert handler.is_done()
            assert handler.get_stop_event() is None
            task = asyncio.ensure_future(_await(office.run()))  # and so is one whose task was cancelled
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            flow.is_broken = False
            assert await finish(office.run(turn=None)) == "ok"
            assert flow.done == ["first"]

    async def _await(handler: Any) -> Any:
        try:
            return await handler
        except asyncio.CancelledError:
            await handler.cancel_run()
            raise

    asyncio.run(main())


@survives("the timeout", "each life has the whole one")
def test_each_life_has_the_whole_timeout():
    class Late(Flow):
        @step
        async def first(self, ev: StartEvent) -> Next:
            await asyncio.sleep(3)
            return Next()

        @step
        async def second(self, ev: Next) -> StopEvent:
            await asyncio.sleep(3.2 if not self.is_broken else 60)
            return StopEvent(result="ok")

    async def main() -> None:
        async with memory() as client:
            flow = Late(timeout=6)  # a busy machine has nearly three seconds more than it needs
            office = resumable(flow, session_id="s", store=client)
            with pytest.raises(WorkflowTimeoutError):
                await finish(office.run())
            flow.is_broken = False
            assert await finish(office.run()) == "ok"  # three seconds were over, and more than the rest was needed

    asyncio.run(main())


class DurableRuntime(Runtime):
    """A runtime that is not the framework's default one."""

    register = run_workflow = get_internal_adapter = get_external_adapter = None


def test_what_resumable_does_not_take_is_refused():
    class Pickling(Counter):
        pass

    async def main() -> None:
        async with memory() as client:
            with pytest.raises(UsageError, match="takes a Workflow"):
                resumable("workflow", session_id="s", store=client)
            with pytest.raises(UsageError, match="executes none"):
                resumable(Pickling(serializer=PickleSerializer()), session_id="s", store=client)
            with pytest.raises(UsageError, match="allowed_types"):
                resumable(Pickling(serializer=JsonSerializer()), session_id="s", store=client)
            with pytest.raises(UsageError, match="DurableRuntime, which saves runs itself"):
                resumable(Counter(runtime=DurableRuntime()), session_id="s", store=client)
            flow = Counter(verbose=True)  # which is a runtime around the default one
            office = resumable(flow, session_id="s", store=client)
            with pytest.raises(UsageError, match="ctx="):
                office.run(ctx=Context(flow))
            with pytest.raises(UsageError, match="has not begun"):
                _ = office.run(text="a").ctx

    asyncio.run(main())


# -- the state ---------------------------------------------------------------------------------------------------------


@survives("the state", "the same values, with their types")
def test_values_of_the_state_come_back_with_their_types():
    class Keeper(Flow):
        @step
        async def keep(self, ctx: Context, ev: StartEvent) -> Next:
            await ctx.store.set("when", datetime(2026, 1, 2, tzinfo=UTC))
            await ctx.store.set("pair", (1, b"two"))
            await ctx.store.set("listed", [1])
            await ctx.store.set("messages", [{"role": "user", "content": "hi"}])
            return Next()

        @step
        async def change(self, ctx: Context, ev: Next) -> Counted:
            (await ctx.store.get("listed")).append(2)  # in place, as many do
            messages = await ctx.store.get("messages")
            messages[0]["seen"] = True
            messages.append({"role": "assistant", "content": "ho"})
            return Counted(number=2)

        @step
        async def read(self, ctx: Context, ev: Counted) -> StopEvent:
            if self.is_broken:
                raise Killed
            return StopEvent(result=[await ctx.store.get(name) for name in ("when", "pair", "listed", "messages")])

    async def main() -> None:
        async with memory() as client:
            flow = Keeper()
            office = resumable(flow, session_id="s", store=client)
            await kill(office.run())
            flow.is_broken = False
            messages = [{"role": "user", "content": "hi", "seen": True}, {"role": "assistant", "content": "ho"}]
            expected = [datetime(2026, 1, 2, tzinfo=UTC), (1, b"two"), [1, 2], messages]
            assert await finish(office.run()) == expected
            restart()
            assert await finish(office.run()) == expected  # the recorded result

    asyncio.run(main())


def test_an_object_that_could_not_be_made_again_is_refused_when_it_is_saved():
    class Keeper(Flow):
        @step
        async def keep(self, ctx: Context, ev: StartEvent) -> Next:
            await ctx.store.set("profile", Profile(name="ann") if ev.text == "model" else object())
            return Next()

        @step
        async def read(self, ctx: Context, ev: Next) -> StopEvent:
            return StopEvent(result=(await ctx.store.get("profile")).name)

    async def main() -> None:
        async with memory() as client:
            with pytest.raises(UsageError, match=r"Profile can't be saved.*allowed_types"):
                await finish(resumable(Keeper(), session_id="a", store=client).run(text="model"))
            with pytest.raises(UnsupportedValueError, match=r"state\.value\.profile"):
                await finish(resumable(Keeper(), session_id="b", store=client).run(text="object"))
            allowed = Keeper(serializer=JsonSerializer(allowed_types=[Profile]))
            assert await finish(resumable(allowed, session_id="c", store=client).run(text="model")) == "ann"

    asyncio.run(main())


def test_a_store_of_a_stranger_makes_no_class_be_imported(tmp_path, monkeypatch):
    (tmp_path / "trap.py").write_text("raise SystemExit('executed')")
    monkeypatch.syspath_prepend(tmp_path)

    async def main() -> None:
        async with memory() as client:
            flow = Steps()
            office = resumable(flow, session_id="s", store=client)
            await kill(office.run())
            head = await client.latest("s")
            text = json.dumps(head.execution_state)
            assert "workflow_parts.Next" in text
            forged = json.loads(text.replace("workflow_parts.Next", "trap.Trap"))
            await client.save(agent_id="Steps", framework="llama_index", session_id="s", execution_state=forged,
                              context=head.agent_context)  # fmt: skip
            with pytest.raises(Exception, match=r"trap\.Trap is not in the serializer's allowed types"):
                await finish(office.run())

    asyncio.run(main())


@survives("renamed steps", "the run is refused, and the step named")
def test_a_step_that_was_removed_is_missed():
    class Renamed(Flow):
        @step
        async def first(self, ev: StartEvent) -> Next:
            raise AssertionError

        @step
        async def other(self, ev: Next) -> StopEvent:
            return StopEvent(result="ok")

    class Waits(Flow):
        @step
        async def second(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent()

    async def main() -> None:
        async with memory() as client:
            handler = resumable(Waits(), session_id="s", store=client).run()
            task = asyncio.ensure_future(finish(handler))
            await asyncio.sleep(0.1)
            await handler.cancel_run()
            with pytest.raises(WorkflowCancelledByUser):
                await task
            with pytest.raises(UsageError, match=r"step 'second'.*renamed or removed"):
                await finish(resumable(Renamed(), session_id="s", store=client).run())

    asyncio.run(main())


# -- transcripts and contexts ------------------------------------------------------------------------------------------


class ChatMessage(BaseModel):
    """The shape of LlamaIndex's own message."""

    role: str
    blocks: list[dict[str, Any]]
    additional_kwargs: dict[str, Any] = {}


class Talk(BaseModel):
    messages: list[ChatMessage] = []
    paid: int = 0


def test_messages_of_the_state_are_the_transcript():
    class Talking(Flow):
        @step
        async def only(self, ctx: Context[Talk], ev: StartEvent) -> StopEvent:
            call = {"id": "c-1", "type": "function", "function": {"name": "pay", "arguments": '{"invoice": 7}'}}
            said = [
                ChatMessage(role="user", blocks=[{"block_type": "text", "text": ev.text}]),
                ChatMessage(role="assistant", blocks=[], additional_kwargs={"tool_calls": [call]}),
                ChatMessage(
                    role="tool",
                    blocks=[{"block_type": "text", "text": "receipt"}],
                    additional_kwargs={"tool_call_id": "c-1", "name": "pay"},
                ),
            ]
            async with ctx.store.edit_state() as state:
                state.messages += said
                state.paid = 7
            return StopEvent(result="paid")

    async def main() -> None:
        async with memory() as client:
            await finish(resumable(Talking(), session_id="s", store=client).run(text="pay it"))
            told = to_transcript(await client.latest("s"))
            assert [one.role for one in told] == ["user", "assistant", "tool"]
            assert told.messages[0].text == "pay it"
            [asked] = told.messages[1].tool_calls
            assert (asked.name, asked.arguments) == ("pay", {"invoice": 7})
            assert told.cursor.is_finished
            assert not told.open_calls
            assert told.state == {"paid": 7}

    asyncio.run(main())


def test_without_messages_the_transcript_is_what_the_workflow_was_given_and_returned():
    async def main() -> None:
        async with memory() as client:
            flow = Caller()
            flow.is_broken = False
            office = resumable(flow, session_id="s", store=client)
            await finish(office.run(task="first"))
            flow.is_broken = True
            await kill(office.run(task="second"))
            told = to_transcript(await client.latest("s"))
            assert [(one.role, one.text) for one in told][:3] == [
                ("user", '{"task": "first"}'),
                ("assistant", '[["answer 1", "answer 2"], {"receipt": "i-1"}]'),
                ("user", '{"task": "second"}'),
            ]
            assert [one.role for one in told][3:] == ["assistant", "assistant", "tool"]  # the recorded calls
            assert not told.cursor.is_finished

    asyncio.run(main())


class Waiter(Flow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> InputRequiredEvent:
        self.done.append("ask")
        await ctx.store.set("messages", [{"role": "user", "content": "may I?"}])
        return InputRequiredEvent(prefix="may I?")

    @step
    async def go_on(self, ctx: Context, ev: HumanResponseEvent) -> StopEvent:
        return StopEvent(result=[ev.response, await ctx.store.get("messages")])


def test_a_context_that_waits_is_extracted_and_reconstructed():
    async def main() -> None:
        async with memory() as client:
            flow = Waiter()
            handler = flow.run()
            async for event in handler.stream_events():
                if isinstance(event, InputRequiredEvent):
                    break
            saved = extract(handler.ctx, agent_id="a", session_id="s", context={"why": "by hand"})
            await client.save_checkpoint(saved)
            await handler.cancel_run()
            found = await client.latest("s")
            assert found.agent_context == {"why": "by hand"}
            assert to_transcript(found).messages[0].text == "may I?"
            resumed = flow.run(ctx=reconstruct(found, flow))
            resumed.ctx.send_event(HumanResponseEvent(response="yes"))
            assert await finish(resumed) == ["yes", [{"role": "user", "content": "may I?"}]]
            assert flow.done == ["ask"]
            with pytest.raises(UsageError, match="reconstruct"):
                await finish(resumable(flow, session_id="s", store=client).run())
            with pytest.raises(UsageError, match="takes a Context"):
                extract(handler, agent_id="a", session_id="s")

    asyncio.run(main())


def test_a_context_that_is_finished_continues_as_a_resumable_session_and_back():
    async def main() -> None:
        async with memory() as client:
            flow = Counter()
            handler = flow.run(text="a")
            await finish(handler)
            await client.save_checkpoint(extract(handler.ctx, agent_id="a", session_id="s"))
            assert await finish(resumable(flow, session_id="s", store=client).run(text="b")) == "b 2"
            context = reconstruct(await client.latest("s"), flow)
            assert await finish(flow.run(ctx=context, text="c")) == "c 3"
            with pytest.raises(UsageError, match="takes the Workflow"):
                reconstruct(await client.latest("s"), "flow")

    asyncio.run(main())
