"""What the API answers: every GET route over a real server."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from web_site import Site, enc, served

from holdfast import SyncClient


def _command(client: SyncClient, *arguments: str):
    path = client._ctx.backend.capabilities.location
    command = [sys.executable, "-m", "holdfast", "--store", path, *arguments, "--json"]
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def test_the_store_at_a_glance(site: Site):
    found = site.get("/status")
    assert (found["backend"], found["writable"], found["user"], found["source"]) == ("sqlite", True, "tester", "store")
    assert found["approvals"] == 1


def test_sessions_are_listed_as_the_command_lists_them(site: Site):
    listed = site.get("/sessions")["sessions"]
    expected = _command(site.client, "sessions")["sessions"]
    assert [one["session_id"] for one in listed] == [one["session_id"] for one in expected]
    for one, other in zip(listed, expected, strict=True):
        assert other.items() <= one.items() or other["head"]["metadata"] != one["head"]["metadata"]
    assert {one["session_id"]: one["status"] for one in listed}["order"] == "waiting"


def test_sessions_are_searched_filtered_and_paged(site: Site):
    names = [one["session_id"] for one in site.get("/sessions?q=TALK")["sessions"]]
    assert set(names) == {"talk", "talk-fork"}
    page = site.get("/sessions?limit=1")
    rest = site.get(f"/sessions?limit=1000&offset={page['next']}")
    assert page["total"] == 1 + len(rest["sessions"])
    assert [one["session_id"] for one in site.get("/sessions?status=waiting")["sessions"]] == ["order"]
    assert {one["agent_id"] for one in site.get("/sessions?agent=coder")["sessions"]} == {"coder"}


def test_requests_that_read_the_whole_store_keep_no_other_waiting(tmp_path, monkeypatch):
    with SyncClient.sqlite(tmp_path / "store.db") as client, served(client) as own:
        ours, may_end = own.server._application.site.client, threading.Event()
        report = ours.verify()

        def verify(_session: str | None) -> Any:
            may_end.wait(50)
            return report

        monkeypatch.setattr(ours, "verify", verify)
        asked = [threading.Thread(target=own.get, args=("/verify",)) for _ in range(6)]
        for thread in asked:
            thread.start()
        try:
            time.sleep(0.3)
            assert own.send("/status", timeout=30).status_code == 200
        finally:
            may_end.set()
            for thread in asked:
                thread.join()


def test_a_fork_names_its_parent(site: Site, known):
    found = site.get(f"/sessions/{enc('talk-fork')}")
    assert found["parent"] == {"checkpoint_id": known["talk1"], "session_id": "talk"}
    assert [one["name"] for one in site.get("/sessions/talk")["tags"]] == ["best"]


def test_a_timeline_is_read_by_pages(site: Site, known):
    first = site.get("/sessions/talk/timeline?limit=2")
    second = site.get(f"/sessions/talk/timeline?limit=2&before={first['next']}")
    found = [one["checkpoint_id"] for one in first["checkpoints"] + second["checkpoints"]]
    assert found == [known["handoff"], known["talk2"], known["talk1"], known["talk0"]]
    expected = _command(site.client, "timeline", "talk", "-n", "2")["checkpoints"]
    assert [one["checkpoint_id"] for one in expected] == found[:2]


def test_the_lanes_are_those_of_the_command(site: Site):
    tree = site.get("/sessions/talk")["tree_id"]
    rows = site.get(f"/trees/{tree}/graph")["rows"]
    expected = _command(site.client, "timeline", "talk", "--graph")["checkpoints"]
    for name in ("checkpoint_id", "nearest_parent_id", "lane"):
        assert [row[name] for row in rows] == [row[name] for row in expected]
    assert {name for row in rows for name in row["heads"]} == {"talk", "talk-fork"}


def test_the_graph_is_filtered_and_centered(site: Site, known):
    tree = site.get("/sessions/talk")["tree_id"]
    tagged = site.get(f"/trees/{tree}/graph?only=tags")
    assert [row["checkpoint_id"] for row in tagged["rows"]] == [known["talk1"]]
    line = [row["checkpoint_id"] for row in site.get(f"/trees/{tree}/graph?line=talk-fork")["rows"]]
    assert line == [known["fork"], known["talk1"], known["talk0"]]
    found = site.get(f"/trees/{tree}/graph?limit=1&at={known['talk0']}")
    assert found["rows"][0]["checkpoint_id"] == known["talk0"]
    assert found["rows"][0]["row"] == found["at"]


def test_a_checkpoint_is_shown_with_what_belongs_to_it(site: Site, known):
    found = site.get("/checkpoints/best")
    assert found["checkpoint_id"] == known["talk1"]
    assert found["parts"]["execution_state"] == {"of": "dict", "size": 2}
    assert found["has_messages"] is True
    for ref in (known["talk1"], known["talk1"][-8:], "talk@~2", "talk@{1}"):
        assert site.get(f"/checkpoints/{enc(ref)}")["checkpoint_id"] == known["talk1"]
    paid = site.get("/checkpoints/order")
    assert [one["tool"] for one in paid["effects"]] == ["pay"] or paid["effects"] == []


def test_a_part_of_the_state_is_shown_by_its_path(site: Site):
    whole = site.get("/checkpoints/best/state")["value"]
    assert whole["plan"] == ["a", "b"]
    path = enc(json.dumps(["messages", 0, "content"]))
    assert site.get(f"/checkpoints/best/state?path={path}")["value"] == "pay bob"
    assert site.get("/checkpoints/best/state?path=messages.-1.role")["value"] == "assistant"
    assert site.get("/checkpoints/best/state?path=nothing.there", 404)["error"] == "path_not_found"


def test_a_state_is_searched(site: Site):
    found = site.get("/checkpoints/best/search?q=BOB")["found"]
    assert ["messages", 0, "content"] in [one["path"] for one in found]
    for one in found:
        value = site.get(f"/checkpoints/best/state?part={one['part']}&path={enc(json.dumps(one['path']))}")["value"]
        assert "bob" in json.dumps(value).lower()


def test_a_conversation_is_shown_in_neutral_form(site: Site):
    found = site.get("/checkpoints/talk/messages")
    assert [one["role"] for one in found["messages"]] == ["user", "assistant", "tool"]
    call = found["messages"][1]["parts"][-1]
    assert (call["type"], call["name"], call["arguments"]) == ("tool_call", "pay", {"to": "bob", "amount": 5})
    assert call["effect"] is None  # the payment in the ledger is of another tree
    last = site.get("/checkpoints/talk/messages?limit=1&tail=true")
    assert (last["messages"][0]["index"], last["previous"]) == (2, "1")


def test_files_are_listed_and_sent_as_attachments_only(site: Site, known):
    found = site.get(f"/checkpoints/{known['files2']}/files")
    assert [(one["name"], one["kind"]) for one in found["entries"]][:2] == [("a.txt", "file"), ("sub", "dir")] or found
    deep = site.get(f"/checkpoints/{known['files2']}/files?recursive=true")["entries"]
    assert "sub/b.bin" in [one["path"] for one in deep]
    answer = site.send(f"/checkpoints/{known['files2']}/files/{enc('a.txt')}")
    assert answer.content == b"one\nthree\n"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment;")
    assert site.get(f"/checkpoints/{known['files2']}/text?path=a.txt")["text"] == "one\nthree\n"
    assert site.get(f"/checkpoints/{known['files2']}/text?path={enc('sub/b.bin')}")["is_binary"] is True
    assert site.send(f"/checkpoints/{known['files2']}/files/{enc('../a.txt')}").status_code == 404


def test_two_checkpoints_are_compared(site: Site, known):
    found = site.get(f"/diff?a={known['talk1']}&b={known['fork']}")
    [edit] = found["edits"]
    assert (edit["kind"], edit["path"], edit["old"], edit["new"]) == (
        "splice",
        ["execution_state", "plan"],
        ["a"],
        ["z"],
    )
    messages = site.get(f"/diff?b={known['talk2']}&part=messages")["messages"]
    assert (messages["common"], len(messages["added"]), messages["removed"]) == (2, 1, [])
    changes = site.get(f"/diff?b={known['files2']}&part=files")["changes"]
    assert [(one["path"], one["status"]) for one in changes] == [("a.txt", "M")]
    lines = site.get(f"/diff/file?b={known['files2']}&path=a.txt")["lines"]
    assert lines == ["@@ -1,2 +1,2 @@", " one", "-two", "+three"]
    assert site.get(f"/diff?b={known['talk0']}", 400)["error"] == "usage"


def test_two_sessions_are_compared_from_their_fork(site: Site, known):
    found = site.get("/compare?a=talk&b=talk-fork")
    assert found["ancestor"]["checkpoint_id"] == known["talk1"]
    assert found["first_difference"]["index"] == 0
    assert found["first_difference"]["b"]["checkpoint_id"] == known["fork"]


def test_work_is_listed(site: Site, known):
    found = site.get("/runs")
    assert [one["session_id"] for one in found["runs"]] == ["order"]
    assert found["counts"] == {found["runs"][0]["status"]: 1}
    assert site.get(f"/runs?status={enc(found['runs'][0]['status'])}")["runs"] == found["runs"]
    assert site.get("/runs?status=failed")["runs"] == []
    assert [one["tool"] for one in site.get("/effects")["effects"]] == ["pay"]
    assert site.get("/effects?state=in_doubt")["effects"] == []
    [waiting] = site.get("/approvals")["approvals"]
    assert waiting == {**_command(site.client, "approvals")["approvals"][0]}
    assert site.get(f"/approvals/{waiting['short_id']}")["approval_id"] == known["approval"]
    [handed] = site.get("/inbox")["handoffs"]
    assert (handed["handoff_id"], handed["target_agent_id"]) == (known["handoff"], "approver")
    assert site.get("/team/order")["session_id"] == "order"
    kinds = {one["kind"] for one in site.get("/operations")["operations"]}
    assert {"fork", "tag"} <= kinds


def test_storage_and_damage_are_reported(site: Site):
    usage = site.get("/du")
    assert sum(usage["parts"].values()) == usage["total_bytes"]
    assert site.get("/verify")["ok"] is True


def test_the_palette_finds_names(site: Site, known):
    assert site.get("/search?q=tal")["sessions"] != []
    assert [one["name"] for one in site.get("/search?q=bes")["tags"]] == ["best"]
    assert site.get(f"/search?q={known['talk0'][-8:]}")["checkpoints"][0]["checkpoint_id"] == known["talk0"]


def test_a_chart_has_a_point_for_each_step(site: Site):
    found = site.get("/sessions/talk/chart")
    assert [one["step_name"] for one in found["points"]][:3] == ["step 0", "step 1", "step 2"]
    assert found["points"][1]["tokens"] == {"input": 10}
    assert found["points"][1]["grown_bytes"] > 0


def test_a_chart_shows_how_much_sharing_saves(tmp_path):
    messages = [{"role": "user", "content": f"{n} " + "words " * 40} for n in range(60)]
    with SyncClient.sqlite(tmp_path / "store.db", durability="fast") as client:
        for count in range(1, 61):
            client.save("a", execution_state={"messages": messages[:count]}, session_id="s")
        with served(client) as site:
            points = site.get("/sessions/s/chart")["points"]
            sizes = [one["logical_bytes"] for one in points]
            assert [one["total_bytes"] for one in points] == [sum(sizes[: n + 1]) for n in range(60)]
            stored = [one["stored_bytes"] for one in points]
            assert stored == sorted(stored)
            usage = client.du()
            assert stored[-1] == usage.record_bytes + usage.segment_bytes
            assert points[-1]["total_bytes"] / stored[-1] > 5
            few = site.get("/sessions/s/chart?points=10")["points"][-1]
            assert few["total_bytes"] / points[-1]["total_bytes"] == pytest.approx(1, abs=0.2)
            assert few["stored_bytes"] / stored[-1] == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/nothing", 404, "not_found"),
        ("/sessions/nobody", 404, "checkpoint_not_found"),
        ("/checkpoints/nothing", 404, "checkpoint_not_found"),
        ("/trees/nothing/graph", 400, "usage"),
        ("/sessions?limit=0", 400, "bad_request"),
        ("/sessions?limit=many", 400, "bad_request"),
        ("/sessions?unknown=1", 400, "bad_request"),
        ("/sessions?limit=1&limit=2", 400, "bad_request"),
        ("/sessions/%ff", 400, "bad_request"),
        ("/sessions/%22open", 400, "bad_request"),
        ("/effects?state=odd", 400, "bad_request"),
    ],
)
def test_an_error_says_what_happened_and_what_to_do(site: Site, path, status, kind):
    found = site.get(path, status)
    assert found["error"] == kind
    assert found["message"]
    assert found["next"]


def test_an_expired_checkpoint_is_gone_and_a_damaged_one_is_reported(tmp_path):
    import sqlite3

    with SyncClient.sqlite(tmp_path / "store.db") as client:
        ids = [client.save("a", execution_state={"step": n}, session_id="s") for n in range(4)]
        client.expire(ids[1])
        with sqlite3.connect(tmp_path / "store.db") as database:
            [table] = [
                name
                for (name,) in database.execute("select name from sqlite_master where type = 'table'")
                if name.startswith("record") or name == "checkpoint"
            ][:1]
            raw = bytes.fromhex(ids[2].replace("-", ""))
            [data] = database.execute(f"select data from {table} where id = ?", (raw,)).fetchone()
            database.execute(f"update {table} set data = ? where id = ?", (data[:-1] + bytes([data[-1] ^ 1]), raw))
        with served(client) as site:
            assert site.get(f"/checkpoints/{ids[1]}", 410)["error"] == "checkpoint_expired"
            assert site.get(f"/checkpoints/{ids[2]}", 422)["error"] == "corrupt"
            found = site.get("/sessions/s/timeline")
            assert [one["checkpoint_id"] for one in found["checkpoints"]] == [ids[3], ids[0]]
            assert [one["checkpoint_id"] for one in found["damaged"]] == [ids[2]]
            rows = site.get(f"/trees/{found['tree_id']}/graph")["rows"]
            assert [row["checkpoint_id"] for row in rows] == [ids[3], ids[2], ids[0]]
            assert "damaged" in rows[1]
            assert site.get("/verify")["ok"] is False
