"""Every command that takes a checkpoint takes each way to name one."""

import json
import shutil
from pathlib import Path

import pytest

from holdfast import SyncClient

WAYS = {
    "id": "{id}",
    "end of the id": "{short}",
    "tag": "good",
    "place of a tag": "good@",
    "one up": "s@-",
    "so many up": "s@~1",
    "so many up from the last session": "@~1",
    "one up from the last session": "@-",
    "step": "s@{{1}}",
    "name of a step": "s@{{plan}}",
    "date": "s@{{{at}}}",
}
# A command, and where its output names the checkpoint that was meant.
COMMANDS = {
    "show {ref}": lambda said: said["checkpoint_id"],
    "diff {ref} {ref}": lambda said: MEANT if not said["edits"] and not said["changes"] else "other ones",
    "restore {ref} --dry-run": lambda said: said["target_id"],
    "rewind {ref} --dry-run": lambda said: said["target_id"],
    "rollback s {ref} --dry-run": lambda said: said["to_id"],
    "fork {ref} --name way": lambda said: PARENT_OF + said["checkpoint_id"],
    "handoff {ref} bob": lambda said: said["checkpoint"]["parent_id"],
    "tag other {ref}": lambda said: said["checkpoint_id"],
    "pin {ref}": lambda said: said["checkpoint_id"],
    "expire {ref} --yes": lambda said: said["expired"][0],
}
MEANT, PARENT_OF = "the one that is meant", "parent of "


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    """The second of three checkpoints of session `s`, each with files; and the directory with all of it."""
    root = tmp_path_factory.mktemp("project")
    with SyncClient.sqlite(root / ".holdfast" / "store.db") as client:
        points = []
        for step, name in enumerate(("read", "plan", "write")):
            (root / "code").write_text(str(step))
            points.append(client.save("a", session_id="s", execution_state={"n": step}, step_name=name, workspace=root))
        client.tag("good", points[1])
        at = client.get(points[1]).created_at.isoformat()[:26]
    return root, {"id": points[1], "short": points[1][-8:], "at": at}


@pytest.fixture
def anew(made_once, tmp_path, monkeypatch):
    """Goes to a copy of it: commands may change what the next one would mean."""
    root, _ = made_once

    def copy(name):
        shutil.copytree(root, tmp_path / name)
        monkeypatch.chdir(tmp_path / name)

    return copy


@pytest.mark.parametrize("command", COMMANDS)
def test_each_way_is_taken(run, made_once, anew, command):
    _, meant = made_once
    for way, template in WAYS.items():
        anew(way)
        if command.startswith("expire"):
            if template.startswith("good"):
                continue  # what is tagged is not expired
            run("tag", "--delete", "good")
        ref = template.format(**meant)
        result = run(*(word.format(ref=ref) for word in command.split()), "--json")
        assert result.exit_code == 0, f"{way} ({ref}): {result.stderr}"
        named = COMMANDS[command](json.loads(result.stdout))
        if named.startswith(PARENT_OF):
            named = json.loads(run("show", named.removeprefix(PARENT_OF), "--json").stdout)["parent_id"]
        assert named in (meant["id"], MEANT), f"{way} ({ref})"


def test_a_head_that_is_expected_is_named_in_each_way(run, made_once, anew):
    _, meant = made_once
    anew("here")
    Path("state.json").write_text("{}")
    for template in WAYS.values():
        result = run("save", "s", "state.json", "--expect-head", template.format(**meant))
        assert result.exit_code == 4, result.stderr  # it stands at the one after: so it was found
