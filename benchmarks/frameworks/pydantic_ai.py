"""Pydantic AI: an agent that looks things up, alone, with the framework's own store, and with `resumable`."""

from pathlib import Path
from typing import Any

from benchmarks.frameworks.workload import TOOLS, Take, look, prose

DISTRIBUTION = "pydantic-ai-slim"
IS_BLOCKING = False


def pydantic_agent() -> Any:
    from pydantic_ai import Agent, ModelResponse, RequestUsage
    from pydantic_ai.messages import TextPart, ToolCallPart, UserPromptPart
    from pydantic_ai.models.function import FunctionModel

    def answer(messages: Any, _: Any) -> Any:
        usage = RequestUsage(input_tokens=1, output_tokens=1)
        if isinstance(messages[-1].parts[-1], UserPromptPart):
            call = ToolCallPart("look", {"question": prose(60)}, tool_call_id=f"call-{len(messages)}")
            return ModelResponse([call], usage=usage)
        return ModelResponse([TextPart(prose(1500))], usage=usage)

    return Agent(FunctionModel(answer), name="a", tools=[look])


def run_alone(where: Path | None) -> Take:
    """The conversation as JSON, whole: the store that Pydantic AI has is in memory."""
    agent, history = pydantic_agent(), []

    async def take(prompt: str) -> None:
        result = await agent.run(prompt, message_history=history)
        history[:] = result.all_messages()
        if where is not None:
            (where / "conversation.json").write_bytes(result.all_messages_json())

    return take


def run_resumable(client: Any) -> Take:
    from holdfast.pydantic_ai import resumable

    return resumable(pydantic_agent(), session_id="s", store=client, tools=TOOLS).run
