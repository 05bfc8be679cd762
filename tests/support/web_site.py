"""A served store for tests of the web page and the HTTP API: a real server, and requests over sockets."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from holdfast import SyncClient
from holdfast.web import app
from holdfast.web.server import Server, serve


def enc(text: str) -> str:
    """Return a text as a segment or a value of a URL, as the page writes it."""
    return quote(json.dumps(text), safe="")


class Site:
    """A served store: `client` changes it directly, `get` and `post` ask the server."""

    def __init__(self, client: SyncClient, server: Server) -> None:
        self.client, self.server = client, server
        self.http = httpx.Client(
            base_url=server.origin, headers={"authorization": f"Bearer {server.bearer}"}, timeout=60, trust_env=False
        )

    def send(self, path: str, **options: Any) -> httpx.Response:
        return self.http.get(f"/api/v1{path}", **options)

    def get(self, path: str, status: int = 200) -> Any:
        answer = self.send(path)
        assert answer.status_code == status, answer.text
        return answer.json()

    def post(self, path: str, body: Any = None, status: int = 200, *, key: str | None = None) -> Any:
        answer = self.http.post(
            f"/api/v1{path}", json={} if body is None else body, headers={} if key is None else {"Idempotency-Key": key}
        )
        assert answer.status_code == status, answer.text
        return answer.json()


class Listener:
    """An open stream."""

    def __init__(self, site: Site, query: str = "", last: str | None = None) -> None:
        headers = {} if last is None else {"Last-Event-ID": last}
        self._stream = site.http.stream("GET", f"/api/v1/events{query}", headers=headers)
        answer = self._stream.__enter__()
        assert answer.headers["content-type"].startswith("text/event-stream")
        self._lines = answer.iter_lines()
        self.last = ""

    def close(self) -> None:
        self._stream.__exit__(None, None, None)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        kind = ""
        for line in self._lines:
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
            elif name == "id":
                self.last = value
            elif name == "data":
                yield kind, json.loads(value)

    def take(self, count: int) -> list[tuple[str, Any]]:
        stream = iter(self)
        return [next(stream) for _ in range(count)]


@contextmanager
def served(client: SyncClient, **options: Any) -> Iterator[Site]:
    with serve(app(client, by="tester", **options)) as server:
        site = Site(client, server)
        try:
            yield site
        finally:
            site.http.close()


def fill(client: SyncClient, directory: Path | None = None) -> dict[str, str]:
    """Save a little of everything: a conversation, a fork, a run with effects, approvals, files, a handoff."""
    call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": '{"to": "bob", "amount": 5}'}}
    messages = [
        {"role": "user", "content": "pay bob"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "paid"},
    ]
    found = {}
    for number in range(3):
        found[f"talk{number}"] = client.save(
            "buyer", execution_state={"messages": messages[: number + 1], "plan": ["a", "b"]}, session_id="talk",
            step_name=f"step {number}", usage={"input": 10 * number},
        )  # fmt: skip
    found["fork"] = client.fork(found["talk1"], "talk-fork", set={"plan.0": "z"}).checkpoint_id
    client.tag("best", found["talk1"])
    with client.run("order", agent_id="buyer") as run:
        run.effect("pay", lambda **_: {"ok": True}, to="bob", amount=5, kind="irreversible")
        run.save("paid")
    found["approval"] = client.request_approval("order", "refund", {"amount": 50, "to": "bob"}).approval_id
    found["handoff"] = client.handoff(found["talk2"], "approver")
    if directory is not None:
        directory.mkdir(exist_ok=True)
        (directory / "a.txt").write_text("one\ntwo\n")
        (directory / ".env").write_text("TOKEN=abc\n")
        (directory / "sub").mkdir(exist_ok=True)
        (directory / "sub" / "b.bin").write_bytes(b"\0\1")
        workspace = client.workspace(directory)
        found["files1"] = client.save("coder", session_id="files", workspace=workspace)
        (directory / "a.txt").write_text("one\nthree\n")
        found["files2"] = client.save("coder", session_id="files", workspace=workspace)
    return found


@contextmanager
def started(*arguments: str) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-m", "holdfast", "ui", *arguments, "--no-open", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        while not lines or lines[-1] != "}\n":
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr else ""
            lines.append(line)
        try:
            yield {**json.loads("".join(lines)), "pid": process.pid}
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)
    assert process.returncode == 0
