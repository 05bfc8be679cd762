"""Long names, texts from right to left, keys that are no text, long conversations: drawn whole, and in their place."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from urllib.parse import quote, unquote

import pytest
from browser_fixtures import NARROW, WIDE, Desk, serve_store
from test_browser_screens import FIND_OVERLAPS
from web_story import WebStory

from holdfast import SyncClient

pytestmark = [pytest.mark.slow, pytest.mark.browser]

LONG = "conversation-" + "0123456789abcdef" * 8
RTL = "شركة الشحن — فاتورة ٤٢"
FIND_HIDDEN_ENDS = """() => [...document.querySelectorAll('.chip, .cell, .clip, h2')]
    .filter((node) => node.scrollWidth > node.clientWidth + 1 && node.clientWidth > 0
        && !(getComputedStyle(node).textOverflow === 'ellipsis' && getComputedStyle(node).display !== 'flex'
            && getComputedStyle(node).display !== 'inline-flex'))
    .map((node) => node.outerHTML.slice(0, 160))
"""  # texts that end in the middle of a letter, without an ellipsis
FIND_WIDE_BOXES = """[...document.querySelectorAll('main, .head, .toolbar, aside, .card')]
    .map((node) => node.scrollWidth - node.clientWidth)"""


@pytest.fixture(scope="module")
def odd_story(tmp_path_factory: pytest.TempPathFactory) -> WebStory:
    where = tmp_path_factory.mktemp("odd")
    (where / "work").mkdir()
    path = where / "store.db"
    ids = {}
    with SyncClient.sqlite(path, durability="fast") as client:
        for name in (LONG, RTL):
            state: dict[Any, Any] = {"text": RTL * 20, "key_" * 40: "v" * 3000, 7: {"n": 0}, "none": {}, "no": []}
            for number in range(3):
                state[7]["n"] = number
                id_ = client.save(
                    agent_id=LONG, session_id=name, step_name=f"step {LONG}", execution_state=state, app_version="1"
                )
            client.tag(f"tag {name}", id_)
            client.handoff(id_, target_agent_id=f"to {LONG}")
            client.request_approval(
                name, LONG, {"amount": Decimal("9.5"), "text": "word " * 400}, summary=LONG, approvers=LONG
            )
            client.publish(name, {LONG: RTL}, key=LONG, agent_id=LONG)
            ids[name] = id_
        ids["first"] = client.save(agent_id="a", session_id="forks", execution_state={"n": 0})
        for number in range(15):
            client.fork(ids["first"], f"fork {number}")
        messages = [{"role": ("user", "assistant")[n % 2], "content": f"line {n}."} for n in range(150)]
        client.save(agent_id="a", session_id="talk", execution_state={"messages": messages})
    return WebStory(path, where / "work", ids)


@pytest.fixture(scope="module")
def odd_site(chromium: Any, odd_story: WebStory) -> Any:
    with serve_store(odd_story) as site:
        yield site


@pytest.mark.parametrize("size", [NARROW, (800, 780), WIDE], ids=["narrow", "middle", "wide"])
def test_long_names_break_no_screen(chromium: Any, odd_site: Any, odd_story: WebStory, size: tuple[int, int]):
    desk = Desk(chromium, odd_site, size=size)
    name, other = (quote(f'"{one}"', safe="") for one in (LONG, RTL))
    id_ = odd_story.ids[LONG]
    checkpoint = [f"/c/{id_}{part}" for part in ("", "/talk", "/files", "/tasks", "/ledger", "/meta")]
    lists = ["/", "/runs", "/approvals", "/inbox", "/effects", "/topics", "/storage", "/log", f"/topics/{name}"]
    for path in (*lists, *checkpoint, f"/s/{name}", f"/s/{other}", "/s/forks", f"/diff/{id_}",
                 f"/compare/{name}/{other}", f"/team/{name}"):  # fmt: skip
        desk.go(path)
        assert desk.page.evaluate("document.documentElement.scrollWidth") <= size[0], path
        assert max(desk.page.evaluate(FIND_WIDE_BOXES)) <= 0, path
        assert desk.page.evaluate(FIND_OVERLAPS) == [], path
        assert desk.page.evaluate(FIND_HIDDEN_ENDS) == [], path
    desk.close()


def test_a_change_under_a_key_that_is_no_text_is_lit(chromium: Any, odd_site: Any, odd_story: WebStory):
    desk = Desk(chromium, odd_site)
    desk.go(f"/c/{odd_story.ids[LONG]}")
    desk.see("1 change to the parent, lit below")
    assert desk.page.eval_on_selector_all(".node.is-changed", "all => all.map(e => e.innerText)") == ["n:\n2\nchanged"]
    assert "none:\nempty dict" in desk.text(".tree")
    desk.close()


def test_a_long_conversation_has_every_message_once(chromium: Any, odd_site: Any):
    desk = Desk(chromium, odd_site)
    desk.go("/c/talk/talk")
    said = "all => all.map((one) => one.innerText)"
    while desk.page.query_selector("button >> text=earlier"):
        before = len(desk.page.query_selector_all(".said"))
        desk.page.click("button >> text=earlier")
        desk.page.wait_for_function("(n) => document.querySelectorAll('.said').length > n", arg=before)
    assert desk.page.eval_on_selector_all(".said", said) == [f"line {n}." for n in range(150)]
    desk.close()


def test_a_selected_row_reads_no_conversation(chromium: Any, odd_site: Any):
    """It may be long, and the pane shows the changes of the state only."""
    desk = Desk(chromium, odd_site)
    asked: list[str] = []
    desk.page.on("request", lambda request: asked.append(unquote(request.url)))
    desk.go("/s/forks")
    desk.see("What changed here")
    desk.settle()
    assert [url for url in asked if "/diff?" in url and "part=state,files" in url]
    assert not [url for url in asked if "/messages" in url or ("/diff?" in url and "part=" not in url)]
    desk.close()


def test_folded_lanes_are_counted_beside_the_others(chromium: Any, odd_site: Any):
    desk = Desk(chromium, odd_site)
    desk.go("/s/forks")
    desk.press("End")
    desk.page.wait_for_selector(".lane-more >> text=+3")
    assert desk.page.evaluate("""() => [...document.querySelectorAll('.lane-more')].every((text) => {
        const left = text.getBoundingClientRect().left;
        return [...text.parentNode.querySelectorAll('path')].every((lane) => lane.getBoundingClientRect().right < left);
    })""")
    desk.close()


def test_a_line_of_python_is_shown_only_if_it_says_the_same(chromium: Any, odd_site: Any):
    desk = Desk(chromium, odd_site)
    desk.go("/approvals")
    desk.press("e")
    desk.see("Arguments to replace, as JSON")
    assert desk.page.evaluate("document.querySelector('dialog textarea').scrollTop") == 0
    assert "--modify" in desk.text("dialog")
    assert "client.decide" not in desk.text("dialog")
    desk.press("Escape")
    desk.close()


def test_an_address_that_leads_nowhere_is_answered_by_the_page(chromium: Any, odd_site: Any):
    desk = Desk(chromium, odd_site)
    assert desk.page.goto(f"{odd_site.origin}/nothing/here").status == 404
    desk.see("There is no such page")
    desk.close()


def test_an_answer_to_an_earlier_search_is_not_shown(chromium: Any, odd_site: Any, odd_story: WebStory):
    held: list[Any] = []
    desk = Desk(chromium, odd_site)
    desk.page.route("**/search?q=%22key%22*", lambda route: held.append(route))  # noqa: PLW0108 - no builtin
    desk.go(f"/c/{odd_story.ids[LONG]}")
    desk.page.fill("[data-search]", "key")
    while not held:
        desk.page.wait_for_timeout(20)
    desk.page.fill("[data-search]", "nothing like it")
    desk.see("No match")
    with desk.page.expect_response("**/search?q=%22key%22*"):
        held[0].continue_()
    desk.page.wait_for_timeout(200)
    assert "No match" in desk.text()
    desk.close()
