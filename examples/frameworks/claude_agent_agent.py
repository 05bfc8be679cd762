"""An agent of the Claude Agent SDK that is killed while it pays, and pays once. Needs `holdfast[claude-agent]`.

    $ python examples/frameworks/claude_agent_agent.py
    the model is asked
    pay: invoice 7
    [killed]
    $ python examples/frameworks/claude_agent_agent.py
    the model is asked
    the bank is asked: invoice 7 is paid
    the model is asked
    archive: invoice 7 waits for a person
    $ holdfast approve ID --yes --by ann
    ...
    $ python examples/frameworks/claude_agent_agent.py
    the model is asked
    Invoice 7 is paid and archived.
    $ python examples/frameworks/claude_agent_agent.py
    Invoice 7 is paid and archived.

The API is a fake one in this process, so that the example needs no network. The CLI is the real one.
"""

import asyncio
import json
import os
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server, tool

from holdfast import NOT_DONE, Done, Effect
from holdfast.claude_agent import resumable
from holdfast.errors import ApprovalPendingError

BANK = Path("bank.txt")
PLAN = [
    {"type": "tool_use", "name": "mcp__bank__pay", "input": {"invoice": "7"}},
    {"type": "tool_use", "name": "Bash", "input": {"command": "echo 7 >> archive.txt", "description": "Archive it"}},
    {"type": "text", "text": "Invoice 7 is paid and archived."},
]


class FakeApi(BaseHTTPRequestHandler):
    """The Messages API: it answers with the next entry of the plan."""

    def do_POST(self):
        print("the model is asked", flush=True)
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        blocks = [block for message in request["messages"] for block in message["content"] if isinstance(block, dict)]
        done = sum(block["type"] == "tool_result" and not block.get("is_error") for block in blocks)
        id_ = f"{len(blocks)}-{os.getpid()}"
        block = PLAN[done] if "text" in PLAN[done] else PLAN[done] | {"id": f"toolu_{id_}"}
        is_text = block["type"] == "text"
        delta = {"text": block["text"]} if is_text else {"partial_json": json.dumps(block["input"])}
        kind = "text_delta" if is_text else "input_json_delta"
        stop = {"stop_reason": "end_turn" if is_text else "tool_use"}
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": f"msg_{id_}", "type": "message", "role": "assistant", "model": request["model"], "content": []}
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in (
            {"type": "message_start", "message": message | {"usage": usage, "stop_reason": None}},
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": block | ({"text": ""} if is_text else {"input": {}}),
            },
            {"type": "content_block_delta", "index": 0, "delta": {"type": kind} | delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": stop, "usage": usage},
            {"type": "message_stop"},
        ):
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def log_message(self, *_):
        """Nothing is printed."""


def pay_at_bank(invoice: str):
    print(f"pay: invoice {invoice}", flush=True)
    BANK.write_text(invoice)
    os.kill(os.getpid(), signal.SIGKILL)  # the worst moment: it is paid, and no one has written it down


@tool("pay", "Pay an invoice", {"invoice": str})
async def pay(arguments):
    pay_at_bank(arguments["invoice"])
    return {"content": [{"type": "text", "text": "paid"}]}


def find_payment(invoice: str):
    """Ask the bank whether an invoice is paid."""
    is_paid = BANK.exists() and BANK.read_text() == invoice
    print(f"the bank is asked: invoice {invoice} is {'paid' if is_paid else 'not paid'}")
    return Done({"content": [{"type": "text", "text": "paid"}]}) if is_paid else NOT_DONE


async def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeApi)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = ClaudeAgentOptions(
        model="claude-sonnet-4-5",
        tools=["Bash"],
        allowed_tools=["mcp__bank__pay"],
        mcp_servers={"bank": create_sdk_mcp_server("bank", tools=[pay])},
        setting_sources=[],
        env={
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.server_port}",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "0",
        },
    )
    agent = resumable(  # the changed line
        options,
        session_id="invoice-7",
        tools={
            "pay": Effect("irreversible", key="invoice", probe=find_payment),
            "Bash": Effect(approve="archivists"),
        },
    )
    try:
        async for message in agent.query("Pay invoice 7."):
            last = message
        print(last.result)
    except ApprovalPendingError:
        print("archive: invoice 7 waits for a person")


asyncio.run(main())
