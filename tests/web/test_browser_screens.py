"""Every screen of the page in a real Chromium: drawn, without an error, usable by everyone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote_plus

import pytest
from browser_fixtures import NARROW, WIDE, Desk, serve_store, static_bytes
from web_story import BRANCH, DAMAGED, FILES, RUN, SHOP, WebStory

from holdfast.model.run_status import RunState

pytestmark = [pytest.mark.slow, pytest.mark.browser]

FIND_OVERLAPS = """() => [...document.querySelectorAll('main .line > *, main .head > *, main .card > header > *')]
    .filter((node) => getComputedStyle(node).overflowX === 'visible' && node.scrollWidth > node.clientWidth + 1
        && !(node instanceof SVGElement))
    .map((node) => node.textContent)
"""  # parts of a line whose text runs into the next part
FIND_MOUSE_ONLY = """() => [...document.querySelectorAll('#app *')].filter((node) => {
    const listeners = Object.getOwnPropertySymbols(node).find((one) => one.description === 'listeners');
    if (listeners === undefined || !node[listeners].click || node.disabled) return false;
    if (node.getAttribute('role') === 'option' || node.classList.contains('card')) return false;  // j, k and Enter
    node.focus();
    return document.activeElement !== node || node.tabIndex < 0;
}).map((node) => node.outerHTML.slice(0, 200))"""  # what a click does something to, and no key reaches
PAGE_LIMIT = 200_000  # bytes of scripts and styles that a screen may load


def addresses(story: WebStory) -> dict[str, tuple[str, str]]:
    """Each screen, and a text that shows that it is drawn."""
    shop, files = story.ids["shop 9"], story.ids["files 2"]
    return {
        "sessions": ("/", SHOP),
        "timeline": (f"/s/{SHOP}?at={shop}", "What changed here"),
        "graph": ("/s/%22lg%2Fsupport-7%22", "loop"),
        "damaged": (f"/s/{DAMAGED}", "damaged"),
        "state": (f"/c/{shop}", "execution_state"),
        "talk": (f"/c/{shop}/talk", "ask_model: line 9"),
        "files": (f"/c/{files}/files", "README.md"),
        "tasks": (f"/c/{RUN}/tasks", "parts"),
        "ledger": (f"/c/{RUN}/ledger", "effect"),
        "meta": (f"/c/{shop}/meta", "Checksum"),
        "diff": (f"/diff/{story.ids['files 0']}/{files}", "auth.py"),
        "compare": (f"/compare/{SHOP}/{BRANCH}", "First difference"),
        "runs": ("/runs", RUN),
        "approvals": ("/approvals", "bank.pay"),
        "inbox": ("/inbox", "approver"),
        "effects": ("/effects", "mail.send"),
        "topics": ("/topics", "reviewers"),
        "topic": ("/topics/drafts", "key book-2"),
        "topic of any name": ("/topics/%22orders%2Fnew%22", "9.50"),
        "no topic": ("/topics/nothing", "no topic"),
        "team": (f"/team/{RUN}", "Team of"),
        "storage": ("/storage", "Storage"),
        "log": ("/log", "pin"),
        "no page": ("/log/nothing/here", "There is no such page"),
    }


@pytest.fixture(params=("light", "dark"))
def colored(request: pytest.FixtureRequest, chromium: Any, story_site: Any) -> Iterator[Desk]:
    opened = Desk(chromium, story_site, scheme=request.param)
    opened.scheme = request.param
    yield opened
    opened.close()


def test_every_screen_is_drawn_without_an_error_and_axe_finds_nothing(colored: Desk, web_story: WebStory):
    for name, (path, text) in addresses(web_story).items():
        colored.go(path, load=False)
        colored.see(text)
        colored.show(f"{name}-{colored.scheme}")
        colored.check_access()
        colored.check_policy()
        assert colored.page.evaluate(FIND_MOUSE_ONLY) == [], name


def test_axe_finds_nothing_in_any_sheet(colored: Desk, web_story: WebStory):
    sheets = {
        f"/c/{web_story.ids['files 1']}": ("f", "r", "t", "p", "w"),
        "/approvals": ("a", "x", "e"),
        "/effects": ("e",),
        "/log": ("u",),
        "/": ("Control+k", "?"),
    }
    for path, keys in sheets.items():
        colored.go(path, load=False)
        for key in keys:
            colored.press(key)
            colored.page.wait_for_selector("dialog[open] button, dialog[open] input")
            colored.page.wait_for_function("() => !document.querySelector('dialog button[disabled]')")
            colored.check_access()
            assert colored.page.evaluate("document.querySelector('dialog').contains(document.activeElement)"), key
            colored.press("Escape")
            colored.page.wait_for_selector("dialog", state="detached")
    colored.check_policy()


def test_every_screen_fits_a_telephone_and_loads_at_most_200_kb(chromium: Any, story_site: Any, web_story: WebStory):
    desk = Desk(chromium, story_site, size=NARROW)
    weights = {}
    for name, (path, text) in addresses(web_story).items():
        desk.go(path)
        desk.see(text)
        desk.show(f"{name}-narrow")
        assert desk.page.evaluate("document.documentElement.scrollWidth") <= NARROW[0], name
        boxes = desk.page.evaluate(
            "[...document.querySelectorAll('main, .head, .toolbar')].map(e => e.scrollWidth - e.clientWidth)"
        )
        assert max(boxes) <= 0, name
        assert desk.page.evaluate(FIND_OVERLAPS) == [], name
        loaded = desk.page.evaluate("performance.getEntriesByType('resource').map(one => one.name)")
        assert all(url.startswith(story_site.origin) for url in loaded), "a request to another host"
        parts = {url.removeprefix(story_site.origin) for url in loaded}
        files = [part for part in parts if part.startswith("/static/")]
        weights[name] = static_bytes("index.html") + sum(map(static_bytes, files))
    assert min(weights.values()) > 50_000
    assert max(weights.values()) <= PAGE_LIMIT, weights
    desk.close()


def test_links_lead_back_to_the_same_place(desk: Desk, web_story: WebStory):
    chosen = web_story.ids["shop 9"]
    desk.go(f"/s/{SHOP}?at={chosen}")
    desk.page.wait_for_function("""() => {
        const row = document.querySelector('.row.is-selected').getBoundingClientRect();
        const list = document.querySelector('.list').getBoundingClientRect();
        return row.top >= list.top && row.bottom <= list.bottom;
    }""")
    assert desk.page.inner_text(".row.is-selected").startswith("9")
    desk.press("k")
    desk.page.wait_for_function("(id) => !location.search.includes(id)", arg=chosen)
    address = desk.page.url
    desk.page.reload()
    desk.settle()
    assert desk.page.inner_text(".row.is-selected").startswith("10")
    assert desk.page.url == address
    desk.press("Enter")
    desk.page.wait_for_selector(".tree")
    desk.press("2")
    desk.arrive("**/talk")
    desk.page.wait_for_selector(".message")
    desk.page.go_back()
    desk.page.wait_for_selector(".tree")


def test_a_damaged_checkpoint_says_so_and_its_neighbours_open(desk: Desk, web_story: WebStory):
    desk.go(f"/c/{web_story.ids['damaged']}")
    desk.see("damaged")
    assert "verify" in desk.text()
    desk.go(f"/c/{web_story.ids['first']}")
    desk.see("execution_state")
    desk.go(f"/c/{web_story.ids['last']}")
    desk.see("something it refers to is not")
    desk.see("No changes can be shown")
    desk.go(f"/s/{DAMAGED}?at={web_story.ids['last']}")
    desk.page.wait_for_selector("aside .error-box >> text=damaged")
    assert "s2" in desk.text("aside h2")
    desk.go("/storage")
    desk.see("1 checkpoint can't be read")
    assert "What takes the space" in desk.text()


def test_the_state_shows_what_changed_and_finds_a_value(desk: Desk, web_story: WebStory):
    desk.go(f"/c/{web_story.ids['shop 6']}")
    desk.page.wait_for_selector(".node.is-changed")
    lit = desk.page.eval_on_selector_all(".node.is-changed", "all => all.map(e => e.innerText)")
    assert any("look up" in one for one in lit)
    desk.page.fill("[data-search]", "line 3")
    desk.page.click("[aria-label^='Show ']")
    desk.page.wait_for_selector(".node.is-found")
    assert "line 3" in desk.page.inner_text(".node.is-found")
    desk.page.fill("[data-search]", "")
    desk.page.click("text=more characters")
    desk.page.wait_for_function("() => document.querySelector('main').innerText.length > 11000")


def test_a_topic_opens_by_keyboard_and_its_messages_are_read_whole(desk: Desk):
    desk.go("/topics")
    desk.page.wait_for_selector("article")
    desk.press("j", "k", "Enter")
    desk.arrive("**/topics/drafts")
    desk.see("the press prints no chapter 0")
    rows = desk.page.eval_on_selector_all(
        "[aria-label='Groups of drafts'] tbody tr", "all => all.map(e => e.innerText)"
    )
    assert [row.split()[:2] for row in rows] == [["archive", "0"], ["press", "11"], ["reviewers", "8"]]
    cut = "() => document.querySelector('main').innerText.split('more characters').length - 1"
    before = desk.page.evaluate(cut)
    desk.page.click("text=more characters")
    desk.page.wait_for_function(f"(before) => ({cut})() === before - 1", arg=before)
    desk.page.click("ol[aria-label^='Messages'] li >> nth=0 >> a")
    desk.arrive("**/c/*")
    desk.see("execution_state")


def test_a_store_without_topics_says_how_to_begin(chromium: Any, tmp_path: Any):
    from holdfast import SyncClient

    (tmp_path / "empty").mkdir()
    with SyncClient.sqlite(tmp_path / "store.db"):
        pass
    with serve_store(WebStory(tmp_path / "store.db", tmp_path / "empty", {})) as site:
        desk = Desk(chromium, site)
        desk.go("/topics")
        desk.see("No topic yet")
        assert "client.publish" in desk.text()
        desk.close()


def test_a_redacted_value_says_so_on_every_screen(chromium: Any, tmp_path: Any):
    from holdfast import SyncClient
    from holdfast.redaction import by_path

    (tmp_path / "work").mkdir()
    rules = by_path("**.token", "**.api_key")
    with SyncClient.sqlite(tmp_path / "store.db", redact=rules) as client:
        for n in range(2):
            id_ = client.save("a", execution_state={"token": f"s3cret-{n}", "n": n}, session_id="s", api_key="s3cret")
        client.request_approval("s", "pay", {"token": "s3cret", "amount": 5})
    with serve_store(WebStory(tmp_path / "store.db", tmp_path / "work", {})) as site:
        desk = Desk(chromium, site)
        for path in (f"/c/{id_}", f"/c/{id_}/meta", "/s/s", "/approvals"):
            desk.go(path)
            desk.see("<redacted str>" if path != "/s/s" else "What changed here")
            assert "s3cret" not in desk.page.content()
        desk.press("e")
        desk.see("Arguments to replace")
        desk.page.get_by_label("Arguments to replace, as JSON").fill('{"amount": 4}')
        desk.see("""--modify '{"amount":4}'""")
        desk.close()


def test_runs_and_sessions_are_filtered_by_every_status(desk: Desk):
    statuses = {str(state) for state in RunState}
    for path in ("/runs", "/"):
        desk.go(path)
        desk.page.wait_for_selector("select[aria-label=Status]")
        found = desk.page.eval_on_selector_all(
            "select[aria-label=Status] option", "all => all.map(e => e.value).filter(Boolean)"
        )
        assert set(found) == statuses
    for status in statuses:
        desk.go("/runs")
        with desk.page.expect_response(lambda answer: "status=" in answer.url) as coming:
            desk.page.select_option("select[aria-label=Status]", status)
        assert coming.value.status == 200
        runs = coming.value.json()
        assert desk.page.url.endswith("status=" + quote_plus(status))
        desk.page.wait_for_selector(".toolbar .line")
        shown = desk.page.eval_on_selector_all(
            ".toolbar .line", "all => all.map(e => [...e.children].map(c => c.innerText))"
        )
        assert dict(shown) == {name: str(count) for name, count in runs["counts"].items()}
        desk.page.wait_for_function(
            "(count) => document.querySelectorAll('article').length === count", arg=len(runs["runs"])
        )


def test_a_late_answer_does_not_replace_that_of_the_filter(desk: Desk):
    held: list[Any] = []
    desk.page.route("**/api/v1/runs?limit=100", lambda route: held.append(route))  # noqa: PLW0108 - no builtin
    desk.page.goto(desk.site.origin + "/runs")
    desk.page.select_option("select[aria-label=Status]", "completed")
    desk.see("No run has this status")
    with desk.page.expect_response("**/api/v1/runs?limit=100") as late:
        held[0].continue_()
    assert late.value.json()["total"] == 1
    desk.page.wait_for_timeout(300)
    assert "No run has this status" in desk.text()


def test_files_open_and_download_as_they_were(desk: Desk, web_story: WebStory):
    desk.go(f"/c/{web_story.ids['files 2']}/files")
    desk.page.click("text=src/test_auth.py")
    desk.see("+def test_login():")
    with desk.page.expect_download() as coming:
        desk.page.click("[aria-label='Download README.md']")
    assert coming.value.path().read_text() == "# Shop\n"
    assert coming.value.suggested_filename == "README.md"
    desk.page.click("text=logo.png")
    desk.see("Binary")


def test_the_two_screenshots_of_the_readme(chromium: Any, story_site: Any, web_story: WebStory):
    for name, scheme, path, text in (
        ("readme-timeline", "light", f"/s/{SHOP}?at={web_story.ids['shop 9']}", "What changed here"),
        ("readme-compare", "dark", f"/compare/{SHOP}/{BRANCH}", "First difference"),
    ):
        desk = Desk(chromium, story_site, scheme=scheme, size=WIDE)
        desk.go(path)
        desk.see(text)
        assert desk.show(name).stat().st_size > 20_000
        desk.close()


def test_the_session_of_a_coding_agent_shows_changed_files(desk: Desk):
    desk.go(f"/s/{FILES}")
    desk.see("changed file")
