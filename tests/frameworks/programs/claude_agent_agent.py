"""A clerk of the Claude Agent SDK that pays two invoices, one a turn, with the bundled CLI.

    python claude_agent_agent.py STORE DIRECTORY

The first turn is taken by `query`: the clerk reads the balance, pays, and files the receipt with the CLI's own tool
`Bash`, after a person has agreed. The second one is taken by the client, and has a sub-agent check the invoice before.
The API is a server in this process.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from anthropic_server import MODEL, AnthropicServer, call, read_blocks, read_prompts, text
from call_log import log_call, read_calls
from claude_agent_sdk import AgentDefinition, AssistantMessage, ClaudeAgentOptions, create_sdk_mcp_server, tool

from holdfast import NOT_DONE, Client, Done, Effect
from holdfast.claude_agent import ResumableClaude, resumable
from holdfast.errors import ApprovalPendingError

SESSION = "invoices"
PREFIX = "pay the invoice "
CHECK = "check the invoice "


def make_model(directory: Path) -> Any:
    """Return a model whose answer depends on the request only: on the last prompt, and on what has succeeded since."""

    def answer(request: Any) -> list[dict[str, Any]]:
        checks = [one for one in read_prompts(request) if one.startswith(CHECK)]
        if checks:
            log_call(directory, "model", "checker", checks[-1][-1])
            return [text(f"invoice {checks[-1][-1]} is right")]
        prompts = [one for one in read_prompts(request) if one.startswith(PREFIX)]
        invoice = prompts[-1][-1]
        blocks = [block for _, block in read_blocks(request)]
        start = max(n for n, block in enumerate(blocks) if block.get("text") == prompts[-1])
        names = {block["id"]: block["name"] for block in blocks if block["type"] == "tool_use"}
        done = [
            names.get(block["tool_use_id"], "")
            for block in blocks[start:]
            if block["type"] == "tool_result" and not block.get("is_error")
        ]
        plan = [
            (
                "Agent",
                {
                    "description": "check",
                    "prompt": f"{CHECK}{invoice}",
                    "subagent_type": "checker",
                    "run_in_background": False,
                },
            ),
            ("mcp__bank__balance", {}),
            ("mcp__bank__pay", {"invoice": invoice}),
            ("Bash", {"command": f"printf 'receipt {invoice}' > receipt-{invoice}", "description": "file it"}),
        ]
        for step, (name, arguments) in enumerate(plan if invoice == "b" else plan[1:]):
            if name not in done:
                log_call(directory, "model", "clerk", invoice, step)
                return [text(f"{name} next"), call(f"toolu_{invoice}{step}{len(blocks)}", name, **arguments)]
        log_call(directory, "model", "clerk", invoice, "end")
        return [text(f"paid {invoice}")]

    return answer


def make_options(directory: Path, server: AnthropicServer) -> ClaudeAgentOptions:
    @tool("balance", "Return the balance", {})
    async def balance(_arguments: Any) -> dict[str, Any]:
        log_call(directory, "balance")
        return {"content": [{"type": "text", "text": "100"}]}

    @tool("pay", "Pay an invoice", {"invoice": str})
    async def pay(arguments: Any) -> dict[str, Any]:
        log_call(directory, "pay", arguments["invoice"])  # which is the payment
        return {"content": [{"type": "text", "text": f"receipt {arguments['invoice']}"}]}

    return ClaudeAgentOptions(
        model=MODEL,
        tools=["Bash", "Agent"],
        allowed_tools=["mcp__bank__balance", "mcp__bank__pay", "Agent"],
        mcp_servers={"bank": create_sdk_mcp_server("bank", tools=[balance, pay])},
        agents={"checker": AgentDefinition(description="checks invoices", prompt="You check.", tools=[])},
        setting_sources=[],
        cwd=directory / "files",
        env=server.environment(directory / "home"),
    )


def declare_tools(directory: Path) -> dict[str, Effect | str]:
    def find_payment(invoice: str) -> Any:
        paid = json.dumps([invoice]) in read_calls(directory).get("pay", [])
        return Done({"content": [{"type": "text", "text": f"receipt {invoice}"}]}) if paid else NOT_DONE

    return {
        "balance": "read",
        "pay": Effect("irreversible", key="invoice", probe=find_payment),
        "Bash": Effect("idempotent", approve="clerks"),
    }


async def query(agent: ResumableClaude, prompt: str) -> list[Any]:
    return [message async for message in agent.query(prompt)]


async def ask_client(agent: ResumableClaude, prompt: str) -> list[Any]:
    async with agent.client() as client:
        await client.query(prompt)
        return [message async for message in client.receive_response()]


async def main(store: str, directory: Path) -> None:
    results = []
    (directory / "files").mkdir(exist_ok=True)
    (directory / "home").mkdir(exist_ok=True)
    tempfile.tempdir = str(directory / "home")  # the SDK leaves files there when it is killed
    with AnthropicServer(make_model(directory)) as server:
        agent = resumable(
            make_options(directory, server),
            session_id=SESSION,
            store=store,
            tools=declare_tools(directory),
        )
        for invoice, take in (("a", query), ("b", ask_client)):
            messages = None
            while messages is None:
                try:
                    messages = await take(agent, PREFIX + invoice)
                except ApprovalPendingError:
                    async with Client.open(store) as client:
                        for asked in await client.approvals(SESSION):
                            await client.decide(asked.approval_id, "approve", by="ann")
            results.append(tell(messages))
    files = {one.name: one.read_text() for one in sorted((directory / "files").iterdir())}
    print(json.dumps([results, files]))


def tell(messages: list[Any]) -> Any:
    """Return what was said and called, each once: a call that was interrupted is made again."""
    said: list[Any] = []
    for message in messages:
        for block in message.content if isinstance(message, AssistantMessage) else []:
            one = getattr(block, "text", None) or getattr(block, "name", None)
            if one not in said and not re.match("No response requested", str(one)):
                said.append(one)
    return said, messages[-1].result


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
