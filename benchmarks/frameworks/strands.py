"""Strands: an agent that looks things up, alone, with the framework's own store, and with `resumable`."""

from pathlib import Path
from typing import Any

from benchmarks.frameworks.workload import TOOLS, Take, look, prose

DISTRIBUTION = "strands-agents"
IS_BLOCKING = False


def strands_agent(**options: Any) -> Any:
    from strands import Agent, tool
    from strands.agent.conversation_manager import NullConversationManager
    from strands_model import FunctionModel, call, results_since_user

    def answer(messages: Any) -> Any:
        if results_since_user(messages):
            return prose(1500)
        return [call("look", f"call-{len(messages)}", question=prose(60))]

    whole = NullConversationManager()  # the default one keeps the last 40 messages
    return Agent(
        FunctionModel(answer), tools=[tool(look)], callback_handler=None, conversation_manager=whole, **options
    )


def run_alone(where: Path | None) -> Take:
    """`SnapshotSessionManager` with `save_latest_on="message"`, files."""
    from strands.session import SnapshotSessionManager
    from strands.storage import LocalFileStorage

    if where is None:
        return strands_agent().invoke_async
    manager = SnapshotSessionManager("s", storage=LocalFileStorage(str(where)), save_latest_on="message")
    return strands_agent(session_manager=manager).invoke_async


def run_resumable(client: Any) -> Take:
    from holdfast.strands import resumable

    return resumable(strands_agent(), session_id="s", store=client, tools=TOOLS).invoke_async
