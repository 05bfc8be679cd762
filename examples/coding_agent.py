"""A coding agent whose every tool call is a point of return: conversation and files, what a shell did to them included.

    python examples/coding_agent.py

It works in `site/`, takes a wrong turn, and is taken back to the last good step; then it goes on
from there. The store is `.holdfast/store.db`, in the current directory. Remove both to begin again.
The model is a script, so that nothing else is needed; `AnthropicModel(name, api_key=...)` or
`OpenAICompatible(url, name)` makes it a real one.
"""

import json
from pathlib import Path

from holdfast import SyncClient, agent, tool
from holdfast.tools import bash, write_file

SITE = Path("site")


@tool(kind="read")
def check() -> str:
    """Checks that the site has a page, and that it is styled."""
    missing = [name for name in ("index.html", "style.css") if not (SITE / name).exists()]
    return f"missing: {', '.join(missing)}" if missing else "all is well"


WRONG = [
    ("write_file", {"path": "index.html", "text": "<h1>Kelp</h1>"}),
    ("write_file", {"path": "style.css", "text": "h1 { color: green }"}),
    ("check", {}),
    ("bash", {"command": "rm *.html; echo 'h1 { color: red }' > style.css"}),  # the wrong turn
    ("check", {}),
]
RIGHT = [("write_file", {"path": "about.html", "text": "<h1>About kelp</h1>"}), ("check", {})]


def scripted(calls):
    """Stands for a model: asks for these calls, one after the other, since the last prompt."""

    def model(messages, _tools):
        prompt = max(index for index, message in enumerate(messages) if message["role"] == "user")
        done = sum(message["role"] == "tool" for message in messages[prompt:])
        if done == len(calls):
            return f"Done. {messages[-1]['content']}"
        name, arguments = calls[done]
        function = {"name": name, "arguments": json.dumps(arguments)}
        return {"role": "assistant", "tool_calls": [{"id": f"call_{done}", "type": "function", "function": function}]}

    return model


def files():
    return {path.name: path.read_text().strip() for path in sorted(SITE.iterdir())}


SITE.mkdir(exist_ok=True)
with SyncClient.sqlite() as client:
    workspace = client.workspace(SITE)

    def coder(calls):
        tools = [write_file, bash, check]
        return agent(model=scripted(calls), tools=tools, checkpoints=client, session_id="site", workspace=workspace)

    print(coder(WRONG).generate("Make a site about kelp.").text)
    print("  ", files())

    # The last checkpoint after a tool at which all was well: state and files go back to it together.
    for entry in client.timeline(session_id="site", limit=None):
        state = client.restore(entry.checkpoint_id).execution_state
        if entry.step_name == "check" and state["messages"][-1]["content"] == "all is well":
            break
    workspace.restore(entry.checkpoint_id, scope="both", session_id="site")
    print(f"back at {entry.step_name!r}, step {entry.step_index}; `holdfast undo` would take that back")
    print("  ", files())

    print(coder(RIGHT).generate("Now a page about us. Delete nothing.").text)
    print("  ", files())
