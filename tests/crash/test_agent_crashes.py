"""An agent loop that is killed at every point of a turn goes on, and pays once."""

from __future__ import annotations

import pytest

from support import python

# The process ends without a word at the nth of these moments: around the model, inside and around the payment.
LIFE = """
    import os, sys
    from pathlib import Path
    from holdfast import SyncClient, SyncFileCheckpoints, agent, tool
    url, world, fatal, kind = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    moments = 0

    def moment():
        global moments
        moments += 1
        if moments == fatal:
            os._exit(9)

    def write(line):
        with world.open("a") as file:
            file.write(line + "\\n")

    def find(to, amount, idempotency_key):
        return {"paid": amount} if world.exists() and idempotency_key in world.read_text() else None

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
            is_told = "Nobody knows" in text
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
        assert "Nobody knows" in text or paid
