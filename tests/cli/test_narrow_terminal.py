"""What lists prints names and ids whole on 80 columns: each can be pasted into the next command."""

import os

import pytest

from holdfast import SyncClient
from holdfast.cli.terminal.sanitize import measure_width

if os.name != "posix":
    pytest.skip("needs a pseudo-terminal", allow_module_level=True)

from terminal import on_a_terminal

pytestmark = pytest.mark.slow  # processes on terminals

NAMES = {
    "long": "s" * 199 + "e",
    "wide": "日本語のセッション" * 22,
    "of 41": "nightly-invoices-2026-11-17-customer-00041",
    "uuid": "01a1ecc7-fec6-7000-a693-f4a682347009",
    "words": "a session, with spaces and 'quotes'",
}


def dies(**_: object) -> None:
    raise KeyboardInterrupt


@pytest.fixture(scope="module", params=NAMES.values(), ids=NAMES)
def listed(request, tmp_path_factory):
    """A store in which everything that is listed is of one session with that name; the directory, and the name."""
    name = request.param
    root = tmp_path_factory.mktemp("listed")
    with SyncClient.sqlite(root / ".holdfast" / "store.db") as client:
        first = client.save(f"agent of {name}"[:200], session_id=name, step_name="a step with a name that says a lot")
        client.save("w", session_id="other")
        for _ in range(2):
            client.save("w", session_id=name)  # for `retain`, which lists what loses something
        client.handoff(first, target_agent_id="reader")
        client.tag(f"tag {name}"[:200], first)
        client.pin(first, note="a note that says a lot, and goes on for longer than that")
        client.request_approval(
            name, "pay", {"to": "somebody with a name that goes on"}, approvers="the people who may"
        )
        with pytest.raises(KeyboardInterrupt), client.run(name, agent_id="b") as run:
            run.effect("pay", dies, to="somebody with a name that goes on")
    return root, name


LISTS = {
    "sessions": "session",
    "runs": "session",
    "timeline other": None,
    "timeline {name}": None,
    "timeline {name} --graph": "session",  # as a tree
    "inbox reader": "session",
    "approvals": "session",
    "effects": "session",
    "tag": "tag",
    "pin": "session",
    "op log": None,
    "events --after start --no-follow": "session",
    "du": "session",
    "retain --keep-last 1": "session",
}


@pytest.mark.parametrize("command", LISTS)
def test_names_and_ids_are_whole_on_80_columns(listed, command):
    root, name = listed
    words = [word.format(name=name) for word in command.split()]
    shown = on_a_terminal(*words, cwd=root, COLUMNS="80", LINES="500", NO_COLOR="1").replace("\r\n", "\n")
    if LISTS[command] == "session":
        assert name in shown
    elif LISTS[command] == "tag":
        assert f"tag {name}"[:200] in shown
    for line in shown.splitlines():
        if "…" in line:
            assert name[:20] not in line
    with SyncClient.sqlite(root / ".holdfast" / "store.db") as client:
        found = [word.strip(":,") for word in shown.split() if len(word.strip(":,")) in (8, 36)]
        ids = [word for word in found if all(letter in "0123456789abcdef-" for letter in word) and "-" not in word[:8]]
        listed_ids = {one.short_id for one in (*client.operations(), *client.effects(), *client.approvals())}
        for id_ in ids:
            if id_ != name and id_ not in listed_ids:
                client.get(client.resolve(id_))
    if command.split()[0] not in ("runs", "du", "retain"):
        assert ids


@pytest.mark.parametrize(
    "command", ["sessions", "runs", "inbox reader", "approvals", "effects", "pin", "tag", "op log"]
)
def test_only_a_name_that_stands_on_its_own_line_is_wider_than_80_columns(listed, command):
    root, name = listed
    shown = on_a_terminal(*command.split(), cwd=root, COLUMNS="80", LINES="500", NO_COLOR="1").splitlines()
    for line in shown:
        assert measure_width(line) <= 80 or line.startswith((name, f"tag {name}"[:200], "  "))


def test_agents_are_whole(listed):
    root, name = listed
    agent = f"agent of {name}"[:200]
    for command in (["timeline", name], ["events", "--after", "start", "--no-follow"]):
        assert agent in on_a_terminal(*command, cwd=root, COLUMNS="80", LINES="500", NO_COLOR="1")
