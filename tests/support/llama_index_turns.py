"""Workflows and turns that tests of LlamaIndex share."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from workflow_parts import Killed
from workflows import Context, Workflow, step
from workflows.events import Event, StartEvent, StopEvent

from holdfast.llama_index import call_model, call_tool


class Flow(Workflow):
    """A workflow that notes what it does, and may be killed or fail once."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"timeout": 20, **options})
        self.done: list[Any] = []
        self.is_broken = True


class Counter(Flow):
    @step
    async def count(self, ctx: Context, ev: StartEvent) -> StopEvent:
        self.done.append(ev.text)
        number = 1 + await ctx.store.get("number", default=0)
        await ctx.store.set("number", number)
        return StopEvent(result=f"{ev.text} {number}")


class Counted(Event):
    number: int


class Profile(BaseModel):
    name: str


# -- calls within steps ------------------------------------------------------------------------------------------------


class Answer(BaseModel):
    text: str


class Caller(Flow):
    """Two model calls and a tool in one step, which is killed at the end."""

    async def ask(self, question: str) -> Answer:
        self.done.append(question)
        return Answer(text=f"answer {len(self.done)}")

    def pay(self, invoice: str) -> dict[str, str]:
        self.done.append(invoice)
        if self.is_broken == "in pay":
            raise Killed
        return {"receipt": invoice}

    @step
    async def only(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answers = [await call_model(self.ask, "a"), await call_model(self.ask, "a")]
        paid = await call_tool(self.pay, invoice="i-1")
        if self.is_broken:
            raise Killed
        return StopEvent(result=[[one.text for one in answers], paid])
