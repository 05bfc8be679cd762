"""expire, gc, retain, du, pin, tag: what they remove, what they keep, and what they print."""

import json

import pytest

from holdfast import SyncClient


@pytest.fixture
def long(tmp_path):
    """Session `long` with ten steps, of which each holds a text of its own."""
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        return [
            client.save(
                agent_id="a", session_id="long", execution_state={"text": f"{i} " * 3000}, step_name=f"step-{i}"
            )
            for i in range(10)
        ]


def ids_in(run, session="long"):
    return [
        one["checkpoint_id"] for one in json.loads(run("timeline", session, "-n", "0", "--json").stdout)["checkpoints"]
    ]


class TestExpire:
    def test_shows_what_it_will_do_and_how_to_undo_it(self, run, long):
        result = run("expire", long[3][-8:], long[4], "--yes")
        assert result.exit_code == 0
        assert result.stdout == f"expired {long[3]}\nexpired {long[4]}\n"
        assert "step 3 step-3" in result.stderr
        assert f"holdfast expire --undo {long[3][-8:]} {long[4][-8:]}" in result.stderr
        assert run("show", long[3]).exit_code == 3

    def test_can_be_undone(self, run, long):
        run("expire", long[3], "--yes")
        assert json.loads(run("expire", "--undo", long[3], "--json").stdout) == {"restored": [long[3]]}
        assert run("show", long[3]).exit_code == 0
        run("expire", long[3], "--yes")
        run("gc")
        assert run("expire", "--undo", long[3]).exit_code == 3

    def test_in_a_script_it_needs_yes(self, run, long):
        result = run("expire", long[3])
        assert (result.exit_code, result.stdout) == (2, "")
        assert "--yes" in result.stderr
        assert run("show", long[3]).exit_code == 0

    def test_of_a_session_is_of_its_head(self, run, long):
        result = run("expire", "long", "--yes", "--json")
        assert json.loads(result.stdout) == {"expired": [long[-1]]}
        assert "head of long" in result.stderr
        assert ids_in(run)[0] == long[-2]

    def test_if_one_is_kept_none_goes(self, run, long):
        run("pin", long[4])
        run("tag", "good", long[5])
        result = run("expire", long[3], long[4], long[5], "--yes")
        assert (result.exit_code, result.stdout) == (4, "")
        assert f"{long[4]} is pinned" in result.stderr
        assert "'good'" in result.stderr
        assert len(ids_in(run)) == 10

    def test_of_what_is_not_there_does_nothing(self, run, long):
        assert run("expire", long[3], "nobody", "--yes").exit_code == 3
        assert len(ids_in(run)) == 10
        run("expire", long[3], "--yes")
        assert run("expire", long[3], "--yes").exit_code == 3


class TestGc:
    def test_says_what_it_freed(self, run, long):
        run("expire", *long[:5], "--yes")
        said = json.loads(run("gc", "--dry-run", "--json").stdout)
        assert (said["dry_run"], said["store_bytes_after"]) == (True, None)
        done = json.loads(run("gc", "--json").stdout)
        assert done["blobs"] == said["blobs"] == 5
        assert done["bytes_after"] < done["bytes_before"] == said["bytes_before"]
        assert run("verify").exit_code == 0

    def test_in_words(self, run, long):
        run("expire", *long[:5], "--yes")
        dry = run("gc", "--dry-run")
        assert "would remove" in dry.stdout
        assert "--dry-run" in dry.stderr
        assert " before, " in run("gc").stdout


class TestRetain:
    def test_is_a_dry_run_without_yes(self, run, long):
        result = run("retain", "--keep-last", "3")
        assert result.exit_code == 0
        assert "7 checkpoints would go, 3 stay" in result.stdout
        assert "add --yes" in result.stderr
        assert len(ids_in(run)) == 10
        done = run("retain", "--keep-last", "3", "--yes")
        assert "7 checkpoints went, 3 stay" in done.stdout
        assert ids_in(run) == long[:6:-1]

    def test_as_json(self, run, long):
        report = json.loads(run("retain", "--keep-every", "5", "--yes", "--json").stdout)
        assert report["sessions"] == [
            {"session_id": "long", "going": [one for i, one in enumerate(long) if i not in (4, 9)], "kept": 2}
        ]
        assert (report["going"], report["kept"], report["dry_run"], report["fits"]) == (8, 2, False, True)
        assert report["bytes_after"] < report["bytes_before"]

    @pytest.mark.parametrize("duration", ["30d", "2w", "1h", "90m", "60s"])
    def test_what_is_young_stays(self, run, long, duration):
        assert json.loads(run("retain", "--older-than", duration, "--json").stdout)["going"] == 0

    @pytest.mark.parametrize(("size", "goes"), [("500MB", False), ("1GiB", False), ("0.2KB", True), ("100", True)])
    def test_sizes(self, run, long, size, goes):
        report = json.loads(run("retain", "--max-bytes", size, "--json").stdout)
        assert (report["going"] > 0, report["fits"]) == (goes, not goes)
        if goes:
            assert "more than" in run("retain", "--max-bytes", size).stderr

    @pytest.mark.parametrize(
        "args",
        [
            [],
            ["--session", "long"],
            ["--keep-last", "-1"],
            ["--keep-every", "0"],
            ["--older-than", "soon"],
            ["--older-than", "30"],
            ["--older-than", "999999999999999w"],
            ["--max-bytes", "-1"],
            ["--max-bytes", "much"],
        ],
    )
    def test_wrong_usage(self, run, long, args):
        result = run("retain", *args, "--yes")
        assert (result.exit_code, result.stdout) == (2, "")
        assert len(ids_in(run)) == 10

    def test_of_one_session_or_agent(self, run, long, made):
        report = json.loads(run("retain", "--keep-last", "1", "--session", "main", "--json").stdout)
        assert [one["session_id"] for one in report["sessions"]] == ["main"]
        report = json.loads(run("retain", "--keep-last", "1", "--agent", "worker", "--json").stdout)
        assert [one["session_id"] for one in report["sessions"]] == ["main"]


class TestDu:
    def test_shows_sessions_and_kinds(self, run, long, made):
        lines = run("du").stdout.splitlines()
        assert lines[0].split() == ["session", "checkpoints", "alone", "shared", "of", "all"]
        assert {line.split()[0] for line in lines[1:4]} == {"long", "main", "what-if"}
        assert [line.split()[0] for line in lines[5:]] == [
            "kind", "state", "files", "records", "indexes", "garbage", "total",
        ]  # fmt: skip
        assert "100%" in lines[-1]

    def test_as_json(self, run, long, made):
        usage = json.loads(run("du", "--json").stdout)
        kinds = ("record_bytes", "tombstone_bytes", "segment_bytes", "blob_bytes", "row_bytes", "overhead_bytes")
        assert sum(usage[kind] for kind in kinds) == usage["total_bytes"]
        assert sum(usage["parts"].values()) == usage["total_bytes"]
        [alone] = json.loads(run("du", "long", "--json").stdout)["sessions"]
        assert alone in usage["sessions"]
        assert (alone["session_id"], alone["checkpoints"], alone["shared_bytes"]) == ("long", 10, 0)

    def test_of_one_session(self, run, long):
        assert len(run("du", "long").stdout.splitlines()) == 2
        assert run("du", "nobody").exit_code == 3

    def test_says_what_gc_would_free(self, run, long):
        assert "gc" not in run("du").stderr
        run("expire", long[0], "--yes")
        assert "holdfast gc" in run("du").stderr

    def test_of_an_empty_store(self, run, tmp_path):
        SyncClient.sqlite(tmp_path / ".holdfast" / "store.db").close()
        assert run("du").stdout.splitlines()[0].split()[0] == "kind"


class TestPin:
    def test_pins_and_lists(self, run, long):
        result = run("pin", long[3][-8:], "--note", "the good one")
        assert result.stdout == f"pinned {long[3]}\n"
        assert f"holdfast pin --remove {long[3][-8:]}" in result.stderr
        [pin] = json.loads(run("pin", "--json").stdout)["pins"]
        assert (pin["checkpoint_id"], pin["session_id"], pin["note"]) == (long[3], "long", "the good one")
        assert "the good one" in run("pin").stdout
        assert json.loads(run("pin", "--remove", long[3], "--json").stdout)["removed"] is True
        assert run("pin", "--remove", long[3]).stdout == f"{long[3]} was not pinned\n"
        assert "nothing is pinned" in run("pin").stderr

    @pytest.mark.parametrize("args", [["--remove"], ["--note", "x"], ["long", "--remove", "--note", "x"]])
    def test_wrong_usage(self, run, long, args):
        assert run("pin", *args).exit_code == 2

    def test_of_what_is_not_there(self, run, long):
        assert run("pin", "nobody").exit_code == 3
        run("expire", long[3], "--yes")
        assert run("pin", long[3]).exit_code == 3


class TestTag:
    def test_is_taken_wherever_an_id_is(self, run, long):
        result = run("tag", "good", long[3][-8:])
        assert result.stdout == f"tagged {long[3]}\n"
        assert "holdfast tag --delete 'good'" in result.stderr
        assert json.loads(run("show", "good", "--json").stdout)["checkpoint_id"] == long[3]
        run("pin", "good")
        assert json.loads(run("pin", "--json").stdout)["pins"][0]["checkpoint_id"] == long[3]
        run("tag", "also", "good")
        tags = json.loads(run("tag", "--json").stdout)["tags"]
        assert [(one["name"], one["checkpoint_id"]) for one in tags] == [("also", long[3]), ("good", long[3])]
        assert "good" in run("tag").stdout

    def test_moves_only_when_told_to(self, run, long):
        run("tag", "good", long[3])
        result = run("tag", "good", long[4])
        assert result.exit_code == 4
        assert long[3] in result.stderr
        moved = run("tag", "good", long[4], "--force")
        assert f"undo: holdfast tag --force 'good' {long[3][-8:]}" in moved.stderr
        assert json.loads(run("tag", "--json").stdout)["tags"][0]["checkpoint_id"] == long[4]

    def test_is_deleted(self, run, long):
        run("tag", "good", long[3])
        result = run("tag", "--delete", "good")
        assert result.stdout == "removed the tag 'good'\n"
        assert f"undo: holdfast tag 'good' {long[3][-8:]}" in result.stderr
        assert run("tag", "--delete", "good").exit_code == 3
        assert "no tags" in run("tag").stderr

    def test_that_is_also_a_session_elsewhere_is_not_guessed(self, run, long):
        run("tag", "long", long[3])
        result = run("show", "long")
        assert result.exit_code == 2
        assert long[3] in result.stderr
        assert long[-1] in result.stderr
        run("tag", "long", long[-1], "--force")
        assert run("show", "long").exit_code == 0

    @pytest.mark.parametrize("args", [["good"], ["--delete"], ["--delete", "good", "long"], ["deadbeef", "long"]])
    def test_wrong_usage(self, run, long, args):
        assert run("tag", *args).exit_code == 2
        assert json.loads(run("tag", "--json").stdout)["tags"] == []


def test_names_with_escape_sequences_are_printed_safely(run, tmp_path):
    name = "\x1b[31mred\x1b[0m"
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        saved = client.save(agent_id="a", session_id=name, step_name=name)
        client.save(agent_id="a", session_id=name)
        client.pin(saved, note=name)
        client.tag(name, saved)
    for args in (["pin"], ["tag"], ["du"], ["retain", "--keep-last", "0"], ["expire", saved], ["expire", name]):
        result = run(*args)
        assert "\x1b" not in result.stdout + result.stderr, args
