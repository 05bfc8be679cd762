"""Declared appends: the list is the parent's and the new elements, and only these are written."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

import pytest
from stores import Store, messages

from holdfast import SyncClient, TypeRegistry, UnsupportedValueError, UsageError

pytestmark = pytest.mark.every_store


@dataclass
class Held:
    messages: list


def grown(client: SyncClient, start: int, *, more: int = 3, **rest) -> list:
    """A session that began with `start` messages and was appended to `more` times; the states of all checkpoints."""
    saved = [client.save("a", session_id="s", execution_state={"m": messages(start)} | rest)]
    saved += [client.save("a", session_id="s", execution_state=rest, append={"m": messages(1, start + i)})
              for i in range(more)]  # fmt: skip
    return [client.restore(id_).execution_state for id_ in saved]


@pytest.mark.parametrize("start", [0, 1, 7, 8, 9, 10, 30, 200], ids=lambda n: f"{n} before")
def test_append_to_lists_of_any_length_and_across_the_threshold(client: SyncClient, start: int):
    states = grown(client, start, more=4, other=1)
    assert [len(state["m"]) for state in states] == [start + i for i in range(5)]
    assert states[-1] == {"m": messages(start + 4), "other": 1}


@pytest.mark.parametrize("start", [2, 30])
def test_the_checksum_of_the_content_is_that_of_the_whole_list(store: Store, start: int):
    """The same state, told as a whole and told as an append, is the same content."""
    client = store.client()
    grown(client, start)
    client.save("a", session_id="whole", execution_state={"m": messages(start + 3)})
    told, whole = (client._ctx.backend.backend.session_records(name)[0].data for name in (b"s", b"whole"))
    assert told[-68:-36] == whole[-68:-36]  # the root digest


def test_by_a_client_that_knows_nothing(store: Store):
    for start in (2, 30):
        store.client().save("a", session_id=f"s{start}", execution_state={"m": messages(start)})
        for i in range(3):
            store.client().save("a", session_id=f"s{start}", append={"m": messages(1, start + i)})
        assert store.client().latest(session_id=f"s{start}").execution_state == {"m": messages(start + 3)}


def test_on_the_first_save_a_new_list_is_what_is_appended(client: SyncClient):
    for count in (0, 2, 30):
        saved = client.save("a", execution_state={"x": 1}, append={"+m": messages(count)})
        assert client.restore(saved).execution_state == {"x": 1, "m": messages(count)}


def test_nested_paths_dotted_or_as_tuples(client: SyncClient):
    client.save("a", session_id="s", execution_state={"values": {"messages": messages(20), "n": 1}, "a.b": [1]})
    saved = client.save(
        "a",
        session_id="s",
        execution_state={"values": {"n": 2}},
        append={"values.messages": ["x"], ("a.b",): [2], "+new.list": [3]},
    )
    assert client.restore(saved).execution_state == {
        "values": {"n": 2, "messages": [*messages(20), "x"]},
        "a.b": [1, 2],
        "new": {"list": [3]},
    }


def test_several_lists_at_once(client: SyncClient):
    client.save("a", session_id="s", execution_state={"long": messages(30), "short": [1], "other": messages(20)})
    saved = client.save(
        "a", session_id="s", append={"long": ["x"], "short": [2, 3], "other": messages(9, 20), "+no": []}
    )
    assert client.restore(saved).execution_state == {
        "long": [*messages(30), "x"],
        "short": [1, 2, 3],
        "other": messages(29),
        "no": [],
    }


def test_of_nothing_keeps_the_list(client: SyncClient):
    for start in (3, 30):
        client.save("a", session_id=f"s{start}", execution_state={"m": messages(start)})
        saved = client.save("a", session_id=f"s{start}", append={"m": []})
        assert client.restore(saved).execution_state == {"m": messages(start)}


def test_what_is_not_named_is_not_kept(client: SyncClient):
    """`append` says something about the lists it names; the rest of the state is what was given."""
    client.save("a", session_id="s", execution_state={"m": messages(20), "other": 1, "tools": messages(20)})
    assert client.restore(client.save("a", session_id="s", append={"m": []})).execution_state == {"m": messages(20)}


def test_to_an_explicit_parent(client: SyncClient):
    for start in (3, 30):
        session = f"s{start}"
        root = client.save("a", session_id=session, execution_state={"m": messages(start)})
        client.save("a", session_id=session, append={"m": ["main"]})
        forked = client.save("a", session_id=session, parent_id=root, append={"m": ["fork"]})
        assert client.restore(forked).execution_state == {"m": [*messages(start), "fork"]}


def test_after_an_edit_of_the_parent(client: SyncClient):
    edited = messages(40)
    del edited[5:9]
    edited.insert(20, {"inserted": "x" * 100})
    client.save("a", session_id="s", execution_state={"m": messages(40)})
    client.save("a", session_id="s", execution_state={"m": edited})
    saved = client.save("a", session_id="s", append={"m": ["x", "y"]})
    assert client.restore(saved).execution_state == {"m": [*edited, "x", "y"]}


def test_to_a_head_that_another_writer_moved(store: Store):
    """Both lists have both elements: the append follows the head at commit."""
    for start in (3, 30):
        session = f"s{start}"
        client, recorder = store.recorded()
        other = store.client()
        client.save("a", session_id=session, execution_state={"m": messages(start)})

        def meanwhile(commits, recorder=recorder, other=other, session=session):
            recorder.before_commit = None
            other.save("b", session_id=session, append={"m": ["theirs"]})

        recorder.before_commit = meanwhile
        saved = client.save("a", session_id=session, append={"m": ["mine"]})
        assert client.restore(saved).execution_state == {"m": [*messages(start), "theirs", "mine"]}
        assert client.restore(saved).sequence == 3


def test_by_two_writers_in_turn(store: Store):
    one, two = store.client(), store.client()
    for i in range(60):
        (one, two)[i % 2].save("a", session_id="s", append={"+m": messages(1, i)})
    assert one.latest(session_id="s").execution_state == {"m": messages(60)}
    assert two.verify().ok


def test_when_a_short_list_was_made_long_by_another_writer(store: Store):
    client, recorder = store.recorded()
    other = store.client()
    client.save("a", session_id="s", execution_state={"m": ["first"]})

    def meanwhile(commits):
        recorder.before_commit = None
        other.save("b", session_id="s", append={"m": messages(30)})

    recorder.before_commit = meanwhile
    saved = client.save("a", session_id="s", append={"m": ["last"]})
    assert client.restore(saved).execution_state == {"m": ["first", *messages(30), "last"]}


def test_when_a_long_list_was_made_short_by_another_writer(store: Store):
    client, recorder = store.recorded()
    other = store.client()
    client.save("a", session_id="s", execution_state={"m": messages(30)})

    def meanwhile(commits):
        recorder.before_commit = None
        other.save("b", session_id="s", execution_state={"m": ["summary"]})

    recorder.before_commit = meanwhile
    saved = client.save("a", session_id="s", append={"m": ["last"]}, execution_state={"n": 1})
    assert client.restore(saved).execution_state == {"n": 1, "m": ["summary", "last"]}


def test_elements_may_be_anything_that_can_be_kept(client: SyncClient):
    elements = [(1, 2), {3}, b"4", bytearray(b"5"), {6: "six"}, "\ud800", 2**80, ["nested", ["x" * 5000]]]
    for start in (3, 30):
        client.save("a", session_id=f"s{start}", execution_state={"m": messages(start)})
        restored = client.restore(client.save("a", session_id=f"s{start}", append={"m": elements})).execution_state
        assert restored["m"] == [*messages(start), *elements]
        assert [type(element) for element in restored["m"][start:]] == [type(element) for element in elements]


class TestRefusals:
    def refused(self, client: SyncClient, match: str, **arguments) -> None:
        before = len(client.timeline(session_id="s"))
        with pytest.raises(UsageError, match=match):
            client.save("a", session_id="s", **arguments)
        assert len(client.timeline(session_id="s")) == before

    def test_a_list_that_is_also_in_the_state(self, quick: SyncClient):
        for start in (3, 30):
            quick.save("a", session_id="s", execution_state={"m": messages(start), "v": {"m": [1]}})
            self.refused(
                quick,
                r"execution_state\.m is in execution_state and in append\. Leave it out",
                execution_state={"m": messages(start)},
                append={"m": [1]},
            )
            self.refused(quick, r"execution_state\.v\.m is in", execution_state={"v": {"m": []}}, append={"v.m": [1]})

    def test_something_in_the_parent_that_is_no_list(self, quick: SyncClient):
        for value, kind in ((5, "int"), ((1, 2), "tuple"), ("text" * 2000, "str"), ({}, "dict")):
            quick.save("a", session_id="s", execution_state={"m": value})
            self.refused(quick, f"append to execution_state.m: the parent has a {kind} there", append={"m": [1]})

    def test_a_path_that_leads_through_no_dict(self, quick: SyncClient):
        quick.save("a", session_id="s", execution_state={"m": "text"})
        self.refused(quick, "append to execution_state.m.n: .* str", append={"m.n": [1]})
        quick.save("a", session_id="s")
        self.refused(quick, "'m' is a str, not a dict", execution_state={"m": "text"}, append={"+m.n": [1]})

    @pytest.mark.parametrize(
        ("parent", "path", "where"),
        [
            ({"v": [[1], [2]]}, "v.x", r"list at execution_state\.v,"),
            ({"v": messages(30)}, "v.x", r"list at execution_state\.v,"),
            ({"v": {"w": [1]}}, "v.w.x.y", r"list at execution_state\.v\.w,"),
            ([1, 2], "x", "list at execution_state,"),
            (messages(30), "x", "list at execution_state,"),
        ],
    )
    def test_a_path_that_leads_through_a_list_takes_none_of_its_elements(self, client: SyncClient, parent, path, where):
        first = client.save("a", session_id="s", execution_state=parent)
        self.refused(client, f"append to execution_state.{path}: the parent has a {where}", append={path: [3]})
        assert client.restore(first).execution_state == parent

    @pytest.mark.parametrize("count", [2, 50], ids=["a short list", "a long list"])
    @pytest.mark.parametrize(
        ("around", "path", "where"),
        [
            (lambda held: {"s": held}, "s.messages", r"\.s"),
            (lambda held: {"v": {"s": held}, "rest": "x" * 2000}, "v.s.messages", r"\.v\.s"),
            (lambda held: held, "messages", ""),
        ],
        ids=["in a dict", "deeper, with a large skeleton", "the state itself"],
    )
    @pytest.mark.parametrize("is_remembered", [True, False])
    def test_a_path_into_a_registered_object(self, store: Store, count, around, path, where, is_remembered):
        """It would become a dict."""
        types = TypeRegistry()
        types.register(Held, name="test.Held")
        state = around(Held(messages(count)))
        client = store.client(types=types)
        first = client.save("a", session_id="s", execution_state=state)
        client = client if is_remembered else store.client(types=types)
        kind = "Held" if count == 2 else r"test\.Held"
        error = rf"append to execution_state\.{path}: the parent has a {kind} at execution_state{where}, .*dicts only"
        self.refused(client, error, append={path: ["one"]})
        assert client.restore(first).execution_state == state
        if count == 50:  # a short list is read with all that is around it
            self.refused(store.client(), error, append={path: ["one"]})

    @pytest.mark.parametrize("count", [2, 50])
    def test_a_dict_that_is_of_another_class(self, quick: SyncClient, count: int):
        quick.save("a", session_id="s", execution_state={"m": messages(count)})
        self.refused(quick, "execution_state must be a dict.* not a OrderedDict", execution_state=OrderedDict(x=1),
                     append={"m": ["one"]})  # fmt: skip
        self.refused(quick, "'v' is a OrderedDict, not a dict", execution_state={"v": OrderedDict(x=1)},
                     append={"+v.m": ["one"]})  # fmt: skip

    def test_a_state_that_is_no_dict(self, quick: SyncClient):
        self.refused(quick, "execution_state must be a dict.*not a list", execution_state=[1], append={"+m": [1]})

    def test_appends_that_are_not_lists_of_elements(self, quick: SyncClient):
        self.refused(quick, r"append\['m'\] is a str", append={"m": "text"})
        self.refused(quick, r"append\['m'\] is a dict", append={"m": {}})
        self.refused(quick, "must map paths to lists", append=["m"])
        self.refused(quick, "append path 5 must be", append={5: [1]})
        self.refused(quick, r"append path \(\) must be", append={(): [1]})
        self.refused(quick, "twice", append={"a.b": [1], ("a", "b"): [2]})
        self.refused(quick, "twice", append={"m": [1], "+m": [2]})

    def test_an_element_that_cannot_be_kept_is_named_by_its_place_in_the_whole_list(self, client: SyncClient):
        client.save("a", session_id="s", execution_state={"m": messages(30)})
        with pytest.raises(UnsupportedValueError) as refusal:
            client.save("a", session_id="s", append={"m": ["fine", {"bad": object()}]})
        assert refusal.value.path == "execution_state.m[31].bad"


def test_the_callers_state_and_elements_are_not_changed(quick: SyncClient):
    state, elements = {"v": {"n": 1}}, [1, 2]
    quick.save("a", session_id="s", execution_state=state, append={"+v.m": elements})
    assert (state, elements) == ({"v": {"n": 1}}, [1, 2])


def test_an_async_client_that_knows_nothing_refuses_a_path_into_a_registered_object(store: Store):
    types = TypeRegistry()
    types.register(Held, name="test.Held")
    store.client(types=types).save("a", session_id="s", execution_state={"s": Held(messages(50)), "m": messages(30)})

    async def append(**appends: list) -> str:
        client = store.async_client(types=types)
        return await client.save("a", session_id="s", append=appends or {"s.messages": ["one"]})

    with pytest.raises(UsageError, match=r"the parent has a test\.Held at execution_state\.s"):
        asyncio.run(append())
    saved = asyncio.run(append(m=["one"]))
    assert store.client(types=types).restore(saved).execution_state == {"m": [*messages(30), "one"]}


def test_a_list_that_was_appended_to_is_appended_to_without_another_look(store: Store):
    client, recorder = store.recorded()
    client.save("a", session_id="s", execution_state={"m": messages(20), "rest": "x" * 2000})
    client.save("a", session_id="s", execution_state={"rest": "x" * 2000}, append={"m": messages(1)})
    recorder.forget()
    client.save("a", session_id="s", execution_state={"rest": "x" * 2000}, append={"m": messages(1)})
    assert set(recorder.calls) == {"commit_all"}


NO_LIST = (
    r"append to execution_state\.mesages: the parent has no list there.*append=\{'\+mesages': "
    r"\[\.\.\.\]\}` makes a new list"
)


class TestAListThatTheParentDoesNotHave:
    """A misspelt path would begin a list of its own, and the right one would lose its place."""

    @pytest.mark.parametrize("count", [0, 2, 50])
    @pytest.mark.parametrize("is_remembered", [True, False])
    def test_is_refused(self, store: Store, count: int, is_remembered: bool):
        client = store.client()
        first = client.save("a", session_id="s", execution_state={"messages": messages(count)})
        client = client if is_remembered else store.client()
        with pytest.raises(UsageError, match=NO_LIST):
            client.save("a", session_id="s", append={"mesages": ["x"]})
        with pytest.raises(UsageError, match=NO_LIST):
            client.save("a", session_id="s", append={"messages": ["x"], ("mesages",): ["x"]})
        assert client.latest(session_id="s").checkpoint_id == first

    @pytest.mark.parametrize("count", [0, 50])
    def test_is_refused_when_awaited(self, shared_store: Store, count: int):
        shared_store.client().save("a", session_id="s", execution_state={"messages": messages(count)})

        async def misspell() -> None:
            async with shared_store.async_client() as client:
                for _ in range(2):
                    with pytest.raises(UsageError, match=NO_LIST):
                        await client.save("a", session_id="s", append={"mesages": ["x"]})
                await client.save("a", session_id="s", append={"messages": ["x"], "+mesages": ["y"]})

        asyncio.run(misspell())
        state = shared_store.client().latest(session_id="s").execution_state
        assert state == {"messages": [*messages(count), "x"], "mesages": ["y"]}

    def test_is_refused_on_the_first_save(self, client: SyncClient):
        with pytest.raises(UsageError, match=r"append to execution_state\.m: there is no parent yet.*\{'\+m': "):
            client.save("a", session_id="s", append={"m": [1]})
        assert client.sessions() == []

    def test_is_refused_where_the_parent_asked_for_has_none(self, client: SyncClient):
        root = client.save("a", session_id="s", execution_state={})
        client.save("a", session_id="s", execution_state={"m": [1]})
        with pytest.raises(UsageError, match="the parent has no list there"):
            client.save("a", session_id="s", parent_id=root, append={"m": [2]})

    @pytest.mark.parametrize("path", ["+new", "+deep.er.new"])
    def test_begins_with_a_plus_and_goes_on_with_or_without(self, client: SyncClient, path: str):
        client.save("a", session_id="s", execution_state={"m": [1]})
        for key, elements in ((path, messages(2)), (path, messages(20, 2)), (path[1:], messages(1, 22))):
            saved = client.save("a", session_id="s", append={key: elements})
        found = client.restore(saved).execution_state
        for key in path[1:].split("."):
            found = found[key]
        assert found == messages(23)

    def test_stays_what_it_is_where_its_key_begins_with_a_plus(self, client: SyncClient):
        client.save("a", session_id="s", execution_state={"+m": [1]})
        saved = client.save("a", session_id="s", append={("+m",): [2]})
        assert client.restore(saved).execution_state == {"+m": [1, 2]}

    def test_is_not_made_by_a_repetition(self, client: SyncClient):
        first = client.save("a", session_id="s", append={"+m": [1]})
        assert client.save("a", session_id="s", append={"+m": [1]}, checkpoint_id=first) == first
        assert client.latest(session_id="s").execution_state == {"m": [1]}

    def test_is_found_where_another_writer_has_made_it_meanwhile(self, store: Store):
        client, recorder = store.recorded()
        other = store.client()
        client.save("a", session_id="s", execution_state={})

        def meanwhile(_commits: object) -> None:
            recorder.before_commit = None
            other.save("b", session_id="s", append={"+m": ["theirs"]})

        recorder.before_commit = meanwhile
        saved = client.save("a", session_id="s", append={"+m": ["mine"]})
        assert client.restore(saved).execution_state == {"m": ["theirs", "mine"]}
