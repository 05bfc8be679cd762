"""LlamaIndex Workflows: a workflow that looks things up, alone, with its own context as JSON, and with `resumable`."""

import json
from pathlib import Path
from typing import Any

from benchmarks.frameworks.workload import TOOLS, Take, look, prose

DISTRIBUTION = "llama-index-workflows"
IS_BLOCKING = False


def make_workflow() -> Any:
    from workflows import Context, Workflow, step
    from workflows.events import Event, StartEvent, StopEvent

    from holdfast.llama_index import call_model, call_tool

    class Ask(Event):
        pass

    class Use(Event):
        call: dict

    async def answer(messages: list[Any]) -> dict[str, Any]:
        if messages[-1]["role"] == "user":
            call = {"id": f"call-{len(messages)}", "name": "look", "args": {"question": prose(60)}}
            return {"role": "assistant", "content": "", "tool_calls": [call]}
        return {"role": "assistant", "content": prose(1500)}

    class Agent(Workflow):
        @step
        async def think(self, ctx: Context, ev: StartEvent | Ask) -> Use | StopEvent:
            messages = await ctx.store.get("messages", default=[])
            if isinstance(ev, StartEvent):
                messages = [*messages, {"role": "user", "content": ev.prompt}]
            said = await call_model(answer, messages)
            await ctx.store.set("messages", [*messages, said])
            if "tool_calls" in said:
                return Use(call=said["tool_calls"][0])
            return StopEvent(result=said["content"])

        @step
        async def use(self, ctx: Context, ev: Use) -> Ask:
            result = await call_tool(look, **ev.call["args"])
            messages = await ctx.store.get("messages")
            told = {"role": "tool", "tool_call_id": ev.call["id"], "content": result}
            await ctx.store.set("messages", [*messages, told])
            return Ask()

    return Agent()


def run_alone(where: Path | None) -> Take:
    """The context as JSON, whole: the framework has no store that survives a process."""
    from workflows import Context

    workflow = make_workflow()
    context = Context(workflow)

    async def take(prompt: str) -> None:
        nonlocal context
        handler = workflow.run(ctx=context, prompt=prompt)
        await handler
        if where is not None:
            (where / "context.json").write_text(json.dumps(handler.ctx.to_dict()))

    return take


def run_resumable(client: Any) -> Take:
    from holdfast.llama_index import resumable

    agent = resumable(make_workflow(), session_id="s", store=client, tools=TOOLS)

    async def take(prompt: str) -> None:
        await agent.run(prompt=prompt)

    return take
