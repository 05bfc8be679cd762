"""What the API answers about topics: their groups, their messages, and what was given up."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys

import pytest
from web_site import Site, enc, served

from holdfast import Message, SyncClient

TOPICS = ("drafts", "a/b?c#d", "<img src=x onerror=alert(1)>", '"quoted"', "..", "messages", "\u00e4 %2f")


def consume(client: SyncClient) -> None:
    """Let one group be behind, one be done, and one give a message up."""
    with client.subscribe("drafts", "late", timeout=0) as messages:
        next(iter(messages)).ack()
    with client.subscribe("drafts", "quick", timeout=0) as messages:
        for message in messages:
            message.ack()
    with client.subscribe("drafts", "<b>strict</b>", timeout=0) as messages:
        for message in messages:
            message.reject(f"no <i>{message.value['n']}</i>")
            break


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with SyncClient.sqlite(tmp_path_factory.mktemp("topics") / "store.db", durability="fast") as client:
        for topic in TOPICS:
            for number in range(5):
                client.publish(topic, {"n": number, "topic": topic, "text": "x " * 2500}, key=topic, agent_id="<a>")
        client.save("shop", session_id="order-42", publish=[Message("drafts", {"n": 5})])
        consume(client)
        with served(client) as site:
            yield site


def _command(client: SyncClient, *arguments: str) -> str:
    path = client._ctx.backend.capabilities.location
    command = [sys.executable, "-m", "holdfast", "--store", path, *arguments, "--json"]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def test_topics_are_listed_as_the_command_lists_them(site: Site):
    found = site.get("/topics")
    assert found["topics"] == json.loads(_command(site.client, "topics"))["topics"]
    assert (found["total"], found["next"]) == (len(TOPICS), None)
    drafts = next(one for one in found["topics"] if one["topic"] == "drafts")
    groups = {one["group"]: one for one in drafts["groups"]}
    assert (drafts["messages"], groups["late"]["waiting"], groups["quick"]["waiting"]) == (6, 5, 0)
    assert (groups["late"]["dead"], groups["<b>strict</b>"]["dead"]) == (0, 1)
    messages = site.get("/topics/drafts/messages")["messages"]
    assert groups["late"]["oldest"] is not None
    assert groups["late"]["oldest"] <= messages[1]["published_at"]
    assert groups["quick"]["oldest"] is None


def test_topics_are_paged(site: Site):
    first = site.get("/topics?limit=4")
    rest = site.get(f"/topics?limit=4&after={first['next']}")
    names = [one["topic"] for one in first["topics"] + rest["topics"]]
    assert sorted(names) == sorted(TOPICS)
    assert rest["next"] is None


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_of_any_name_is_read(site: Site, topic: str):
    address = f"/topics/{enc(topic)}"
    assert site.get(address)["topic"] == topic
    found = site.get(f"{address}/messages")["messages"]
    assert {one["topic"] for one in found} == {topic}
    assert [one["value"]["n"] for one in found] == list(range(6 if topic == "drafts" else 5))
    assert site.get(f"{address}/dead")["topic"] == topic


def test_messages_are_read_on_from_a_cursor(site: Site):
    seen, after, pages = [], "start", 0
    while after is not None:
        page = site.get(f"/topics/drafts/messages?limit=2&after={after}")
        seen, after, pages = seen + page["messages"], page["next"], pages + 1
    expected = [json.loads(line) for line in _command(site.client, "messages", "drafts").splitlines()]
    assert [one["message_id"] for one in seen] == [one["message_id"] for one in expected]
    assert pages == 3
    for one, other in zip(seen, expected, strict=True):
        assert {**one, "value": None} == {**other, "value": None}
    assert seen[-1]["session_id"] == "order-42"
    assert site.get(f"/topics/drafts/messages?after={seen[-1]['cursor']}")["messages"] == []


def test_values_are_cut_and_read_whole_by_the_id_of_the_message(site: Site):
    [message] = site.get("/topics/drafts/messages?limit=1")["messages"]
    text = message["value"]["text"]
    assert (text["$type"], text["of"], text["size"]) == ("cut", "str", 5000)
    assert len(text["value"]) == 2000
    path = enc(json.dumps(["text"]))
    whole = site.get(f"/checkpoints/{message['message_id']}/state?path={path}&text=10000")
    assert whole["value"] == "x " * 2500


def test_dead_messages_say_why(site: Site):
    [dead] = site.get("/topics/drafts/dead")["dead"]
    assert [dead] == json.loads(_command(site.client, "dead", "drafts"))["dead"]
    assert (dead["group"], dead["reasons"][-1]) == ("<b>strict</b>", "no <i>0</i>")
    assert site.get(f"/topics/drafts/dead?group={enc('<b>strict</b>')}")["dead"] == [dead]
    assert site.get("/topics/drafts/dead?group=late")["dead"] == []


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/topics/nothing", 404, "checkpoint_not_found"),
        ("/topics/nothing/messages", 404, "checkpoint_not_found"),
        ("/topics/%22%5cud800%22/dead", 404, "checkpoint_not_found"),
        ("/topics/drafts/messages?after=odd", 400, "usage"),
        ("/topics/drafts/messages?after=1-00000000", 400, "usage"),
        ("/topics/drafts/messages?after=999999", 400, "usage"),
        ("/topics/drafts/dead?after=odd", 400, "bad_request"),
        ("/topics/drafts/dead?group=", 200, None),
    ],
)
def test_what_is_not_there_is_refused(site: Site, path: str, status: int, kind: str | None):
    assert site.get(path, status).get("error") == kind


def test_topics_are_only_read(site: Site):
    for path in ("/topics", "/topics/drafts", "/topics/drafts/messages", "/topics/drafts/dead"):
        site.post(path, status=405)


def test_a_damaged_message_says_so_in_its_place(tmp_path):
    with SyncClient.sqlite(tmp_path / "store.db") as client:
        ids = [client.publish("t", {"n": number}) for number in range(3)]
        with sqlite3.connect(tmp_path / "store.db") as database:
            raw = bytes.fromhex(ids[1].replace("-", ""))
            [data] = database.execute("select data from record where id = ?", (raw,)).fetchone()
            database.execute("update record set data = ? where id = ?", (data[:-1] + bytes([data[-1] ^ 1]), raw))
        with served(client) as site:
            found = site.get("/topics/t/messages")["messages"]
            assert [one.get("message_id") for one in found] == [ids[0], None, ids[2]]
            assert "damaged" in found[1]
            assert site.get("/topics/t/messages?limit=2")["next"] == found[1]["cursor"]
            assert site.get(f"/topics/t/messages?after={found[1]['cursor']}")["messages"] == found[2:]
