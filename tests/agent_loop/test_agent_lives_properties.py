"""An agent loop in a world that fails at any moment: whatever happens, nothing irreversible is done
twice, and the conversation ends whole."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stores import Clock

from holdfast import SyncClient, agent, tool
from holdfast.backends.memory import MemoryBackend
from holdfast.errors import StoreError
from holdfast.model.transcript import open_calls

KINDS = ("read", "idempotent", "reversible", "irreversible")
MOST_LIVES = 60


class Failing:
    """A store that fails once: at the nth commit, before or after it was made."""

    def __init__(self, inner):
        self.inner = inner
        self.left = -1
        self.after = False

    def commit_all(self, commits):
        self.left -= 1
        if self.left != 0:
            return self.inner.commit_all(commits)
        if self.after:
            self.inner.commit_all(commits)
        return [StoreError("the disk has gone") for _ in commits]

    def __getattr__(self, name):
        return getattr(self.inner, name)


class World:
    """The tools, what they did, and when the process dies."""

    def __init__(self):
        self.done: list[tuple[str, int]] = []
        self.left = -1

    def moment(self):
        self.left -= 1
        if self.left == 0:
            raise SystemExit("killed")

    def tools(self):
        def made(kind):
            @tool(name=kind, kind=kind, identity=("number",))
            def act(number: int) -> int:
                self.moment()
                self.done.append((kind, number))
                self.moment()
                return number

            return act

        return [made(kind) for kind in KINDS]

    def model(self, wanted):
        """Asks for these calls, message by message, whatever the answers are."""

        def model(messages, tools):
            self.moment()
            said = sum(message["role"] == "assistant" for message in messages)
            return asking(said, wanted[said]) if said < len(wanted) else "the end"

        return model


def asking(turn, calls):
    made = [
        {
            "id": f"call_{index}",  # the same ids come up in every message
            "type": "function",
            "function": {"name": kind, "arguments": json.dumps({"number": 100 * turn + index})},
        }
        for index, kind in enumerate(calls)
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


TROUBLES = ("killed", "store before", "store after")
faults = st.tuples(st.sampled_from(TROUBLES), st.integers(1, 14))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["execute", "error"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_trouble_at_every_moment_of_a_plain_store(kind, policy):
    for trouble in TROUBLES:
        for when in range(1, 11):
            live_through([[kind], [kind]], [(trouble, when)], policy, is_plain=True)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["execute", "error"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_trouble_at_every_moment(kind, policy):
    for trouble in TROUBLES:
        for when in range(1, 11):
            live_through([[kind]], [(trouble, when)], policy)


@given(
    st.lists(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3), max_size=3),
    st.lists(faults, max_size=5),
    st.sampled_from(["execute", "error"]),
)
def test_whatever_happens_the_conversation_ends_whole_and_nothing_is_done_twice(wanted, troubles, policy):
    live_through(wanted, troubles, policy)


def live_through(wanted, troubles, policy, *, is_plain=False):
    memory, world, clock = MemoryBackend(), World(), Clock()
    steps = [0]
    troubles = list(troubles)
    for _ in range(MOST_LIVES):
        backend = Failing(memory)
        client = SyncClient(backend)
        clock.rules(client)
        clock.forward(60)  # the lease of a life that could not give it back is over
        bot = agent(
            model=world.model(wanted),
            tools=world.tools(),
            checkpoints=client.as_store() if is_plain else client,
            session_id="s",
            on_open_call=policy,
        )
        begun = bot.load()
        steps.append(begun.step if begun else 0)
        world.left = -1
        if troubles:
            what, when = troubles.pop(0)
            backend.after = what == "store after"
            if what == "killed":
                world.left = when
            else:
                backend.left = when
        try:
            state = bot.generate("go" if begun is None else None).state
        except (SystemExit, StoreError):
            continue
        break
    else:
        raise AssertionError("it never ends")

    assert open_calls(state.messages) == []
    assert state.text == "the end"
    assert state.step == len(wanted) + 1
    assert sorted(steps) == steps
    roles = [message["role"] for message in state.messages]
    assert roles.count("tool") == sum(map(len, wanted))
    calls = [(kind, 100 * turn + index) for turn, kinds in enumerate(wanted) for index, kind in enumerate(kinds)]
    answers = [message for message in state.messages if message["role"] == "tool"]
    for (kind, number), answer in zip(calls, answers, strict=True):
        times = world.done.count((kind, number))
        finished = answer["metadata"]["fate"] == "finished"
        if kind in ("reversible", "irreversible"):
            assert times <= 1
        if finished:
            assert times >= 1
            assert answer["content"] == str(number)
        if answer["metadata"]["fate"] == "not started":
            assert times == 0 or kind == "read"
