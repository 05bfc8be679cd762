"""The real `langgraph dev`, in its own directory, on a free port of the loopback interface.
Nothing leaves the machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from servers.running import free_port

PATIENCE = 240  # seconds until a server that says nothing has failed: a busy machine is slow
HOLDFAST = {"path": "holdfast.langgraph.dev_checkpointer"}
OWN_SAVER = {"path": "./agent.py:own_saver"}  # of the program: it knows nothing of the server
_QUIET = {
    "LANGSMITH_TRACING": "false",
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
    "LANGGRAPH_NO_VERSION_CHECK": "true",
    "PYTHONUNBUFFERED": "1",
}

AGENT = """
import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypedDict

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt
from pydantic import BaseModel

EDITION = "first"


@dataclass
class Note:
    text: str


class Plan(BaseModel):
    steps: list[str]


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    note: Note
    plan: Plan


async def think(state: State):
    while state["messages"][-1].content == "wait" and not await asyncio.to_thread(Path("go on").exists):
        await asyncio.sleep(0.05)
    own = {"note": Note("kept"), "plan": Plan(steps=["one"])} if state["messages"][0].content == "use classes" else {}
    return {"messages": [AIMessage("thought")], **own}


async def ask(state: State):
    if state["messages"][0].content == "just think":
        return {}
    answer = interrupt({"question": "go on?"})
    own = [state[name] for name in ("note", "plan") if name in state]
    return {"messages": [AIMessage(f"{answer}, by the {EDITION} edition; {own}")]}


@asynccontextmanager
async def own_saver():
    from holdfast.langgraph import HoldfastSaver

    async with await asyncio.to_thread(HoldfastSaver.from_sqlite) as saver:
        yield saver


builder = StateGraph(State)
builder.add_node("think", think)
builder.add_node("ask", ask)
builder.add_edge(START, "think")
builder.add_edge("think", "ask")
graph = builder.compile()
"""


class DevServer:
    """`langgraph dev` on the graph above; with our checkpointer, or as it comes."""

    def __init__(
        self,
        directory: Path,
        *,
        checkpointer: dict[str, Any] | None = None,
        reload: bool = False,
        store: dict[str, Any] | None = None,
        **environment: str,
    ) -> None:
        self.directory = directory
        self.agent = directory / "agent.py"
        self.log = directory.parent / f"{directory.name}.log"
        self.url = ""
        self._reload = reload
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir()
        self.agent.write_text(AGENT)
        config = {"dependencies": ["."], "graphs": {"agent": "./agent.py:graph"}}
        if checkpointer is not None:
            config["checkpointer"] = checkpointer
        if store is not None:
            config["store"] = store
        (directory / "langgraph.json").write_text(json.dumps(config))

    # -- the process -------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.stop(signal.SIGKILL)

    def start(self) -> None:
        for _ in range(3):  # another program may take the port between our asking for it and the server's
            if self._started():
                return
        raise AssertionError(f"the server did not start:\n{self.log.read_text()[-4000:]}")

    def _started(self) -> bool:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("LANG", "HOLDFAST"))}
        with self.log.open("ab") as log:
            begin = log.tell()
            self._process = subprocess.Popen(
                [
                    sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--host", "127.0.0.1",
                    "--port", str(free_port()), *([] if self._reload else ["--no-reload"]),
                ],
                cwd=self.directory,
                env={**environment, **_QUIET, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a server that reloads is two processes: they are stopped together
            )  # fmt: skip

        def answers() -> bool:
            # The server chooses another port if the one we named is taken: it says which.
            said = re.search(rb"API: .*?(http://127\.0\.0\.1:\d+)", self.log.read_bytes()[begin:])
            if said is None:
                return False
            self.url = said[1].decode()
            try:
                return self.ask("GET", "/ok")[0] == 200
            except OSError:
                return False

        wait_until(lambda: self._process.poll() is not None or answers(), "the server answers", self.log)
        if self._process.poll() is None:
            return True
        self._process = None
        return False

    def stop(self, signal_: int) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, signal_)
        self._process.wait(timeout=PATIENCE)
        if signal_ != signal.SIGKILL:
            _kill_group(self._process.pid)  # whoever did not listen must not hold the store's files
        self._process = None

    def said(self, words: str) -> int:
        """How often it has said this."""
        return self.log.read_text(errors="replace").count(words)

    # -- its interface -----------------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        request = urllib.request.Request(
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=PATIENCE) as response:
                return response.status, json.loads(response.read() or b"null")
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read().decode(errors="replace")

    def must(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = self.ask(method, path, body)
        assert status in (200, 204), f"{method} {path}: {status} {answer}\n{self.log.read_text()[-4000:]}"
        return answer

    def new_thread(self, **metadata: Any) -> str:
        return self.must("POST", "/threads", {"metadata": metadata})["thread_id"]

    def run(self, thread: str, text: str, **options: Any) -> Any:
        given = {"messages": [{"role": "user", "content": text}]}
        return self.must("POST", f"/threads/{thread}/runs/wait", {"assistant_id": "agent", "input": given, **options})

    def resume(self, thread: str, answer: str) -> tuple[int, Any]:
        return self.ask(
            "POST", f"/threads/{thread}/runs/wait", {"assistant_id": "agent", "command": {"resume": answer}}
        )

    def state(self, thread: str) -> Any:
        return self.must("GET", f"/threads/{thread}/state")

    def wait_until_it_has_written_its_list(self, thread: str) -> None:
        """Every ten seconds the server writes down its threads. The file that is there is taken away, so that one which
        was begun earlier is not taken for the next."""
        threads = self.directory / ".langgraph_api" / ".langgraph_ops.pckl"
        threads.unlink(missing_ok=True)
        mark = uuid.UUID(thread).int.to_bytes(16, "little")  # as pickle writes it
        wait_until(
            lambda: threads.exists() and mark in threads.read_bytes(), "the list of threads is written", self.log
        )


def contents(values: Any) -> list[str]:
    return [message["content"] for message in values.get("messages", ())]


def wait_until(holds: Callable[[], Any], what: str, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain until {what}:\n{log.read_text()[-4000:]}"
        time.sleep(0.05)


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
