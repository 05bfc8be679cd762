"""One damaged checkpoint hides no other: what can be read is shown, and the damage is named."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
import web_site
from web_site import Listener, Site, enc, served
from web_story import flip_a_bit

from holdfast import SyncClient

LISTS = (
    "/status", "/sessions", "/runs", "/effects", "/approvals?state=all", "/inbox?all=true", "/operations", "/tags",
    "/pins", "/search?q=t", "/topics", "/du",
)  # fmt: skip
DAMAGED = ("talk0", "talk1", "handoff", "fork", "files1", "files2")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A store that each test damages a copy of, and the ids of its checkpoints."""
    path = tmp_path_factory.mktemp("whole") / "store.db"
    with SyncClient.sqlite(path) as client:
        return path, web_site.fill(client, path.parent / "work")


@pytest.mark.slow
@pytest.mark.parametrize("name", DAMAGED)
def test_only_what_is_damaged_is_refused(whole: tuple[Path, dict[str, str]], tmp_path: Path, name: str):
    path, known = whole
    shutil.copy(path, tmp_path / "store.db")
    with SyncClient.sqlite(tmp_path / "store.db") as client:
        sessions = {one: client.get(known[one]).session_id for one in DAMAGED}
        tree = client.get(known[name]).tree_id
    flip_a_bit(tmp_path / "store.db", known[name])
    with SyncClient.sqlite(tmp_path / "store.db") as client, served(client) as site:
        for route in LISTS:
            site.get(route)
        assert [one["checkpoint_id"] for one in site.get("/du")["damaged"]] == [known[name]]
        listed = site.get("/sessions")["sessions"]
        assert {one["session_id"] for one in listed} == {*sessions.values(), "order"}
        heads = ("handoff", "fork", "files2")
        assert [one["session_id"] for one in listed if one.get("damaged")] == [sessions[name]] * (name in heads)
        for session in sessions.values():
            assert site.get(f"/sessions/{enc(session)}")["tree_id"]
            site.get(f"/sessions/{enc(session)}/timeline")
        rows = site.get(f"/trees/{tree}/graph")["rows"]
        assert [row["checkpoint_id"] for row in rows if row.get("damaged")] == [known[name]]
        for other in DAMAGED:
            if other == name:
                assert site.get(f"/checkpoints/{known[other]}", 422)["error"] == "corrupt"
            else:
                assert site.get(f"/checkpoints/{known[other]}")["checkpoint_id"] == known[other]
                site.get(f"/checkpoints/{known[other]}/state")
                site.get(f"/checkpoints/{known[other]}/messages")


@pytest.mark.slow
@pytest.mark.parametrize("space", ["tag", "pin", "operation", "ledger", "approval"])
def test_a_damaged_row_hides_no_other(whole: tuple[Path, dict[str, str]], tmp_path: Path, space: str):
    path, known = whole
    shutil.copy(path, tmp_path / "store.db")
    with SyncClient.sqlite(tmp_path / "store.db") as client:
        client.tag("other", known["talk0"])
        client.pin(known["talk0"])
    flip_a_bit_in_a_row(tmp_path / "store.db", space)
    with SyncClient.sqlite(tmp_path / "store.db") as client, served(client) as site:
        for route in LISTS:
            site.get(route)
        for other in DAMAGED:
            site.get(f"/checkpoints/{known[other]}")
            site.get(f"/checkpoints/{known[other]}/messages")
        for session in ("talk", "talk-fork", "order"):
            site.get(f"/sessions/{session}")
        site.get(f"/trees/{site.get('/sessions/talk')['tree_id']}/graph?only=tags,effects")
        name = {"tag": "/tags", "pin": "/pins", "operation": "/operations", "ledger": "/effects"}.get(space)
        if name is not None:
            [said] = site.get(name)["damaged"]
            assert f"the {space} row of " in said
        listener = Listener(site)
        assert listener.take(1)[0][0] == "hello"
        id_ = client.save("buyer", session_id="talk")
        assert listener.take(1)[0][1]["checkpoint"]["checkpoint_id"] == id_
        listener.close()
        site.post(f"/checkpoints/{known['talk2']}/tag", {"name": "third"})
        assert "third" in site.get(f"/checkpoints/{known['talk2']}")["tags"]


def test_a_pinned_checkpoint_that_is_damaged_hides_no_other(whole: tuple[Path, dict[str, str]], tmp_path: Path):
    path, known = whole
    shutil.copy(path, tmp_path / "store.db")
    with SyncClient.sqlite(tmp_path / "store.db") as client:
        client.pin(known["talk1"])
        client.pin(known["talk0"])
    flip_a_bit(tmp_path / "store.db", known["talk1"])
    with SyncClient.sqlite(tmp_path / "store.db") as client, served(client) as site:
        assert [one["checkpoint_id"] for one in site.get("/pins")["pins"]] == [known["talk0"]]
        child = _checkpoint(site, known["talk2"])
        assert len(child["damage"]) == 1
        assert known["talk1"] in child["damage"][0]


def flip_a_bit_in_a_row(path: Path, space: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        [key, value] = connection.execute("SELECT key, value FROM row WHERE space = ?", (space,)).fetchone()
        broken = bytearray(value)
        broken[len(broken) // 2] ^= 1
        connection.execute("UPDATE row SET value = ? WHERE space = ? AND key = ?", (bytes(broken), space, key))
    finally:
        connection.close()


def test_a_child_names_the_damage_above_it(whole: tuple[Path, dict[str, str]], tmp_path: Path):
    path, known = whole
    shutil.copy(path, tmp_path / "store.db")
    flip_a_bit(tmp_path / "store.db", known["talk1"])
    with SyncClient.sqlite(tmp_path / "store.db") as client, served(client) as site:
        child = _checkpoint(site, known["talk2"])
        assert known["talk1"] in child["damage"][0]
        assert child["parts"]["execution_state"] == {"of": "dict", "size": 2}
        assert _checkpoint(site, known["talk0"])["damage"] == []
        fork = site.get(f"/sessions/{enc('talk-fork')}")
        assert fork["parent"] == {"checkpoint_id": known["talk1"], "session_id": None}
        assert known["talk1"] in fork["damaged"]


def _checkpoint(site: Site, id_: str) -> dict:
    return site.get(f"/checkpoints/{id_}")
