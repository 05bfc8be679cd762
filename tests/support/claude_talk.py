"""Conversations with the CLI of the Claude Agent SDK: a scripted API, and a bank as MCP server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anthropic_server import MODEL, AnthropicServer, Request, call, read_results, text
from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server, tool

from holdfast.adapters.base import session as sessions
from holdfast.claude_agent import ResumableClaude

Step = Any  # a text, or the name and the arguments of a call, or several of these


def follow(*plan: Step) -> Callable[[Request], list[dict[str, Any]]]:
    """Return a model that answers the nth request of a conversation with the nth step, whatever it is asked."""

    def answer(request: Request) -> list[dict[str, Any]]:
        said = sum(
            message["role"] == "assistant" and "No response requested." not in str(message["content"])
            for message in request["messages"]
        )
        step = plan[min(said, len(plan) - 1)]
        wanted = step if isinstance(step, list) else [step]
        return [
            text(one) if isinstance(one, str) else call(f"toolu_{said}_{number}", one[0], **one[1])
            for number, one in enumerate(wanted)
        ]

    return answer


class Bank:
    """Tools in this process: `pay` notes what it is paid, `look` looks."""

    def __init__(self, answer: Callable[[dict[str, Any]], str] = lambda given: f"receipt {given['invoice']}") -> None:
        self.paid: list[str] = []
        self.looks = 0
        self.looking = asyncio.Event()  # set when `look` has begun
        self.goes_on = asyncio.Event()  # `look` waits for it
        self.goes_on.set()

        @tool("pay", "Pay an invoice", {"invoice": str})
        async def pay(given: dict[str, Any]) -> dict[str, Any]:
            self.paid.append(given["invoice"])
            return {"content": [{"type": "text", "text": answer(given)}]}

        @tool("look", "Look around", {})
        async def look(_given: dict[str, Any]) -> dict[str, Any]:
            self.looks += 1
            self.looking.set()
            await self.goes_on.wait()
            return {"content": [{"type": "text", "text": "100"}]}

        self.server = create_sdk_mcp_server("bank", tools=[pay, look])


PAY, LOOK = "mcp__bank__pay", "mcp__bank__look"


def make_options(server: AnthropicServer, home: Path, bank: Bank | None = None, **more: Any) -> ClaudeAgentOptions:
    """Return options for a CLI that asks this server, and has no settings of a person."""
    known: dict[str, Any] = {"tools": [], "allowed_tools": [PAY, LOOK], "setting_sources": [], "model": MODEL}
    if bank is not None:
        known["mcp_servers"] = {"bank": bank.server}
    known["env"] = server.environment(home)
    return ClaudeAgentOptions(**(known | more))


def result_texts(request: Request) -> list[str]:
    """Return the texts of the tools' results in a request, without what the CLI has added."""
    found = []
    for result in read_results(request):
        content = result["content"]
        whole = content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
        found.append(whole.partition("<system-reminder>")[0].strip())
    return found


async def ask(agent: ResumableClaude, prompt: Any, **options: Any) -> list[Any]:
    return [message async for message in agent.query(prompt, **options)]


def restart() -> None:
    """Forget what only this process knows."""
    sessions._finished.clear()
