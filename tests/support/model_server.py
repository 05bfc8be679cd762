"""A fake endpoint of a model: scripted answers, and a record of the requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Answer = Callable[[BaseHTTPRequestHandler], None]


class ModelServer:
    """Gives its answers in turn. Each is a function of the request's handler; see below for some."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.ended = threading.Event()  # for an answer that must not end before the test
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                owner.asked.append(json.loads(body))
                owner.headers.append(dict(self.headers))
                owner.paths.append(self.path)
                self.close_connection = True
                answer = owner.answers.pop(0) if owner.answers else status(500, "no answer is left")
                answer(self)

            def log_message(self, *_args: Any) -> None:
                """Nothing is printed."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _send(handler: BaseHTTPRequestHandler, code: int, body: bytes, **headers: str) -> None:
    handler.send_response(code)
    for name, value in {"Content-Type": "application/json", **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def says(content: str | None = None, **message: Any) -> Answer:
    """A chat completion."""
    body = {
        "choices": [{"message": {"role": "assistant", "content": content, **message}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }
    return lambda handler: _send(handler, 200, json.dumps(body).encode())


def status(code: int, told: str = "", **headers: str) -> Answer:
    return lambda handler: _send(handler, code, json.dumps({"error": {"message": told}}).encode(), **headers)


def raw(body: bytes) -> Answer:
    return lambda handler: _send(handler, 200, body)


def hangs_up(handler: BaseHTTPRequestHandler) -> None:
    """Without an answer."""
    handler.connection.shutdown(2)


def cut_short(handler: BaseHTTPRequestHandler) -> None:
    """In the middle of an answer."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')


def waits_for(event: threading.Event) -> Answer:
    """With no answer until then."""
    return lambda _handler: event.wait() and None


def streams(*chunks: Any, done: bool = True) -> Answer:
    """Server-sent events, in pieces of a few bytes that respect no border."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        events = [chunk if isinstance(chunk, str) else f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
        if done:
            events.append("data: [DONE]\n\n")
        data = "".join(events).encode()
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for start in range(0, len(data), 7):
            piece = data[start : start + 7]
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            handler.wfile.flush()
        handler.wfile.write(b"0\r\n\r\n")

    return answer


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"delta": fields, "finish_reason": finish}]}
