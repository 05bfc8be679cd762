"""A client of a LangGraph server, which restores rows of threads to its list."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Mapping
from typing import Any

from holdfast.errors import HoldfastError, UsageError

TIMEOUT = 30
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_OK, _NOT_FOUND = 200, 404


class ServerError(HoldfastError):
    """The LangGraph server could not be reached, or has not understood."""


class LangGraphServer:
    """The part of a LangGraph server's HTTP interface that concerns threads."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{url!r:.100} is no URL of a server: http://127.0.0.1:2024 is one")
        self.url = url.rstrip("/")
        self._headers = {"Content-Type": "application/json", **headers}
        # A server on this machine is not behind the proxy that the environment may name.
        direct = [urllib.request.ProxyHandler({})] if parts.hostname in _LOOPBACK else []
        self._opener = urllib.request.build_opener(*direct)

    def restore(self, thread_id: str, graph_id: str | None, assistant_id: str | None) -> str:
        """Restore a thread's missing row: return `restored` or `there`; raise if its state stays invisible."""
        if not _is_uuid(thread_id):
            raise ServerError("the server's threads have UUIDs for names, so this one can't be listed there")
        path = f"/threads/{thread_id}"
        status, row = self._ask("GET", path)
        known = status == _OK and isinstance(row, dict)
        named = (row.get("metadata") or {}).get("graph_id") if known else None
        if graph_id is None and not named:
            raise ServerError("its graph is unknown: name it with --graph")
        # Without the graph's name the server finds the row, and an empty state.
        metadata = {"graph_id": graph_id} | ({"assistant_id": assistant_id} if assistant_id else {})
        if not known:
            self._must("POST", "/threads", {"thread_id": thread_id, "if_exists": "do_nothing", "metadata": metadata})
        elif not named:
            self._must("PATCH", path, {"metadata": metadata})
        state = self._must("GET", f"{path}/state")
        if not ((state or {}).get("checkpoint") or {}).get("checkpoint_id"):
            raise ServerError(
                "the server sees no state of it: does it run on this store, and with this graph? "
                "langgraph.json must name the checkpointer (`holdfast langgraph init`)"
            )
        return "there" if known and named else "restored"

    def _must(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = self._ask(method, path, body)
        if not _OK <= status < 300:
            detail = answer.get("detail", answer) if isinstance(answer, dict) else answer
            raise ServerError(f"the server has answered {method} {path} with {status}: {detail!s:.300}")
        return answer

    def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        request = urllib.request.Request(  # noqa: S310 - the scheme was looked at
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers=self._headers,
            method=method,
        )
        try:
            with self._opener.open(request, timeout=TIMEOUT) as response:
                return response.status, _parse_content(response.read())
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, _parse_content(refusal.read())
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "reason", None) or error
            raise UnreachableError(
                f"no LangGraph server can be reached at {self.url}: {why}. `langgraph dev` prints its "
                "address when it starts"
            ) from error


class UnreachableError(ServerError):
    """There is no use in asking this server for the next thread."""


def _parse_content(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode("utf-8", "replace")


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False
