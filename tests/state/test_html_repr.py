"""What a notebook is given: everything escaped, well formed, nothing that runs or loads, and no
more than can be looked at."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import SyncClient

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=y>&amp;"


class Checked(HTMLParser):
    """Reads HTML, and remembers its text, its tags and its attributes. Fails if tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = ""
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self._open.append(tag)
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data


def checked(shown: object) -> Checked:
    page = Checked(shown._repr_html_())  # type: ignore[attr-defined]  # all that are given have one
    assert page.tags <= {"div", "span", "table", "tr", "th", "td", "details", "summary"}
    assert page.attributes <= {"style"}
    return page


@pytest.fixture
def client():
    with SyncClient.memory() as client:
        yield client


def test_everything_that_is_shown_is_escaped(client):
    first = client.save(
        HOSTILE, session_id=HOSTILE, step_name=HOSTILE, execution_state={HOSTILE: [HOSTILE]}, note=HOSTILE
    )
    second = client.save(
        HOSTILE, session_id=HOSTILE, execution_state={HOSTILE: [HOSTILE, "more"]}, context={"k": HOSTILE}
    )
    client.handoff(second, target_agent_id=f"to {HOSTILE}")
    client.fork(first, session_id="<b>")
    for shown in (client.restore(first), client.get(first), client.timeline(session_id=HOSTILE), client.tree(HOSTILE),
                  client.diff(first, second)):  # fmt: skip
        assert "<script>alert(1)</script>" in checked(shown).text


def test_a_checkpoint_shows_its_state_and_one_without_says_nothing_of_it(client):
    id_ = client.save("a", session_id="s", execution_state={"plan": {"steps": ["fly", "walk"]}}, context={"who": "ann"})
    page = checked(client.restore(id_))
    for word in ("plan:", "dict of 1", "steps:", "list of 2", "'walk'", "who:"):
        assert word in page.text
    assert "state:" not in checked(client.get(id_)).text


def test_large_states_are_cut(client):
    deep: object = "bottom"
    for _ in range(50):
        deep = {"below": deep}
    state = {
        "long": list(range(100_000)),
        "text": "x" * 1_000_000,
        "deep": deep,
        "number": 7 << 100_000,
        "raw": b"\0" * 9999,
    }
    id_ = client.save("a", session_id="s", execution_state=state)
    shown = client.restore(id_)._repr_html_()
    assert len(shown) < 100_000
    assert "… and 99900 more" in shown


def test_long_timelines_and_trees_are_cut_and_say_so(client):
    for _ in range(250):
        client.save("a", session_id="s")
    assert "… and 50 more" in checked(client.timeline(session_id="s", limit=None)).text
    assert "… and 50 more" in checked(client.tree("s")).text


def test_a_tree_draws_its_lanes_and_marks_its_heads(client):
    first = client.save("a", session_id="s")
    client.save("a", session_id="s")
    client.fork(first, session_id="t")
    text = checked(client.tree("s")).text
    assert "●─╯" in text
    assert "◀ head of s" in text
    assert "◀ head of t" in text


def test_a_diff_says_with_signs_what_colours_say(client):
    first = client.save("a", session_id="s", execution_state={"x": 1, "gone": 1})
    second = client.save("a", session_id="s", execution_state={"x": 2, "new": 1})
    text = checked(client.diff(first, second)).text
    for line in ("~ execution_state.x: 1 → 2", "- execution_state.gone: 1", "+ execution_state.new: 1"):
        assert line in text


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(), inner, max_size=4),
    max_leaves=20,
)


@given(plain)
def test_any_state_is_shown_whole_and_well_formed(state):
    with SyncClient.memory() as client:
        checked(client.restore(client.save("a", execution_state=state)))


def test_the_module_is_loaded_when_a_notebook_asks():
    from stores import python

    done = python("""
        import sys
        from holdfast import SyncClient
        client = SyncClient.memory()
        shown = client.restore(client.save("a"))
        before = "holdfast.model.html_repr" in sys.modules
        shown._repr_html_()
        print(before, "holdfast.model.html_repr" in sys.modules)
    """)
    assert done.stdout == "False True\n"
