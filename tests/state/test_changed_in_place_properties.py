"""Long lists of plain values that the caller changes in place between saves: what is saved is what they were, exactly.

Each save compares such a list with what the process remembers of the save before: nothing may escape that.
"""

from __future__ import annotations

import copy
from typing import Any

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import SyncClient

PADDING = "kelp " * 250  # so that 70 elements are a list that is kept as a log
ELEMENTS = 70

CHANGES = {
    "nothing": lambda e: None,
    "a text": lambda e: e.update(role="another"),
    "an equal number of another type": lambda e: e.update(count=bool(e["count"])),
    "a negative zero": lambda e: e.update(zero=-e["zero"]),
    "a key more": lambda e: e.update({f"k{len(e)}": None}),
    "a key less": lambda e: e.pop(next(reversed(e))) if len(e) > 5 else None,
    "the order of keys": lambda e: e.update(role=e.pop("role", "r")),
    "deep inside a dict": lambda e: e["calls"][0]["args"].update(x=e["calls"][0]["args"]["x"] + 1),
    "deep inside a list": lambda e: e["calls"][0]["args"]["tags"].append("t"),
    "what was empty": lambda e: e["empty"].append(1),
    "what is equal": lambda e: e.update(calls=copy.deepcopy(e["calls"])),
    "all of it": lambda e: (e.clear(), e.update(element(7))),
}


def element(number: int) -> dict[str, Any]:
    return {
        "role": "user",
        "count": number % 2,
        "zero": 0.0,
        "calls": [{"args": {"x": number, "tags": []}}],
        "empty": [],
        "text": PADDING + str(number),
    }


def exactly(value: Any) -> str:
    """Tells what `==` does not: types, signs of zeros, the order of keys."""
    return repr(value)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(sorted(CHANGES)), st.integers(0, ELEMENTS - 1)),
        st.sampled_from(["append", "append two", "made anew", "one made anew", "shorter", "as it is"]),
    ),
    min_size=3,
    max_size=10,
)


@given(STEPS)
@settings(max_examples=examples(60))
def test_what_is_saved_is_what_the_list_was(steps: list[Any]) -> None:
    messages = [element(number) for number in range(ELEMENTS)]
    expected = []
    with SyncClient.memory() as client:

        def save() -> None:
            id_ = client.save(session_id="s", agent_id="a", execution_state={"values": {"messages": messages}})
            expected.append((id_, exactly(messages)))

        for _ in range(3):  # now it is remembered
            save()
        for step in steps:
            if isinstance(step, tuple):
                name, where = step
                CHANGES[name](messages[where % len(messages)])
            elif step.startswith("append"):
                messages += [element(len(messages) + more) for more in range(1 + (step == "append two"))]
            elif step == "made anew":
                messages = copy.deepcopy(messages)
            elif step == "one made anew":
                messages[len(messages) // 2] = copy.deepcopy(messages[len(messages) // 2])
            elif step == "shorter" and len(messages) > ELEMENTS:
                messages.pop()
            save()
        for checkpoint_id, was in expected:
            assert exactly(client.restore(checkpoint_id).execution_state["values"]["messages"]) == was
