"""OpenAI Agents SDK: an agent that looks things up, alone, with the framework's own store, and with `resumable`."""

from pathlib import Path
from typing import Any

from benchmarks.frameworks.workload import TOOLS, Take, look, prose

DISTRIBUTION = "openai-agents"
IS_BLOCKING = False


def openai_agent() -> Any:
    from agents import Agent, Model, function_tool
    from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

    class Talker(Model):
        def _script(self, given: Any) -> Any:
            if isinstance(given, str) or given[-1].get("role") == "user":
                output = function_call("look", {"question": prose(60)}, call_id=f"call-{len(given)}")
            else:
                output = assistant_message(prose(1500))
            return ScriptedModel([ModelStep(output=[output])])

        async def get_response(
            self,
            system_instructions: Any,
            input: Any,  # noqa: A002 - the SDK's name
            *rest: Any,
            **options: Any,
        ) -> Any:
            return await self._script(input).get_response(system_instructions, input, *rest, **options)

        def stream_response(
            self,
            system_instructions: Any,
            input: Any,  # noqa: A002 - the SDK's name
            *rest: Any,
            **options: Any,
        ) -> Any:
            return self._script(input).stream_response(system_instructions, input, *rest, **options)

    return Agent("a", model=Talker(), tools=[function_tool(look)])


def run_alone(where: Path | None) -> Take:
    """`SQLiteSession`."""
    from agents import Runner, SQLiteSession

    agent, said = openai_agent(), []
    if where is not None:
        session = SQLiteSession("s", where / "session.db")
        return lambda prompt: Runner.run(agent, prompt, session=session)

    async def take(prompt: str) -> None:
        result = await Runner.run(agent, [*said, {"role": "user", "content": prompt}])
        said[:] = result.to_input_list()

    return take


def run_resumable(client: Any) -> Take:
    from holdfast.openai_agents import resumable

    return resumable(openai_agent(), session_id="s", store=client, tools=TOOLS).run
