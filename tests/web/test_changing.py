"""Changes over the API: each can be tried first, is in the operation log, and is carried out once for a key."""

from __future__ import annotations

import threading

import pytest
from web_site import Site, enc, fill, served

from holdfast import SyncClient
from holdfast.web import idempotency


@pytest.fixture
def own(tmp_path):
    """A store of the test's own, with what `fill` gave."""
    with SyncClient.sqlite(tmp_path / "store.db", durability="fast") as client:
        known = fill(client, tmp_path / "work")
        with served(client, workspace=tmp_path / "work") as site:
            site.known = known
            yield site


def test_a_rollback_is_planned_done_and_undone(own: Site):
    head, target = own.known["handoff"], own.known["talk0"]
    body = {"to": target}
    planned = own.post("/sessions/talk/rollback", {**body, "dry_run": True})
    assert (planned["dry_run"], planned["from_id"], planned["to_id"], planned["operation"]) == (
        True,
        head,
        target,
        None,
    )
    assert own.client.session("talk").head.checkpoint_id == head
    done = own.post("/sessions/talk/rollback", body)
    assert own.client.session("talk").head.checkpoint_id == target
    assert done["operation"]["kind"] == "rollback"
    assert done["operation"]["by"] == "tester"
    undone = own.post("/undo", {"operation": done["operation"]["operation_id"]})
    assert undone["kind"] == "undo"
    assert own.client.session("talk").head.checkpoint_id == head
    own.post("/redo", {})
    assert own.client.session("talk").head.checkpoint_id == target


def test_a_rollback_is_refused_if_the_head_moved(own: Site):
    body = {"to": own.known["talk0"], "expect_head": own.known["talk1"]}
    assert own.post("/sessions/talk/rollback", body, 409)["error"] == "conflict"


def test_a_fork_writes_its_files_beside_the_directory(own: Site, tmp_path):
    body = {"session": "../other try", "files": True}
    path = f"/checkpoints/{own.known['files1']}/fork"
    place = tmp_path / "work-other-try"
    planned = own.post(path, {**body, "dry_run": True})
    assert planned["directory"] == str(place)
    assert not place.exists()
    made = own.post(path, body)
    assert (made["directory"], made["session_id"], made["left"]) == (str(place), "../other try", [])
    assert (place / "a.txt").read_text() == "one\ntwo\n"
    assert (tmp_path / "work" / "a.txt").read_text() == "one\nthree\n"
    assert made["operation"]["kind"] == "fork"
    again = own.post(path, {"session": "other-try", "files": True})
    assert again["directory"] == f"{place}-1"
    assert "snapshot" in own.post("/checkpoints/talk/fork", body, 400)["message"]
    assert own.post("/checkpoints/talk/fork", {"session": "plain"})["directory"] is None


def test_a_fork_with_files_needs_a_directory(tmp_path):
    with SyncClient.sqlite(tmp_path / "store.db", durability="fast") as client:
        known = fill(client, tmp_path / "work")
        with served(client) as site:
            refused = site.post(f"/checkpoints/{known['files1']}/fork", {"files": True}, 409)
            assert refused["error"] == "no_workspace"
            assert [one.session_id for one in client.sessions() if "fork-1" in one.session_id] == []


def test_a_fork_edits_its_state(own: Site):
    body = {"session": "other", "set": {"plan.0": "new", "+note": {"$type": "Decimal", "value": "1.5"}}}
    planned = own.post("/checkpoints/best/fork", {**body, "dry_run": True})
    assert (planned["dry_run"], planned["checkpoint_id"]) == (True, None)
    assert own.client.session("other") is None
    made = own.post("/checkpoints/best/fork", body)
    assert made["operation"]["kind"] == "fork"
    state = own.client.latest("other").execution_state
    assert state["plan"] == ["new", "b"]
    assert str(state["note"]) == "1.5"
    assert own.post("/checkpoints/best/fork", {"set": {"nothing.there": 1}}, 400)["error"]
    assert own.post("/checkpoints/best/fork", {**body, "dry_run": True}, 409)["error"] == "conflict"


def test_tags_and_pins_are_set_and_removed(own: Site):
    id_ = own.known["talk0"]
    assert own.post(f"/checkpoints/{id_}/tag", {"name": "v1", "dry_run": True})["checkpoint_id"] == id_
    assert own.client.tagged("v1") is None
    assert own.post(f"/checkpoints/{id_}/tag", {"name": "v1"})["operation"]["kind"] == "tag"
    assert own.post("/checkpoints/talk/tag", {"name": "v1"}, 409)["error"] == "conflict"
    assert own.post("/checkpoints/talk/tag", {"name": "v1", "dry_run": True}, 409)["error"] == "conflict"
    assert own.post("/checkpoints/talk/tag", {"name": "v1", "move": True})["checkpoint_id"] == own.known["handoff"]
    assert own.post("/checkpoints/talk/tag", {"name": "v1", "remove": True})["removed"] is True
    assert own.post(f"/checkpoints/{id_}/pin", {"note": "keep", "dry_run": True})["pinned_at"] is None
    assert own.post(f"/checkpoints/{id_}/pin", {"note": "keep"})["operation"]["kind"] == "pin"
    assert [one.note for one in own.client.pins()] == ["keep"]
    assert own.post(f"/checkpoints/{id_}/pin", {"remove": True})["removed"] is True
    own.post("/undo")
    assert [one.checkpoint_id for one in own.client.pins()] == [id_]


def test_an_approval_is_decided_once(own: Site):
    address = f"/approvals/{own.known['approval']}/decide"
    assert own.post(address, {"answer": "approve", "dry_run": True})["status"] == "pending"
    assert own.post(address, {"answer": "modify"}, 400)["error"] == "usage"
    assert own.post(address, {"answer": "modify", "change": {"amuont": 1}}, 400)["error"] == "usage"
    decided = own.post(address, {"answer": "modify", "change": {"amount": 20}, "note": "less"})
    assert (decided["status"], decided["decision"]["by"]) == ("modified", "tester")
    assert decided["decision"]["arguments"] == {"amount": 20, "to": "bob"}
    assert own.post(address, {"answer": "reject"}, 409)["error"] == "conflict"


def test_what_was_cut_is_not_taken_for_the_whole(own: Site):
    text = "All of it. " * 3000
    id_ = own.client.request_approval("order", "mail", {"text": text, "to": "bob"}).approval_id
    shown = own.get(f"/approvals/{id_}")["arguments"]
    assert shown["text"]["$type"] == "cut"
    address = f"/approvals/{id_}/decide"
    refused = own.post(address, {"answer": "modify", "change": {**shown, "to": "ann"}}, 400)
    assert "cut" in refused["message"]
    assert own.post("/checkpoints/best/fork", {"set": {"plan": [shown["text"]]}}, 400)["message"] == (
        refused["message"].replace("'change'", "'set'")
    )
    own.post(address, {"answer": "modify", "change": {"to": "ann"}})
    assert own.client.approval(id_).decision.arguments == {"text": text, "to": "ann"}


def test_an_effect_in_doubt_is_resolved(own: Site):
    def pay(**_: object) -> None:
        raise KeyboardInterrupt  # the process ends in the call

    with pytest.raises(KeyboardInterrupt), own.client.run("doubt", agent_id="buyer") as run:
        run.effect("wire", pay, to="eve", kind="irreversible")
    [one] = own.get("/effects?state=in_doubt")["effects"]
    address = f"/effects/{one['short_id']}/resolve"
    assert own.post(address, {"outcome": "not_done", "result": 1}, 400)["error"] == "usage"
    assert own.post(address, {"outcome": "done", "result": {"id": 7}, "dry_run": True})["effect"]["in_doubt"] is True
    resolved = own.post(address, {"outcome": "done", "result": {"id": 7}})["effect"]
    assert (resolved["state"], resolved["result"], resolved["history"][-1]["by"]) == ("done", {"id": 7}, "tester")
    assert own.post(address, {"outcome": "done"}, 409)["error"] == "conflict"


def test_files_go_back_by_a_plan_and_come_again_by_undo(own: Site, tmp_path):
    file = tmp_path / "work" / "a.txt"
    plan = own.post("/restore/plan", {"ref": own.known["files1"]})
    assert [(one["action"], one["path"]) for one in plan["actions"]] == [("replace", "a.txt")]
    assert file.read_text() == "one\nthree\n"
    assert own.post("/restore/apply", {"plan": plan["plan"], "dry_run": True})["dry_run"] is True
    done = own.post("/restore/apply", {"plan": plan["plan"]})
    assert file.read_text() == "one\ntwo\n"
    assert done["operation"]["kind"] == "restore"
    assert own.post("/restore/apply", {"plan": plan["plan"]}, 409)["error"] == "plan_stale"
    own.post("/undo")
    assert file.read_text() == "one\nthree\n"


def test_a_plan_is_not_applied_after_a_change(own: Site, tmp_path):
    plan = own.post("/restore/plan", {"ref": own.known["files1"]})
    (tmp_path / "work" / "a.txt").write_text("by hand\n")
    assert own.post("/restore/apply", {"plan": plan["plan"]}, 409)["error"] == "plan_stale"
    assert (tmp_path / "work" / "a.txt").read_text() == "by hand\n"
    plan = own.post("/restore/plan", {"ref": own.known["talk0"], "scope": "state"})
    own.client.save("buyer", session_id="talk")
    assert own.post("/restore/apply", {"plan": plan["plan"]}, 409)["error"] == "plan_stale"
    plan = own.post("/restore/plan", {"ref": own.known["talk0"], "scope": "state"})
    assert own.post("/restore/apply", {"plan": plan["plan"]})["state"]["to_id"] == own.known["talk0"]


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside", "a/../../outside", "~root", "a\0b"])
def test_a_restore_takes_no_path_outside_of_the_directory(own: Site, path):
    assert own.post("/restore/plan", {"ref": own.known["files1"], "paths": [path]}, 400)["error"] == "usage"


def test_retention_is_applied_as_it_was_shown(own: Site):
    plan = own.post("/retain/plan", {"keep_last": 1, "session": "talk"})
    assert plan["dry_run"] is True
    assert plan["going"] > 0
    own.client.save("buyer", session_id="talk")
    assert own.post("/retain/apply", {"plan": plan["plan"]}, 409)["error"] == "plan_stale"
    plan = own.post("/retain/plan", {"keep_last": 1, "session": "talk"})
    done = own.post("/retain/apply", {"plan": plan["plan"]})
    assert (done["dry_run"], done["going"]) == (False, plan["going"])
    assert own.get("/operations")["operations"][0]["kind"] == "retain"
    assert own.post("/retain/plan", {}, 400)["error"] == "usage"


def test_a_key_is_carried_out_once(own: Site):
    body = {"session": None, "set": {"plan.0": "x"}}
    before = len(own.client.sessions())
    answers = []

    def ask():
        answers.append(own.http.post("/api/v1/checkpoints/best/fork", json=body, headers={"Idempotency-Key": "k1"}))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert sorted(answer.headers.get("idempotent-replay", "") for answer in answers) == ["", "true", "true", "true"]
    assert len(own.client.sessions()) == before + 1
    other = own.post("/checkpoints/best/fork", {"set": {"plan.0": "y"}}, 409, key="k1")
    assert other["error"] == "idempotency_key_reused"
    own.post("/checkpoints/best/fork", body, key="k2")
    assert len(own.client.sessions()) == before + 2


def test_kept_answers_take_no_more_than_their_room(monkeypatch):
    monkeypatch.setattr(idempotency, "MOST_BYTES", 3000)
    kept, done = idempotency.KeptAnswers(), []

    def change() -> str:
        done.append(1)
        return "x" * 1000

    for number in range(10):
        kept.answer(f"k{number}", (), change)
    assert idempotency.REPLAYED in kept.answer("k9", (), change).headers
    assert sum(len(one.answer[1]) for one in kept._kept.values()) <= 3000
    assert len(done) == 10
    assert idempotency.REPLAYED not in kept.answer("k0", (), change).headers


def test_a_read_only_page_changes_nothing(tmp_path):
    with SyncClient.sqlite(tmp_path / "store.db") as client:
        known = fill(client)
        before = client._ctx.backend.capabilities.location, len(client.operations(limit=None))
        with served(client, writable=False) as site:
            assert site.get("/status")["writable"] is False
            for path, body in (
                ("/sessions/talk/rollback", {"to": known["talk0"]}),
                ("/checkpoints/best/fork", {}),
                ("/checkpoints/best/tag", {"name": "x"}),
                ("/checkpoints/best/pin", {}),
                (f"/approvals/{known['approval']}/decide", {"answer": "approve"}),
                ("/retain/apply", {"plan": site.post("/retain/plan", {"keep_last": 1})["plan"]}),
                ("/undo", {}),
                ("/redo", {}),
            ):
                assert site.post(path, body, 403)["error"] == "read_only"
            assert site.post("/sessions/talk/rollback", {"to": known["talk0"], "dry_run": True})["dry_run"] is True
        assert len(client.operations(limit=None)) == before[1]


@pytest.mark.parametrize(
    "body", [b"[]", b"null", b'{"to": 1}', b"{", b'{"to": NaN}', b"\xff", b'{"odd": 1}', b"[" * 100_000, b"9" * 5000]
)
def test_a_malformed_body_is_refused(site: Site, body):
    answer = site.http.post(
        f"/api/v1/sessions/{enc('talk')}/rollback", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 400
    assert answer.json()["error"] == "bad_request"
