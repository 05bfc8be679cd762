"""langchain-ai/langgraph#5790: `langgraph dev` loses the state when it is killed.

It takes no checkpointer from the graph. This reproduces the issue with the real server, on this
machine only; then it does the same with holdfast, which keeps the state. The directory `issue_5790`
stays, with the store in it: the last lines say how to inspect it. Takes about half a minute. Needs
`pip install "langgraph-cli[inmem]"`.

    python examples/langgraph/issue_5790_reproduced.py
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from holdfast import SyncClient

HERE = Path("issue_5790")
STORE = HERE / ".holdfast" / "store.db"
PATIENCE = 90

GRAPH = """
import operator
from typing import Annotated, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Send, interrupt

class State(TypedDict):
    value: int
    parts: Annotated[list[int], operator.add]

def step(state: State):
    return {"value": state["value"] + 1}

def part(state):
    return {"parts": [10 * state["number"]]}

def ask(state: State):
    return {"value": interrupt("how much?")}

builder = StateGraph(State)
builder.add_node("step", step)
builder.add_node("part", part)
builder.add_node("ask", ask)
builder.add_edge(START, "step")
builder.add_conditional_edges("step", lambda _: [Send("part", {"number": n}) for n in (1, 2, 3)], ["part"])
builder.add_edge("part", "ask")
graph = builder.compile()
with_a_saver_of_its_own = builder.compile(checkpointer=InMemorySaver())
"""


class Server:
    """`langgraph dev` in our directory, in a group of processes of its own, so that it can be killed as a whole."""

    def __init__(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("LANG", "HOLDFAST"))}
        offline = {
            "LANGSMITH_TRACING": "false",
            "LANGGRAPH_CLI_NO_ANALYTICS": "1",
            "LANGGRAPH_NO_VERSION_CHECK": "true",
        }
        self.log = HERE / "server.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload", "--port", "2790"],
                cwd=HERE, env={**environment, **offline}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self.url = ""

    def starts(self) -> bool:
        """Waits until it answers, or has given up."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < deadline:
            said = re.search(r"API: .*?(http://127\.0\.0\.1:\d+)", self.log.read_text(errors="replace"))
            self.url = said[1] if said else ""
            try:
                if self.url and self.ask("GET", "/ok"):
                    return True
            except OSError:
                pass
            time.sleep(0.1)
        self.kill()
        return False

    def ask(self, method: str, path: str, body: object = None):
        """What it answers; None if it does not know."""
        request = urllib.request.Request(  # noqa: S310 - on this machine
            self.url + path, json.dumps(body).encode() if body is not None else None,
            {"Content-Type": "application/json"}, method=method,
        )  # fmt: skip
        try:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(request, timeout=PATIENCE) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            error.close()
            return None

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def run(self, thread: str, **what: object):
        return self.ask("POST", f"/threads/{thread}/runs/wait", {"assistant_id": "agent", **what})


def configure(graph: str) -> None:
    config = {"dependencies": ["."], "graphs": {"agent": f"./my_graph.py:{graph}"}}
    (HERE / "langgraph.json").write_text(json.dumps(config, indent=2) + "\n")


def holdfast(*arguments: str) -> None:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([sys.executable, "-m", "holdfast", *arguments], check=True, **quiet)  # noqa: S603 - our own


def a_run_then_a_kill() -> str:
    """The thread, which waits for an answer when the server is killed."""
    server = Server()
    assert server.starts(), server.log.read_text()
    thread = server.ask("POST", "/threads", {})["thread_id"]
    values = server.run(thread, input={"value": 1})
    print(f"  value {values['value']}, parts {values['parts']}, asks {values['__interrupt__'][0]['value']!r}; kill -9")
    server.kill()
    return thread


def after_the_restart(server: Server, thread: str) -> None:
    state = server.ask("GET", f"/threads/{thread}/state")
    if state is None or not state["values"]:
        print(f"  after the restart: {'no such thread' if state is None else 'an empty state'}")
        return
    print(f"  after the restart: {state['values']}, it asks {state['interrupts'][0]['value']!r}")
    print(f"  answered with 40: {server.run(thread, command={'resume': 40})}")


shutil.rmtree(HERE, ignore_errors=True)
HERE.mkdir()
(HERE / "my_graph.py").write_text(GRAPH)

print("A checkpointer of the graph's own (what the issue did):")
configure("with_a_saver_of_its_own")
server = Server()
if server.starts():
    server.kill()
    sys.exit("the server took it: the issue is gone")
refusal = re.search(r"Heads up! .*?custom checkpointer", server.log.read_text(errors="replace"), re.DOTALL)
print(f"  the server does not start: {' '.join(refusal[0].split()) if refusal else '?'} ...")

print("Without one, as the server asks for:")
configure("graph")
thread = a_run_then_a_kill()
server = Server()
assert server.starts()
after_the_restart(server, thread)
server.kill()

print("With holdfast (`holdfast langgraph init`), the graph unchanged:")
holdfast("langgraph", "init", str(HERE), "--yes")
thread = a_run_then_a_kill()
server = Server()
assert server.starts()
holdfast("langgraph", "threads", "--store", str(STORE), "--restore", server.url)
after_the_restart(server, thread)
server.kill()

with SyncClient.sqlite(STORE) as client:
    chain = [client.session(f"lg/{thread}").head]
    while chain[-1].parent_id:
        chain.append(client.get(chain[-1].parent_id))
    print(f"The chain of parents: {' → '.join(entry.step_name or '' for entry in reversed(chain))}")
    print(f"Every checkpoint verified: {client.verify().ok}")
print(f"Look at it:  holdfast --store {STORE} timeline lg/{thread}")
