"""Server-sent events: what happens in the store, once each, also after a reconnection."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Any

import pytest
from web_site import Listener, Site, served

from holdfast import SyncClient
from holdfast.web import events


@pytest.fixture
def own(tmp_path):
    with SyncClient.sqlite(tmp_path / "store.db", durability="fast") as client:
        client.save("a", execution_state={"n": 0}, session_id="s")
        with served(client) as site:
            yield site


def _steps(found: list[tuple[str, Any]]) -> list[int]:
    return [one["checkpoint"]["sequence"] for kind, one in found if kind == "checkpoint"]


@pytest.mark.slow
def test_saves_handoffs_operations_and_approvals_arrive(own: Site):
    listener = Listener(own)
    assert listener.take(1)[0][0] == "hello"
    id_ = own.client.save("a", execution_state={"n": 1}, session_id="s")
    assert listener.take(1)[0][1]["checkpoint"]["checkpoint_id"] == id_
    own.client.handoff(id_, "b")
    own.client.tag("v", id_)
    approval = own.client.request_approval("s", "pay", {"amount": 1})
    found = listener.take(3)
    assert [kind for kind, _ in found] == ["handoff", "operation", "approval"]
    assert found[1][1]["kind"] == "tag"
    own.client.decide(approval.approval_id, "approve", by="me")
    assert listener.take(1)[0][1]["status"] == "approved"
    listener.close()


@pytest.mark.slow
def test_a_browser_that_comes_back_gets_each_save_once(own: Site):
    listener = Listener(own)
    listener.take(1)
    for number in range(3):
        own.client.save("a", execution_state={"n": number}, session_id="s")
    assert _steps(listener.take(3)) == [2, 3, 4]
    last = listener.last
    listener.close()
    for number in range(300):  # more than a page
        own.client.save("a", execution_state={"n": number}, session_id="s")
    own.client.tag("while-away", "s")
    listener = Listener(own, last=last)
    found = listener.take(302)
    listener.close()
    assert _steps(found) == list(range(5, 305))
    assert [one["kind"] for kind, one in found if kind == "operation"] == ["tag"]


@pytest.mark.slow
def test_decisions_arrive_that_were_made_while_a_browser_was_away(own: Site):
    first = own.client.request_approval("s", "pay", {"amount": 1}).approval_id
    listener = Listener(own)
    listener.take(1)
    second = own.client.request_approval("s", "pay", {"amount": 2}).approval_id
    assert listener.take(1)[0][1]["approval_id"] == second
    last = listener.last
    listener.close()
    own.client.decide(first, "approve", by="me")
    listener = Listener(own, last=last)
    listener.take(1)
    found = {fields["approval_id"]: fields["status"] for kind, fields in listener.take(2) if kind == "approval"}
    assert found == {first: "approved", second: "pending"}
    own.client.decide(second, "reject", by="me")
    [(kind, fields)] = listener.take(1)
    assert (kind, fields["approval_id"], fields["status"]) == ("approval", second, "rejected")
    listener.close()


def test_a_stream_reads_no_approval_that_was_decided(own: Site, monkeypatch):
    """There may be thousands of them, and a stream looks every second."""
    own.client.decide(own.client.request_approval("s", "pay", {"amount": 1}).approval_id, "approve", by="me")
    ours, asked = own.server._application.site.client, []
    listed = ours.approvals
    monkeypatch.setattr(ours, "approvals", lambda *given, **named: asked.append(named) or listed(*given, **named))
    listener = Listener(own)
    listener.take(1)
    own.client.request_approval("s", "pay", {"amount": 2})
    assert listener.take(1)[0][0] == "approval"
    listener.close()
    assert asked
    assert not [named for named in asked if named.get("pending") is False]


def test_a_stream_begins_at_the_start_or_of_one_session(own: Site):
    own.client.save("a", session_id="t")
    listener = Listener(own, "?after=start&session=t")
    assert [kind for kind, _ in listener.take(2)] == ["hello", "checkpoint"]
    listener.close()


def test_a_cursor_alone_brings_saves_and_no_earlier_operation(own: Site):
    own.client.tag("before", "s")
    own.client.request_approval("s", "pay", {"amount": 1})
    listener = Listener(own, last=own.client.cursor())
    listener.take(1)
    own.client.save("a", execution_state={"n": 1}, session_id="s")
    assert [kind for kind, _ in listener.take(1)] == ["checkpoint"]
    own.client.tag("after", "s")
    [(kind, fields)] = listener.take(1)
    assert (kind, fields["changes"][0]["name"]) == ("operation", "after")
    listener.close()


@pytest.mark.parametrize("query", ["?after=nonsense", "?after=%22x~y%22", "?unknown=1"])
def test_an_invalid_place_is_refused(own: Site, query):
    assert own.send(f"/events{query}").status_code == 400


def test_a_place_of_another_store_is_refused_or_reported(own: Site):
    assert own.send("/events?after=999999-0123abcd", timeout=10).status_code == 400
    listener = Listener(own, last="999999-0123abcd~~")  # a browser that was at another store
    assert listener.take(1)[0][1]["resumed"] is False
    listener.close()


def test_there_are_no_more_streams_than_the_limit(own: Site, monkeypatch):
    monkeypatch.setattr(events, "MOST_STREAMS", 1)
    monkeypatch.setattr(events, "_open", set())  # a server of an earlier test may still close its own
    listener = Listener(own)
    listener.take(1)
    assert own.send("/events").status_code == 503
    listener.close()


def test_many_streams_at_the_same_moment_are_no_more_than_the_limit(own: Site, monkeypatch):
    monkeypatch.setattr(events, "MOST_STREAMS", 2)
    monkeypatch.setattr(events, "_open", set())
    lines = ["GET /api/v1/events HTTP/1.1", f"Host: 127.0.0.1:{own.server.port}"]
    request = "\r\n".join([*lines, f"Authorization: Bearer {own.server.bearer}", "", ""]).encode()
    with contextlib.ExitStack() as open_connections:
        connections = [
            open_connections.enter_context(socket.create_connection(("127.0.0.1", own.server.port), timeout=30))
            for _ in range(30)
        ]
        for connection in connections:
            connection.sendall(request)
        assert [_is_greeted(connection) for connection in connections].count(True) == 2
    for _ in range(600):  # those that have gone away make room
        if own.send("/events?unknown=1").status_code == 400 and not events._open:
            break
        time.sleep(0.1)
    listener = Listener(own)
    assert listener.take(1)[0][0] == "hello"
    listener.close()


def _is_greeted(connection: socket.socket) -> bool:
    """Return whether a stream begins on the connection; it is refused, or ends at once, otherwise."""
    received = b""
    while b"event: hello" not in received:
        if b"too_many_streams" in received or received.endswith(b"\r\n0\r\n\r\n"):
            return False
        received += connection.recv(10_000)
    return True


def test_a_quiet_stream_says_that_it_is_alive(own: Site, monkeypatch):
    monkeypatch.setattr(events, "ALIVE_SECONDS", 0.3)
    with own.http.stream("GET", "/api/v1/events") as answer:
        assert any(line.startswith(": alive") for line in answer.iter_lines())
