"""Hostile stores and hostile requests: names that hold anything, and never an answer of 500."""

from __future__ import annotations

import json
import logging
import random
import re
import socket

import pytest
from web_site import Site, enc, fill, served

from holdfast import SyncClient
from holdfast.web.application import ROUTES

MARKUP = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "javascript:alert(1)",
    "</script><svg onload=alert(1)>",
    "\u202eevil", "\ud800", "\udc80", "a\0b", "../../etc/passwd", "%2e%2e%2f", "..", ".", "", "/", "//", '"quoted"',
    "'", "~", "=", "a/timeline", "x" * 3000,
]  # fmt: skip
ODD = [
    "[", "[]", '["a"]', "[1e999]", "[null]", "[-1]", "[[[[", "-1", "1e3", "9" * 30, "true", "null", "start", "0",
    "%22%22",
]  # fmt: skip
PRINTABLE = [chr(code) for code in range(33, 127) if chr(code) not in "#?/&"]


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A store in which every name and value is hostile."""
    with SyncClient.sqlite(tmp_path_factory.mktemp("odd") / "store.db", durability="fast") as client:
        for name in MARKUP:
            state = {name: [name, {"$type": "cut", "of": name}], 7: b"\xff", "messages": [name]}
            try:
                id_ = client.save(
                    name or "agent", execution_state=state,
                    session_id=name, step_name=name, context={"$type": name}, note={name: (name, {name})},
                )  # fmt: skip
                client.pin(id_, name)
                client.handoff(id_, f"to {name}")  # not to the agent that saved it
                client.publish(name, state, key=name, agent_id=name or "agent")
            except ValueError:
                continue  # what the store itself refuses
        with served(client) as site:
            yield site, [one.session_id for one in client.sessions()]


def test_every_name_is_found_by_its_address(odd):
    site, names = odd
    assert len(names) > 15
    listed = site.get("/sessions?limit=1000")["sessions"]
    assert {one["session_id"] for one in listed} == set(names)
    for name in names:
        address = f"/sessions/{enc(name)}"
        assert site.get(address)["session_id"] == name
        assert site.get(f"{address}/timeline")["session_id"] == name
        head = site.get(f"/checkpoints/{enc(name)}", 200) if name else None
        for row in listed:
            if row["session_id"] == name:
                id_ = row["head"]["checkpoint_id"]
        assert site.get(f"/checkpoints/{id_}")["checkpoint_id"] == id_
        assert site.get(f"/checkpoints/{id_}/state")["value"] is not None
        site.get(f"/checkpoints/{id_}/messages")
        site.get(f"/checkpoints/{id_}/search?q={enc(name or 'x')}")
        site.get(f"/trees/{listed[0]['tree_id']}/graph")
        assert head is None or head["session_id"]
    for path in ("/inbox", "/pins", "/runs", "/operations", "/search?q=a"):
        site.get(path)


def test_every_topic_is_found_by_its_address(odd):
    site, _ = odd
    found = [one["topic"] for one in site.get("/topics")["topics"]]
    assert len(found) > 10
    for name in found:
        [message] = site.get(f"/topics/{enc(name)}/messages")["messages"]
        assert (message["topic"], message["key"]) == (name, name)
        assert site.get(f"/topics/{enc(name)}")["messages"] == 1
        assert site.get(f"/topics/{enc(name)}/dead?group={enc(name)}")["dead"] == []


def test_a_value_never_looks_like_one_that_was_cut(odd):
    site, _ = odd
    row = next(one for one in site.get("/sessions?limit=1000")["sessions"] if one["session_id"] == MARKUP[0])
    value = site.get(f"/checkpoints/{row['head']['checkpoint_id']}/state?items=1000")["value"]
    assert value["$type"] == "dict"
    inner = next(item for key, item in value["value"] if key == MARKUP[0])[1]
    assert inner == {"$type": "dict", "value": [["$type", "cut"], ["of", MARKUP[0]]]}


def _texts(rng: random.Random, known: list[str]) -> str:
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(known)
    if kind == 1:
        return enc(rng.choice(MARKUP))
    if kind == 2:
        return "%" + rng.choice(["", "f", "ff", "00", "c3%28", "ed%a0%80", "25"])
    if kind == 3:
        return rng.choice(ODD)
    if kind == 4:
        return "".join(rng.choice(PRINTABLE) for _ in range(rng.randrange(12)))
    return rng.choice(["talk", "best", "order", "a.txt", "messages.0.content", "execution_state", "pending", "state"])


def test_hostile_parameters_never_give_an_error_of_the_server(site: Site, known, caplog):
    rng = random.Random(7)
    refs = [*known.values(), "talk", "best"]
    names = sorted({parameter.name for one in ROUTES for parameter in one.query})
    with caplog.at_level(logging.ERROR):
        for number in range(400):
            one = rng.choice([route for route in ROUTES if route.body is None])
            path = one.path
            for name in re.findall("{[a-z_]+}", path):
                path = path.replace(name, _texts(rng, refs), 1)
            wanted = [parameter.name for parameter in one.query] or names
            query = "&".join(f"{rng.choice(wanted)}={_texts(rng, refs)}" for _ in range(rng.randrange(4)))
            status = _raw(site, "GET", f"/api/v1{path}?{query}")
            assert status in range(200, 500), (number, path, query)
    assert not caplog.records


def test_hostile_bodies_never_give_an_error_of_the_server(tmp_path, caplog):
    rng = random.Random(8)
    odd = [{"$type": "int", "value": "x"}, {"a": {"$type": 1}}, {"plan.0": "y"}, {"+x.y": {"$type": "odd", "value": 1}}]
    values = [None, True, 0, -1, 2**70, 1.5, "", "x", "\ud800", [], ["a"], {}, [[]], "plan.0", *odd]
    with SyncClient.sqlite(tmp_path / "store.db", durability="fast") as client:
        known = fill(client)
        with served(client) as own, caplog.at_level(logging.ERROR):
            for _ in range(300):
                one = rng.choice([route for route in ROUTES if route.body is not None])
                path = one.path
                while "{" in path:
                    name = path[path.index("{") : path.index("}") + 1]
                    path = path.replace(name, rng.choice([*known.values(), "talk", "best", enc("\ud800")]), 1)
                body = {field.name: rng.choice([*values, *field.choices]) for field in one.body if rng.random() < 0.6}
                answer = own.http.post(
                    f"/api/v1{path}", content=json.dumps(body).encode(), headers={"content-type": "application/json"}
                )
                assert answer.status_code < 500, (path, body, answer.text)
    assert not caplog.records


def _raw(site: Site, method: str, target: str) -> int:
    """Send a request line as it is: clients would correct it."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: 127.0.0.1:{site.server.port}", "Connection: close"]
    request = "\r\n".join([*lines, f"Authorization: Bearer {site.server.bearer}", "", ""])
    with socket.create_connection(("127.0.0.1", site.server.port), timeout=60) as connection:
        connection.sendall(request.encode("utf-8", "surrogatepass"))
        received = connection.recv(64)
    return int(received.split()[1]) if received else 400
