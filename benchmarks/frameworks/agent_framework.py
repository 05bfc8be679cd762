"""agent-framework: an agent that looks things up, alone, with the framework's own store, and with `resumable`."""

from pathlib import Path
from typing import Any

from benchmarks.frameworks.workload import TOOLS, Take, look, prose

DISTRIBUTION = "agent-framework-core"
IS_BLOCKING = False


def microsoft_agent(**options: Any) -> Any:
    from agent_framework import Agent, tool
    from agent_framework_model import FunctionClient, call, results_since_user

    def answer(messages: Any) -> Any:
        if results_since_user(messages):
            return prose(1500)
        return [call("look", f"call-{len(messages)}", question=prose(60))]

    return Agent(FunctionClient(answer), name="a", tools=[tool(look)], **options)


def run_alone(where: Path | None) -> Take:
    """`FileHistoryProvider`."""
    from agent_framework import FileHistoryProvider

    agent = microsoft_agent(**({} if where is None else {"context_providers": [FileHistoryProvider(where)]}))
    session = agent.create_session()
    return lambda prompt: agent.run(prompt, session=session)


def run_resumable(client: Any) -> Take:
    from holdfast.agent_framework import resumable

    return resumable(microsoft_agent(), session_id="s", store=client, tools=TOOLS).run
