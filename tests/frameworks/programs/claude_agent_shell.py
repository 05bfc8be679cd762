"""Runs a command by the CLI's own tool Bash: `python claude_agent_shell.py HOW DIRECTORY STORE`.

HOW is "alone", "batched" or "resumable": the SDK as it is, with our session store, or by `resumable`. The environment
names the API, a server of the test, which outlives this program.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, query

from holdfast.claude_agent import HoldfastSessionStore, resumable

PROMPT = "run it"


async def main(how: str, directory: Path, store: str) -> None:
    more: dict[str, Any] = {"session_store": HoldfastSessionStore(store)} if how == "batched" else {}
    options = ClaudeAgentOptions(
        tools=["Bash"],
        allowed_tools=["Bash"],
        setting_sources=[],
        model="claude-sonnet-4-5",
        cwd=directory,
        **more,
    )
    messages = (
        resumable(options, session_id="shell", store=store).query(PROMPT)
        if how == "resumable"
        else query(prompt=PROMPT, options=options)
    )
    async for message in messages:
        last = message
    print(last.result)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
