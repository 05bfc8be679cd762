"""Google ADK: an agent that looks things up, alone, with the framework's own store, and with `resumable`."""

from pathlib import Path
from typing import Any

from benchmarks.frameworks.workload import TOOLS, Take, look, prose

DISTRIBUTION = "google-adk"
IS_BLOCKING = False


def adk_agent() -> Any:
    from google.adk.agents import LlmAgent
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_response import LlmResponse
    from google.genai import types

    class Talker(BaseLlm):
        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
            last = llm_request.contents[-1].parts[-1]
            if last.function_response is None:
                id_ = f"call-{len(llm_request.contents)}"
                call = types.FunctionCall(id=id_, name="look", args={"question": prose(60)})
                part = types.Part(function_call=call)
            else:
                part = types.Part(text=prose(1500))
            yield LlmResponse(content=types.Content(role="model", parts=[part]))

    return LlmAgent(name="a", model=Talker(model="fake"), tools=[look])


def run_alone(where: Path | None) -> Take:
    """`InMemorySessionService`: its store in files needs SQLAlchemy."""
    from google.adk.runners import Runner
    from google.adk.sessions import InMemorySessionService
    from google.genai import types

    service = InMemorySessionService()
    runner = Runner(app_name="a", agent=adk_agent(), session_service=service)

    async def take(prompt: str) -> None:
        if await service.get_session(app_name="a", user_id="u", session_id="s") is None:
            await service.create_session(app_name="a", user_id="u", session_id="s")
        message = types.Content(role="user", parts=[types.Part(text=prompt)])
        async for _ in runner.run_async(user_id="u", session_id="s", new_message=message):
            pass

    return take


def run_resumable(client: Any) -> Take:
    from holdfast.google_adk import resumable

    agent = resumable(adk_agent(), session_id="s", store=client, tools=TOOLS)

    async def take(prompt: str) -> None:
        async for _ in agent.run_async(user_id="u", new_message=prompt):
            pass

    return take
