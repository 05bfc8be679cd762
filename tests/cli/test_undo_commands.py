"""op log, undo, redo, rollback, adopt: texts, JSON and exit codes."""

import json

import pytest

from holdfast import SyncClient


@pytest.fixture
def points(tmp_path):
    """A project with a store in it, and three checkpoints of session `s`, each with another file."""
    made = []
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        for step in range(3):
            (tmp_path / "code.py").write_text(f"step {step}\n")
            made.append(client.save("a", execution_state={"step": step}, session_id="s", workspace=tmp_path))
    return made


def head(run, session="s"):
    return json.loads(run("show", session, "--json").stdout)["checkpoint_id"]


def tags(run):
    return {one["name"]: one["checkpoint_id"] for one in json.loads(run("tag", "--json").stdout)["tags"]}


class TestOpLog:
    def test_lists_what_was_done(self, run, points):
        assert run("op", "log").stderr == "no operations here yet\n"
        run("tag", "good", points[0])
        run("rollback", "s", points[1], "--yes")
        listed = run("op", "log").stdout
        assert "rollback" in listed
        assert "tag 'good'" in listed
        said = json.loads(run("op", "log", "--json").stdout)["operations"]
        assert [one["kind"] for one in said] == ["rollback", "tag"]
        assert said[0]["changes"] == [{"kind": "head", "name": "s", "before": points[2], "after": points[1]}]
        assert set(said[0]) == {
            "operation_id", "short_id", "kind", "at", "by", "session_id", "of", "is_undone", "can_be_undone", "changes",
        }  # fmt: skip
        run("undo")
        said = json.loads(run("op", "log", "--json", "-n", "2", "--session", "s").stdout)["operations"]
        assert [(one["kind"], one["is_undone"]) for one in said] == [("undo", False), ("rollback", True)]
        assert said[0]["of"] == said[1]["operation_id"]
        assert "rollback (undone)" in run("op", "log").stdout

    def test_without_a_store(self, run):
        assert run("op", "log").exit_code == 3


class TestUndoAndRedo:
    def test_step_through_the_log(self, run, points):
        run("tag", "one", points[0])
        run("pin", points[0], "--note", "why")
        result = run("undo")
        assert result.exit_code == 0, result.stderr
        assert result.stdout == f"undid pin: {points[0][-8:]}: pinned → not pinned\n"
        assert "undo this, too: holdfast undo " in result.stderr
        assert run("undo").stdout == f"undid tag: tag 'one': {points[0][-8:]} → none\n"
        assert tags(run) == {}
        nothing = run("undo")
        assert (nothing.exit_code, nothing.stdout) == (3, "")
        assert "no operation that is not undone already" in nothing.stderr
        assert run("redo").stdout == f"redid tag: tag 'one': none → {points[0][-8:]}\n"
        assert run("redo").stdout == f"redid pin: {points[0][-8:]}: not pinned → pinned\n"
        assert json.loads(run("pin", "--json").stdout)["pins"][0]["note"] == "why"
        nothing = run("redo")
        assert (nothing.exit_code, nothing.stdout) == (3, "")
        assert "nothing to redo" in nothing.stderr

    def test_of_an_unpin_by_the_command_that_is_printed(self, run, points):
        run("pin", points[0], "--note", "why")
        printed = run("pin", "--remove", points[0]).stderr.split("undo: holdfast ")[1].split()
        run(*printed)
        assert json.loads(run("pin", "--json").stdout)["pins"][0]["note"] == "why"

    def test_by_the_command_that_is_printed(self, run, points):
        run("tag", "one", points[0])
        printed = run("undo").stderr.split("undo this, too: holdfast ")[1].split()
        assert run(*printed).stdout.startswith("redid tag")
        assert tags(run) == {"one": points[0]}

    def test_json(self, run, points):
        run("rollback", "s", points[0], "--yes")
        planned = json.loads(run("undo", "--dry-run", "--json").stdout)
        assert (planned["dry_run"], planned["operation_id"]) == (True, None)
        assert head(run) == points[0]
        said = json.loads(run("undo", "--json").stdout)
        assert (said["kind"], said["operation"]["kind"], said["left"]) == ("undo", "rollback", [])
        assert said["state"] == {"session_id": "s", "from_id": points[0], "to_id": points[2]}
        assert said["changes"] == [{"kind": "head", "name": "s", "before": points[0], "after": points[2]}]
        assert head(run) == points[2]

    def test_say_which_way_things_went(self, run, points, tmp_path):
        run("rollback", "s", points[0], "--files", "--yes")
        first, last = f"step 0 ({points[0][-8:]})", f"step 2 ({points[2][-8:]})"
        planned = run("undo", "--dry-run").stdout
        undone = run("undo", "--yes").stdout
        assert undone == (
            f"undid rollback: files of {tmp_path}: back to before: 1 replaced; session s: {first} → {last}\n"
        )
        assert planned == undone.replace("undid", "would undo")
        assert f"session s: {last} → {first}" in run("redo", "--yes").stdout

    def test_a_new_operation_ends_what_can_be_redone(self, run, points):
        run("tag", "one", points[0])
        undone = json.loads(run("undo", "--json").stdout)["operation"]["operation_id"]
        run("pin", points[0])
        refused = run("redo")
        assert (refused.exit_code, refused.stdout) == (3, "")
        assert "nothing was undone since the last operation" in refused.stderr
        assert tags(run) == {}
        assert run("redo", undone).exit_code == 0
        assert tags(run) == {"one": points[0]}

    def test_what_was_built_upon_is_a_conflict(self, run, points):
        run("rollback", "s", points[0], "--yes")
        with SyncClient.sqlite(".holdfast/store.db") as client:
            client.save("a", session_id="s")
        result = run("undo")
        assert (result.exit_code, result.stdout) == (4, "")
        assert "has gone on since" in result.stderr
        assert f"holdfast rollback 's' {points[2][-8:]}" in result.stderr

    def test_an_operation_that_is_not_there(self, run, points):
        assert run("undo", "0" * 8).exit_code == 3
        assert run("undo", "no").exit_code == 2
        assert run("redo", "0" * 8).exit_code == 3

    def test_an_expiry_until_gc(self, run, points):
        run("expire", points[2], "--yes")
        assert head(run) == points[1]
        assert run("undo").exit_code == 0
        assert head(run) == points[2]
        run("redo")
        run("gc")
        result = run("undo")
        assert result.exit_code == 3
        assert "gc" in result.stderr

    def test_files_are_shown_and_asked_about(self, run, points, tmp_path):
        run("restore", points[0], "--yes")
        assert run("undo").exit_code == 2
        assert (tmp_path / "code.py").read_text() == "step 0\n"
        run("undo", "--yes")
        assert (tmp_path / "code.py").read_text() == "step 2\n"
        result = run("redo", "--yes")
        to = f"step 0 ({points[0][-8:]})"
        assert result.stdout == f"redid restore: files of {tmp_path}: again to {to}: 1 replaced\n"
        assert "~  code.py" in result.stderr
        assert (tmp_path / "code.py").read_text() == "step 0\n"

    def test_of_a_directory_that_is_named(self, run, points, tmp_path):
        (tmp_path / "other").mkdir()
        run("restore", points[0], "--yes", "--dir", "other")
        run("tag", "one", points[0])
        assert run("undo").stdout.startswith("undid tag")
        assert run("undo").exit_code == 3  # what was done to another directory than this one is passed by
        assert (tmp_path / "other" / "code.py").read_text() == "step 0\n"
        assert run("undo", "--yes", "--dir", "other").exit_code == 0
        assert list((tmp_path / "other").iterdir()) == []
        assert run("redo", "--yes", "--dir", "other").exit_code == 0
        assert (tmp_path / "other" / "code.py").read_text() == "step 0\n"
        assert run("redo").stdout.startswith("redid tag")


class TestRollback:
    def test_says_what_it_does_and_how_to_undo_it(self, run, points, tmp_path):
        result = run("rollback", "s", "s@-", "--yes")
        assert result.exit_code == 0, result.stderr
        assert result.stdout == f"session s: {points[2][-8:]} → {points[1][-8:]}\n"
        assert head(run) == points[1]
        assert (tmp_path / "code.py").read_text() == "step 2\n"
        printed = result.stderr.split("undo: holdfast ")[1].split()
        assert run(*printed).exit_code == 0
        assert head(run) == points[2]

    def test_with_files(self, run, points, tmp_path):
        result = run("rollback", "s", points[0], "--files", "--yes")
        assert result.stdout == f"session s: {points[2][-8:]} → {points[0][-8:]}; files: 1 replaced\n"
        assert (head(run), (tmp_path / "code.py").read_text()) == (points[0], "step 0\n")
        printed = result.stderr.split("undo: holdfast ")[1].split()
        run(*printed, "--yes")
        assert (head(run), (tmp_path / "code.py").read_text()) == (points[2], "step 2\n")

    def test_needs_yes_in_a_script_and_a_dry_run_does_nothing(self, run, points):
        assert run("rollback", "s", points[0]).exit_code == 2
        dry = run("rollback", "s", points[0], "--dry-run")
        assert dry.exit_code == 0
        assert "nothing was changed: leave out --dry-run" in dry.stderr
        said = json.loads(run("rollback", "s", points[0], "--dry-run", "--json").stdout)
        assert (said["dry_run"], said["from_id"], said["to_id"], said["files"]) == (True, points[2], points[0], None)
        assert head(run) == points[2]

    def test_to_where_it_stands(self, run, points):
        result = run("rollback", "s", "s")
        assert result.stdout == f"session s is at {points[2][-8:]} already\n"
        assert "undo" not in result.stderr

    def test_what_is_not_there(self, run, points):
        assert run("rollback", "nobody", points[0], "--yes").exit_code == 3
        assert run("rollback", "s", "nothing", "--yes").exit_code == 3
        assert run("rollback", "s", points[0], "--force").exit_code == 2


class TestAdopt:
    def test_the_state_of_a_fork(self, run, points):
        with SyncClient.sqlite(".holdfast/store.db") as client:
            client.fork(points[0], session_id="way")
            last = client.save("a", execution_state={"way": 1}, session_id="way")
        assert run("adopt", "way").exit_code == 2
        result = run("adopt", "way", "--yes")
        assert result.exit_code == 0, result.stderr
        adopted = head(run)
        assert result.stdout == f"session s continues at {adopted}\n"
        assert json.loads(run("show", "s", "--state", "--json").stdout) == {"way": 1}
        printed = result.stderr.split("undo: holdfast ")[1].split()
        run(*printed)
        assert head(run) == points[2]
        said = json.loads(run("adopt", "way", "--yes", "--json").stdout)
        assert (said["session_id"], said["fork_id"], said["files"]) == ("s", last, None)
        assert run("adopt", "nobody", "--yes").exit_code == 3

    def test_with_its_files(self, run, points, tmp_path):
        way = tmp_path.parent / f"{tmp_path.name}-way"
        with SyncClient.sqlite(".holdfast/store.db") as client:
            client.workspace(tmp_path).fork(points[0], way, session_id="way")
            (way / "code.py").write_text("better\n")
            client.save("a", execution_state={"way": 1}, session_id="way", workspace=way)
        result = run("adopt", "way", str(way), "--yes")
        assert result.exit_code == 0, result.stderr
        assert (tmp_path / "code.py").read_text() == "better\n"
        printed = result.stderr.split("undo: holdfast ")[1].split()
        assert run(*printed, "--yes").exit_code == 0
        assert (head(run), (tmp_path / "code.py").read_text()) == (points[2], "step 2\n")
