"""handoff, inbox, claim, release: as a shell script uses them."""

import json

import pytest

from holdfast import LeaseHeldError, SyncClient
from holdfast.errors import ConflictError


@pytest.fixture
def client(made):
    with SyncClient.sqlite(made.path) as client:
        yield client


def claimed(run, ref, *options):
    result = run("claim", ref, "--agent", "approver", "--json", *options)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_handoff_prints_the_id_and_takes_short_ids_and_sessions(run, made, client):
    for ref in (made.second, made.second[-8:], "what-if"):
        result = run("handoff", ref, "checker", "--schema", "v2")
        assert result.exit_code == 0
        handed = client.get(result.stdout.strip())
        assert (handed.handoff_target, handed.handoff_schema) == ("checker", "v2")
        assert f"holdfast expire {handed.short_id}" in result.stderr
    fields = json.loads(run("handoff", made.second, "checker", "--json").stdout)
    assert fields["checkpoint"]["handoff_target"] == "checker"
    assert fields["handoff_id"] == fields["checkpoint"]["checkpoint_id"]
    assert len(client.inbox("checker")) == 4


def test_inbox_lists_what_waits(run, made, client):
    shown = run("inbox", "approver")
    assert [line.split()[0] for line in shown.stdout.splitlines()] == ["handoff", made.handed[-8:]]
    assert "open" in shown.stdout
    [found] = json.loads(run("inbox", "approver", "--json").stdout)["handoffs"]
    assert (found["handoff_id"], found["session_id"], found["from_agent_id"]) == (made.handed, "main", "worker")
    assert (found["status"], found["by"], found["since"], found["next_id"]) == ("open", None, None, None)
    assert found["checkpoint"]["checkpoint_id"] == made.handed


def test_inbox_of_nobody(run, made):
    result = run("inbox", "nobody")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "nothing waits" in result.stderr


def test_inbox_all_says_what_became_of_them(run, made, client):
    with client.claim(made.handed, "approver", holder="worker 1") as claim:
        assert run("inbox", "approver").stdout == ""
        assert "claimed" in run("inbox", "approver", "--all").stdout
        saved = client.save("approver", lease=claim.lease)
    [found] = json.loads(run("inbox", "approver", "--all", "--json").stdout)["handoffs"]
    assert (found["status"], found["by"], found["next_id"]) == ("taken up", "worker 1", saved)


def test_claim_prints_the_state_and_what_to_do_then(run, made, client):
    result = run("claim", made.handed[-8:], "--agent", "approver", "--holder", "a script", "--seconds", "60")
    assert json.loads(result.stdout)["$type"] == "dict"
    [found] = client.inbox("approver", include_claimed=True)
    assert (found.status, found.by) == ("claimed", "a script")
    assert f"holdfast release {made.handed[-8:]} --token" in result.stderr
    assert f"holdfast handoff {made.handed[-8:]} AGENT --token" in result.stderr


def test_claim_outlives_the_command_that_made_it(run_process, made, client):
    done = run_process("claim", made.handed, "--agent", "approver", "--json")
    assert done.returncode == 0, done.stderr
    with pytest.raises(LeaseHeldError):
        client.claim(made.handed, "approver")
    with pytest.raises(LeaseHeldError):
        client.save("worker", session_id="main")


def test_claim_writes_the_state_to_a_file(run, made, client, tmp_path):
    result = run("claim", made.handed, "--agent", "approver", "--output", str(tmp_path / "state.json"))
    assert (result.exit_code, result.stdout) == (0, "")
    assert json.loads((tmp_path / "state.json").read_text())["$type"] == "dict"


def test_claim_gives_it_back_if_the_file_cannot_be_written(run, made, client, tmp_path):
    result = run("claim", made.handed, "--agent", "approver", "--output", str(tmp_path / "nowhere" / "state.json"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "given back" in result.stderr
    assert [found.status for found in client.inbox("approver")] == ["open"]


def test_claim_as_json(run, made, client):
    client.save("worker", execution_state={"late": True}, session_id="main")
    late = client.latest(session_id="main").checkpoint_id
    found = claimed(run, made.handed, "--seconds", "60")
    assert (found["handoff_id"], found["session_id"], found["moved_from"]) == (made.handed, "main", late)
    assert found["checkpoint"]["agent_context"] == {"invoice": "INV-1"}
    assert isinstance(found["token"], int)
    assert found["expires_at"].endswith("Z")
    assert client.latest(session_id="main").checkpoint_id == made.handed


def test_a_second_claim_exits_with_4_and_prints_nothing(run, made):
    claimed(run, made.handed, "--holder", "the first")
    result = run("claim", made.handed, "--agent", "approver", "--json")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "the first" in result.stderr


def test_claim_by_the_wrong_agent_and_of_no_handoff(run, made):
    assert run("claim", made.handed, "--agent", "worker").exit_code == 2
    assert run("claim", made.first, "--agent", "worker").exit_code == 2
    assert run("claim", "00000000", "--agent", "approver").exit_code == 3


def test_a_script_gives_back(run, made, client):
    token = str(claimed(run, made.handed)["token"])
    for wrong in (["release", "main", "--token", "1"], ["handoff", made.handed, "checker", "--token", "1"]):
        assert run(*wrong).exit_code == 4
    assert run("handoff", made.handed, "checker").exit_code == 4  # without a token
    assert json.loads(run("release", made.handed, "--token", token, "--json").stdout)["released"] is True
    again = run("release", made.handed, "--token", token)
    assert (again.exit_code, again.stdout) == (4, "")
    assert [found.status for found in client.inbox("approver")] == ["open"]


def test_a_script_hands_on(run, made, client):
    token = str(claimed(run, made.handed)["token"])
    onward = run("handoff", made.handed, "checker", "--token", token).stdout.strip()
    assert [found.handoff_id for found in client.inbox("checker")] == [onward]
    with pytest.raises(ConflictError, match="handed on"):
        client.claim(made.handed, "approver")


def test_the_graph_says_what_became_of_a_handoff(run, made, client):
    with client.claim(made.handed, "approver", holder="worker 1") as claim:
        assert "for approver: claimed by worker 1" in run("timeline", "main", "--graph").stdout
        client.save("approver", lease=claim.lease)
    lines = run("timeline", "main", "--graph").stdout.splitlines()
    [line] = [line for line in lines if made.handed[-8:] in line]
    assert line.endswith("for approver: taken up by worker 1")
    [found] = json.loads(run("timeline", "main", "--graph", "--json").stdout)["handoffs"]
    assert (found["handoff_id"], found["status"]) == (made.handed, "taken up")
