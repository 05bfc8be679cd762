"""The first example of the page on agents, against a server of our own: it is a whole coding agent, in ten lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from model_server import ModelServer, raw

PAGE = Path(__file__).parents[2] / "docs" / "agent.md"


def answers(block, stop):
    body = {
        "type": "message",
        "content": [block],
        "stop_reason": stop,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    return raw(json.dumps(body).encode())


def uses(name, **arguments):
    return answers({"type": "tool_use", "id": f"toolu_{name}", "name": name, "input": arguments}, "tool_use")


def test_the_first_example_is_a_coding_agent_in_ten_lines(tmp_path):
    code = PAGE.read_text("utf-8").partition("```python\n")[2].partition("```")[0]
    assert len([line for line in code.splitlines() if line]) <= 10
    script = [
        uses("write_file", path="a.py", text="print(1)\n"),
        uses("edit_file", path="a.py", old="1", new="7"),
        uses("bash", command="python3 a.py"),
        answers({"type": "text", "text": "It prints 7."}, "end_turn"),
    ]
    with ModelServer(*script) as server:
        here = code.replace("api_key=", f"base_url={server.url!r}, api_key=")
        assert here != code
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", here, "Print a number."],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.stdout, done.stderr) == ("It prints 7.\n", "")
    assert (tmp_path / "a.py").read_text() == "print(7)\n"
    [result] = server.asked[-1]["messages"][-1]["content"]
    assert result["content"] == [{"type": "text", "text": "7\n"}]
