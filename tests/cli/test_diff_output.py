"""Output of diff, compare and show: unknown classes, segments of elements, sessions of many steps."""

import json
from dataclasses import dataclass, replace
from fractions import Fraction

import pydantic
import pytest

from holdfast import SyncClient
from holdfast.codec.registry import TypeRegistry


@dataclass(frozen=True)
class Address:
    city: str


@dataclass(frozen=True)
class User:
    name: str
    address: Address


class Cart(pydantic.BaseModel):
    items: list[str] = []


ADA = User("Ada", Address("London"))


@pytest.fixture
def store_path(tmp_path):
    return tmp_path / ".holdfast" / "store.db"


@pytest.fixture
def users(store_path):
    """Two checkpoints with objects of classes that only this client knows, and a fork of the first."""
    types = TypeRegistry()
    types.register(User)
    types.register(Cart)
    with SyncClient.sqlite(store_path, types=types) as client:
        first = client.save("a", session_id="s", execution_state={"user": ADA, "cart": Cart()})
        client.fork(first, session_id="fork")
        moved = replace(ADA, address=Address("Paris"))
        client.save("a", session_id="s", execution_state={"user": moved, "cart": Cart(items=["pen"])})


def test_diff_looks_into_objects_of_unknown_classes(run, users):
    assert run("diff", "s@-", "s").stdout.split("\n") == [
        "+ execution_state.cart.items[0]: 'pen'",
        "~ execution_state.user.address.city: 'London' → 'Paris'",
        "",
    ]
    edits = json.loads(run("diff", "s@-", "s", "--json").stdout)["edits"]
    assert {
        "kind": "change", "path": ["execution_state", "user", "address", "city"], "old": "London", "new": "Paris"
    } in edits  # fmt: skip
    assert "~ execution_state.user.address.city: 'Paris' → 'London'" in run("compare", "s", "fork").stdout


def test_show_looks_into_objects_of_unknown_classes(run, users):
    shown = [line.split() for line in run("show", "s").stdout.split("\n")]
    assert ["city", "'Paris'"] in shown
    assert ["items", "list", "of", "1"] in shown
    assert json.loads(run("show", "s", "--path", "user.address.city").stdout) == "Paris"


def test_a_run_of_removed_elements_is_one_line(run, store_path):
    numbers = [{"role": "user", "content": f"{number}"} for number in range(40)]
    with SyncClient.sqlite(store_path) as client:
        client.save("a", session_id="s", execution_state={"m": numbers})
        client.save("a", session_id="s", execution_state={"m": numbers[:3] + numbers[18:]})
    [line] = run("diff", "s@-", "s").stdout.splitlines()
    assert line.startswith("- execution_state.m[3..17] removed (15 elements): {'role': 'user', 'content': '3'} · ")
    [edit] = json.loads(run("diff", "s@-", "s", "--json").stdout)["edits"]
    assert (edit["kind"], edit["at"], len(edit["old"]), edit["new"]) == ("splice", 3, 15, [])


@pytest.fixture
def long_sessions(store_path):
    """Two sessions of 300 steps each, which parted after the first five."""
    with SyncClient.sqlite(store_path, durability="fast") as client:
        state = {"messages": [], "plan": "?"}

        def step(session, number):
            state["messages"].append({"role": "assistant", "content": f"{session} says {number} " + "words " * 20})
            name = ("think", "search", "edit")[number % 3]
            return client.save("a", session_id=session, execution_state=state, step_name=name, cost=1)

        for number in range(5):
            parted = step("one", number)
        client.fork(parted, session_id="two")
        before = state["messages"][:]
        for session in ("one", "two"):
            state["messages"], state["plan"] = before[:], session
            for number in range(5, 305):
                step(session, number)
    return parted


def test_compare_of_long_sessions_fits_on_a_page(run, long_sessions):
    result = run("compare", "one", "two")
    lines = result.stdout.splitlines()
    assert len(lines) < 50
    assert f"diverged after {long_sessions[-8:]} (step 4 search)" in result.stderr
    assert "--all" in result.stderr
    cells = [line.split() for line in lines]
    assert ["steps", "since", "300", "300"] in cells
    assert ["think", "100", "100"] in cells
    assert ["1", "5", "edit", "5", "edit"] in cells
    assert ["300", "304", "search", "304", "search"] in cells
    assert ["…", "288", "more"] in cells
    assert ["execution_state.messages", "+300", "+300", "~300"] in cells
    assert "~ execution_state.plan: 'one' → 'two'" in lines  # beside the first of the 300 messages
    assert "… and 297 more" in lines


def test_compare_all_shows_everything(run, long_sessions):
    result = run("compare", "one", "two", "--all")
    assert sum(line.startswith("~ execution_state.messages[") for line in result.stdout.splitlines()) == 300
    assert "\n150 " in result.stdout
    assert "--all" not in result.stderr
    assert run("compare", "one", "two", "--all", "--stat").exit_code == 2


def test_compare_stat(run, long_sessions):
    lines = run("compare", "one", "two", "--stat").stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["path", "one", "since", "two", "since", "between", "them"],
        ["execution_state.messages", "+300", "+300", "~300"],
        ["execution_state.plan", "~1", "~1", "~1"],
    ]
    found = json.loads(run("compare", "one", "two", "--stat", "--json").stdout)
    assert found["ancestor_id"] == long_sessions
    assert (found["a"]["steps"], found["b"]["usage"]) == (300, {"cost": 300})
    assert found["paths"][0] == {
        "path": "execution_state.messages",
        "a": {"added": 300, "removed": 0, "changed": 0},
        "b": {"added": 300, "removed": 0, "changed": 0},
        "between": {"added": 0, "removed": 0, "changed": 300},
    }


def test_compare_of_what_is_the_same(run, store_path):
    with SyncClient.sqlite(store_path) as client:
        client.fork(client.save("a", session_id="one", execution_state={}), session_id="two")
    assert run("compare", "one", "two").exit_code == 0
    assert json.loads(run("compare", "one", "two", "--stat", "--json").stdout)["paths"] == []


@pytest.mark.parametrize(
    "value",
    [1 << 20_000, Fraction(1 << 20_000, 3), {1 << 20_000: 1}, [{"n": -(1 << 20_000)}]],
    ids=["int", "fraction", "key", "list"],
)
@pytest.mark.parametrize("flag", [[], ["--json"]])
def test_numbers_that_python_does_not_write_are_shown_all_the_same(run, tmp_path, value, flag):
    with SyncClient.sqlite(tmp_path / "store.db") as client:
        for state in (0, value):
            client.save("a", session_id="s", execution_state={"v": state}, note=state)
        assert client.restore("s")._repr_html_()
    for command in (["show", "s"], ["diff", "s@-", "s"], ["timeline", "s"]):
        result = run(*command, *flag, "--store", "store.db")
        assert result.exit_code in (0, 1), result.output
        assert result.stdout
        assert "limit" not in result.output
