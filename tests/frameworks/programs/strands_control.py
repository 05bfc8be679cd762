"""A payment that is killed in the middle, with Strands' own session manager or with holdfast.

    python strands_control.py STORE DIRECTORY

The file `way` in the directory names the way: `invocation` and `message` are Strands' own, `resumable` is ours, and
`graph` is a graph with Strands' own. The program dies as it has paid, the first time, and prints who paid how often.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from call_log import log_call, read_calls
from strands import Agent, tool
from strands.multiagent import GraphBuilder
from strands.multiagent.graph import Graph
from strands.session import FileSessionManager, SnapshotSessionManager
from strands.storage import LocalFileStorage
from strands_model import FunctionModel, call, results_since_user

from holdfast.strands import resumable


def make_agent(directory: Path, name: str = "payer", **options: Any) -> Agent:
    @tool
    def pay(invoice: int) -> str:
        """Pay."""
        log_call(directory, "pay", invoice, name)
        died = directory / "died"
        if name == "payer" and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "paid"

    def answer(messages: Any) -> Any:
        log_call(directory, "model", name, len(messages))
        results = results_since_user(messages)
        return results[-1] if results else [call("pay", f"{name}-1", invoice=7)]

    return Agent(FunctionModel(answer), name=name, tools=[pay], callback_handler=None, **options)


def make_graph(directory: Path, **options: Any) -> Graph:
    builder = GraphBuilder()
    builder.add_node(make_agent(directory, "first"), "first")
    builder.add_node(make_agent(directory), "payer")
    builder.add_edge("first", "payer")
    builder.set_execution_timeout(60)
    if options:
        builder.set_session_manager(**options)
    return builder.build()


def run(store: str, directory: Path) -> str:
    way = (directory / "way").read_text()
    files = directory / "sessions"
    if way == "resumable":
        return str(resumable(make_agent(directory), session_id="s", store=store)("pay"))
    if way == "resumable graph":
        return str(resumable(make_graph(directory), session_id="s", store=store)("pay"))
    if way == "graph":
        return str(make_graph(directory, session_manager=FileSessionManager("s", storage_dir=str(files)))("pay"))
    manager = SnapshotSessionManager("s", storage=LocalFileStorage(str(files)), save_latest_on=way)
    agent = make_agent(directory, session_manager=manager)
    return str(agent() if agent.messages else agent("pay"))


if __name__ == "__main__":
    where = Path(sys.argv[2])
    said = run(sys.argv[1], where)
    print(json.dumps({"said": said.strip(), "calls": {name: len(one) for name, one in read_calls(where).items()}}))
