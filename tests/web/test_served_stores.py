"""The API on each kind of store: what it shows, that a server's store is only read, and live events."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from stores import Store
from web_site import Listener, enc, fill, served, started

pytestmark = [pytest.mark.every_store, pytest.mark.slow]


def is_on_a_server(store: Store) -> bool:
    return store.kind in ("postgres", "redis")


def test_everything_is_shown(store: Store, tmp_path: Path):
    client = store.client()
    known = fill(client, tmp_path / "work")
    with served(client) as site:
        assert site.get("/status")["backend"] == store.kind
        listed = site.get("/sessions")["sessions"]
        assert {one["session_id"] for one in listed} == {"talk", "talk-fork", "order", "files"}
        tree = site.get(f"/sessions/{enc('talk')}")["tree_id"]
        rows = site.get(f"/trees/{tree}/graph")["rows"]
        assert [row["checkpoint_id"] for row in rows][::-1] == [
            known[name] for name in ("talk0", "talk1", "talk2", "fork", "handoff")
        ]
        assert len(site.get("/sessions/talk/chart")["points"]) == 4
        assert site.get("/checkpoints/talk@~1/state")["value"]["plan"] == ["a", "b"]
        assert [one["kind"] for one in site.get(f"/diff?a=talk&b={known['fork']}")["edits"]]
        assert site.get(f"/checkpoints/{known['files2']}/text?path=a.txt")["text"] == "one\nthree\n"
        assert [one["tool"] for one in site.get("/effects")["effects"]] == ["pay"]
        assert [one["tool"] for one in site.get("/approvals")["approvals"]] == ["refund"]
        usage = site.get("/du")
        assert sum(usage["parts"].values()) == usage["total_bytes"]
        assert site.get("/verify")["ok"] is True


def test_a_store_on_a_server_is_only_read_unless_it_may_be_written(store: Store):
    client = store.client()
    saved = client.save("a", execution_state={"n": 1}, session_id="s")
    with served(client) as site:
        assert site.get("/status")["writable"] is not is_on_a_server(store)
        if is_on_a_server(store):
            refused = site.post(f"/checkpoints/{saved}/tag", {"name": "best"}, 403)
            assert refused["error"] == "read_only"
            assert "on a server" in refused["message"]
            assert client.operations() == []
            assert site.post(f"/checkpoints/{saved}/tag", {"name": "best", "dry_run": True})["dry_run"] is True
    with served(client, writable=True) as site:
        made = site.post(f"/checkpoints/{saved}/tag", {"name": "best"})
        assert client.tagged("best").checkpoint_id == saved
        site.post("/undo", {"operation": made["operation"]["operation_id"]})
        assert client.tagged("best") is None


def test_what_another_process_does_arrives_at_once(shared_store: Store):
    other = shared_store.client()
    other.save("a", execution_state={"n": 0}, session_id="s")
    with served(shared_store.client()) as site:
        listener = Listener(site)
        assert [kind for kind, _ in listener.take(1)] == ["hello"]
        saved = [other.save("a", execution_state={"n": n}, session_id="s") for n in range(1, 4)]
        other.tag("best", saved[0])
        found = listener.take(4)
        assert [one["checkpoint"]["checkpoint_id"] for _, one in found[:3]] == saved
        assert (found[3][0], found[3][1]["kind"]) == ("operation", "tag")
        last = listener.last
        listener.close()
        missed = other.save("b", execution_state={}, session_id="t")
        again = Listener(site, last=last)
        (_, hello), (_, event) = again.take(2)
        assert hello["resumed"] is True
        assert event["checkpoint"]["checkpoint_id"] == missed
        again.close()


@pytest.mark.servers
@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_the_command_serves_a_url_and_writes_if_told(kind: str, request: pytest.FixtureRequest, tmp_path: Path):
    store = Store(kind, tmp_path, request.getfixturevalue("postgres_dsn" if kind == "postgres" else "redis_url"))
    saved = store.client().save("a", execution_state={"n": 1}, session_id="s")
    for options, status in (((), 403), (("--write",), 200)):
        token = tmp_path / "token"
        with (
            started(store.url, "--token-file", str(token), *options) as said,
            httpx.Client(base_url=f"{said['origin']}/api/v1", trust_env=False) as http,
        ):
            http.headers["authorization"] = f"Bearer {token.read_text().strip()}"
            assert http.get("/sessions").json()["sessions"][0]["session_id"] == "s"
            assert http.post(f"/checkpoints/{saved}/tag", json={"name": "best"}).status_code == status
    assert store.client().tagged("best").checkpoint_id == saved
    store.close()
