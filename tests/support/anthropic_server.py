"""Fake of Anthropic's Messages API on this machine, for the CLI of the Claude Agent SDK.

The function gets a request, and returns content blocks: `text(...)` and `call(...)`. The answer is streamed as
server-sent events.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

API_KEY = "sk-ant-api03-holdfast-0123456789"
MODEL = "claude-sonnet-4-5"
Request = Mapping[str, Any]
Answer = Callable[[Request], list[dict[str, Any]]]


class AnthropicServer:
    """Answers each request by a function, and remembers the requests."""

    def __init__(self, answer: Answer) -> None:
        self.requests: list[Request] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self._send(200, b"")

            def do_GET(self) -> None:
                self._send(404, b"{}")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.close_connection = True
                if self.path.partition("?")[0] != "/v1/messages":
                    self._send(404, b"{}")
                    return
                request = json.loads(body)
                owner.requests.append(request)
                try:
                    blocks = answer(request)
                except ApiError as error:
                    told = {"type": "error", "error": {"type": "invalid_request_error", "message": str(error)}}
                    self._send(error.status, json.dumps(told).encode())
                    return
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                for event in _events(blocks, f"msg_{secrets.token_hex(12)}", request["model"]):
                    self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
                    self.wfile.flush()

            def _send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Nothing is printed."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def environment(self, home: Path) -> dict[str, str]:
        """Return what a CLI needs to reach this server, and no other, with a home directory of its own."""
        return {
            "ANTHROPIC_API_KEY": API_KEY,
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self._server.server_address[1]}",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "0",
            "CLAUDE_CONFIG_DIR": str(home / ".claude"),
            "HOME": str(home),
        }

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Nothing is printed: a CLI that is killed hangs up."""


class ApiError(Exception):
    """An answer that is an error of the API."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def call(id_: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": name, "input": arguments}


def read_blocks(request: Request) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the blocks of all messages, each with the role of its message."""
    found = []
    for message in request["messages"]:
        content = message["content"]
        blocks = [text(content)] if isinstance(content, str) else content
        found += [(message["role"], block) for block in blocks]
    return found


def read_results(request: Request) -> list[Mapping[str, Any]]:
    return [block for _, block in read_blocks(request) if block["type"] == "tool_result"]


def read_prompts(request: Request) -> list[str]:
    """Return the texts of the user, without what the CLI has added."""
    texts = [block["text"] for role, block in read_blocks(request) if role == "user" and block["type"] == "text"]
    return [one for one in texts if not one.startswith("<system-reminder>")]


def _events(blocks: list[dict[str, Any]], id_: str, model: str) -> Iterator[dict[str, Any]]:
    usage = {"input_tokens": 10, "output_tokens": 1}
    message = {"id": id_, "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage}
    yield {"type": "message_start", "message": message | {"stop_reason": None, "stop_sequence": None}}
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            begun, delta = block | {"text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            begun = block | {"input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": stop, "stop_sequence": None},
        "usage": {"output_tokens": 5},
    }
    yield {"type": "message_stop"}
