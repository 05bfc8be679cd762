"""An agent loop that is killed at every point of a turn goes on, and pays once."""

from __future__ import annotations

import pytest
from stores import python

# The process ends without a word at the nth of its moments.
MOMENT = """
    import os, sys
    fatal = int(sys.argv[3])
    moments = 0

    def moment():
        global moments
        moments += 1
        if moments == fatal:
            os._exit(9)
"""
# Around the model, inside and around the payment.
LIFE = (
    MOMENT
    + """
    from pathlib import Path
    from holdfast import NOT_DONE, Done, SyncClient, SyncFileCheckpoints, agent, tool
    url, world, kind = sys.argv[1], Path(sys.argv[2]), sys.argv[4]
    def write(line):
        with world.open("a") as file:
            file.write(line + "\\n")

    def find(to, amount, idempotency_key):
        return Done({"paid": amount}) if world.exists() and idempotency_key in world.read_text() else NOT_DONE

    @tool(kind=kind.removesuffix("+probe"), identity=("to", "amount"), probe=find if "probe" in kind else None)
    def pay(to: str, amount: int, idempotency_key: str = "") -> dict:
        moment()
        write(f"paid {to} {amount} {idempotency_key}")
        moment()
        return {"paid": amount}

    @tool(kind="read")
    def look(what: str) -> str:
        moment()
        return what + " is 7"

    def call(id_, name, arguments):
        return {"role": "assistant", "tool_calls": [
            {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}]}

    def model(messages, tools):
        moment()
        answers = [message["content"] for message in messages if message["role"] == "tool"]
        replies = [call("c0", "look", '{"what": "x"}'), call("c1", "pay", '{"to": "bob", "amount": 5}'),
                   call("c2", "look", '{"what": "y"}'), "the end: " + " / ".join(answers)]
        reply = replies[len(answers)]
        moment()
        return reply

    checkpoints = SyncFileCheckpoints(url) if "://" not in url else SyncClient.open(url)
    bot = agent(model=model, tools=[pay, look], checkpoints=checkpoints, session_id="s")
    turn = bot.generate("go" if bot.load() is None else None)
    print(turn.text)
    print(turn.state.step, [message["role"][0] for message in turn.state.messages])
"""
)
MOMENTS = 12


@pytest.mark.slow
def test_killed_at_every_moment_it_goes_on_and_pays_at_most_once(disk_store, tmp_path):
    killed_at_every_moment(disk_store, tmp_path, "irreversible")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["irreversible+probe", "idempotent"])
def test_what_can_be_asked_for_or_repeated_is_paid_for_certain(sqlite_store, tmp_path, kind):
    killed_at_every_moment(sqlite_store, tmp_path, kind)


def killed_at_every_moment(store, tmp_path, kind):
    whole = 0
    for fatal in range(1, MOMENTS + 1):
        url, world = store.url + f"-{fatal}", tmp_path / f"world-{fatal}"
        first = python(LIFE, url, str(world), str(fatal), kind, check=False)
        if first.returncode == 0:
            whole += 1
            continue
        assert first.returncode == 9, first.stderr
        second = python(LIFE, url, str(world), "0", kind)
        text, shape = second.stdout.splitlines()
        paid = world.read_text().splitlines() if world.exists() else []
        keys = {line.split()[-1] for line in paid}
        if kind == "irreversible":
            assert len(paid) <= 1
            is_told = "It is unknown" in text
            assert is_told or (len(paid) == 1 and '{"paid": 5}' in text)
        elif kind == "irreversible+probe":
            assert len(paid) == 1
            assert '{"paid": 5}' in text
        else:
            assert '{"paid": 5}' in text
            assert len(keys) == 1  # repeated, if at all, under the same key: the other side can tell
        assert shape == "4 ['u', 'a', 't', 'a', 't', 'a', 't', 'a']"
    assert whole < MOMENTS - 8


@pytest.mark.slow
def test_a_plain_store_never_pays_twice_either(tmp_path):
    for fatal in (5, 6, 7, 8):  # before, in and after the payment
        where, world = str(tmp_path / f"kept-{fatal}"), tmp_path / f"world-{fatal}"
        assert python(LIFE, where, str(world), str(fatal), "irreversible", check=False).returncode == 9
        text, _ = python(LIFE, where, str(world), "0", "irreversible").stdout.splitlines()
        paid = world.read_text().splitlines() if world.exists() else []
        assert len(paid) <= 1
        assert "It is unknown" in text or paid


# A coding agent, and moments after an answer of the model, around a file that is put in its place,
# and around a command.
CODING = (
    MOMENT
    + """
    import json
    from holdfast import SyncClient, agent
    from holdfast.agent_loop import coding_tools
    from holdfast.tools import bash, edit_file, read_file, write_file
    url, project = sys.argv[1:3]
    def between_moments(fn):
        def called(*args, **kwargs):
            moment()
            result = fn(*args, **kwargs)
            moment()
            return result

        return called

    os.rename = between_moments(os.rename)
    coding_tools.run_command = between_moments(coding_tools.run_command)
    WORK = [
        ("write_file", {"path": "src/a.py", "text": "x = 1\\n"}),
        ("edit_file", {"path": "src/a.py", "old": "x = 1", "new": "x = 1\\ny = 2"}),
        ("bash", {"command": "echo made >> log"}),
        ("edit_file", {"path": "src/a.py", "old": "x = 1\\n", "new": ""}),
        ("read_file", {"path": "src/a.py"}),
    ]

    def model(messages, tools):
        answers = [message["content"] for message in messages if message["role"] == "tool"]
        reply = "the end: " + " / ".join(answers)
        if len(answers) < len(WORK):
            name, arguments = WORK[len(answers)]
            function = {"name": name, "arguments": json.dumps(arguments)}
            calls = [{"id": f"c{len(answers)}", "type": "function", "function": function}]
            reply = {"role": "assistant", "tool_calls": calls}
        moment()
        return reply

    tools = [bash, read_file, write_file, edit_file]
    with SyncClient.open(url) as client:
        bot = agent(model=model, tools=tools, checkpoints=client, session_id="s", workspace=project)
        turn, state = bot.generate("go" if bot.load() is None else None)
    print(repr(turn.text))
"""
)


@pytest.mark.slow
def test_a_coding_agent_that_is_killed_at_every_moment_goes_on_and_edits_once(sqlite_store, tmp_path):
    whole = fatal = in_doubt = 0
    while not whole:
        fatal += 1
        url, project = sqlite_store.url + f"-coding-{fatal}", tmp_path / f"project-{fatal}"
        project.mkdir()
        first = python(CODING, url, str(project), str(fatal), check=False)
        assert first.returncode in (0, 9), first.stderr
        whole += first.returncode == 0
        second = python(CODING, url, str(project), "0")
        assert (project / "src" / "a.py").read_text() == "y = 2\n"
        made = (project / "log").read_text() if (project / "log").exists() else ""
        is_told = "It is unknown" in second.stdout
        assert made == "made\n" or (is_told and not made)
        in_doubt += is_told
        assert "the end: wrote 6 bytes to src/a.py / " in second.stdout
        assert "y = 2" in second.stdout
        assert "not carried out" not in second.stdout
    assert fatal > 13  # six answers of the model, three files, a command
    assert in_doubt == 2  # before the command and after it
