"""OpenAI's models of Haystack without a network: they use the first tool, if there is one, and answer."""

import os
from functools import wraps

import haystack_model  # noqa: F401 - telemetry off
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage, ToolCall

os.environ["OPENAI_API_KEY"] = "sk-none"


@wraps(OpenAIChatGenerator.run)
def run(self, messages, *, tools=None, **_):
    if tools and not messages[-1].is_from("tool"):
        call = ToolCall(tools[0].name, {"invoice": 7}, id="call-1")
        return {"replies": [ChatMessage.from_assistant(tool_calls=[call])]}
    return {"replies": [ChatMessage.from_assistant("Done.")]}


@wraps(OpenAIChatGenerator.run_async)
async def run_async(self, **given):
    return run(self, **given)


OpenAIChatGenerator.run, OpenAIChatGenerator.run_async = run, run_async
