"""The page follows the store: live rows, a restarted server, two tabs, a hidden tab."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest
from browser_fixtures import Desk, serve_store
from web_site import started
from web_story import DAMAGED, RUN, SHOP, WebStory, flip_a_bit

from holdfast import SyncClient
from holdfast.web import app
from holdfast.web.server import serve

pytestmark = [pytest.mark.slow, pytest.mark.browser]

LIVE = "() => document.querySelector('.live')?.classList.contains('is-live')"


def save(story: WebStory, count: int = 1, session: str = SHOP) -> None:
    with SyncClient.sqlite(story.path) as client:
        for index in range(count):
            client.save(agent_id="late", session_id=session, step_name=f"late {index}", execution_state={"n": index})


def test_new_checkpoints_appear_and_the_selection_stays(own_desk: Desk, own_story: WebStory):
    own_desk.go(f"/s/{SHOP}?at={own_story.ids['shop 20']}")
    own_desk.page.wait_for_function(LIVE)
    chosen = own_desk.page.inner_text("aside h2")
    save(own_story, 3)
    own_desk.page.wait_for_selector(".row >> text=late 2")
    assert own_desk.page.inner_text("aside h2") == chosen
    assert own_desk.page.inner_text(".row.is-selected").startswith("20")
    own_desk.press("l")
    save(own_story, 1)
    own_desk.page.wait_for_function("() => document.querySelector('aside h2')?.innerText.includes('late 0')")


def test_a_list_that_is_scrolled_does_not_move(own_desk: Desk, own_story: WebStory):
    save(own_story, 80)
    own_desk.go(f"/s/{SHOP}")
    own_desk.page.wait_for_function(LIVE)
    own_desk.press("End")
    own_desk.page.wait_for_function("() => document.querySelector('.list')?.scrollTop > 1000")
    shown = "() => [...document.querySelectorAll('.row')].map(e => e.innerText.split('\\n')[1]).join()"
    own_desk.settle()
    before, top = own_desk.page.evaluate(shown), own_desk.page.evaluate("document.querySelector('.list').scrollTop")
    save(own_story, 2)
    own_desk.see("2 new")
    assert own_desk.page.evaluate(shown) == before
    assert own_desk.page.evaluate("document.querySelector('.list').scrollTop") == top
    own_desk.page.click(".arrivals")
    own_desk.page.wait_for_selector(".row >> text=late 1")


def test_a_late_chart_moves_no_row(own_desk: Desk):
    held: list[Any] = []
    own_desk.page.route("**/chart?*", lambda route: route.continue_() if held else held.append(route))
    own_desk.go(f"/s/{SHOP}")
    place = "() => document.querySelector('.list').getBoundingClientRect().top"
    while not held:
        own_desk.page.wait_for_timeout(20)
    before = own_desk.page.evaluate(place)
    held[0].continue_()
    own_desk.page.wait_for_selector("input[type=range]")
    assert own_desk.page.evaluate(place) == before


def test_a_session_row_changes_in_place(own_desk: Desk, own_story: WebStory):
    own_desk.page.wait_for_function(LIVE)
    own_desk.settle()
    names = "() => [...document.querySelectorAll('.c-name')].map(e => e.innerText)"
    before = own_desk.page.evaluate(names)
    save(own_story, 1, "old-but-new")
    own_desk.see("1 new")
    assert own_desk.page.evaluate(names) == before
    save(own_story, 1)
    own_desk.page.wait_for_function(
        "() => [...document.querySelectorAll('.row')].some(e => e.innerText.includes('late 0'))"
    )
    assert own_desk.page.evaluate(names) == before


def test_a_restarted_server_is_found_again_by_itself(chromium: Any, own_story: WebStory, tmp_path: Any):
    token = "a" * 40
    with SyncClient.sqlite(own_story.path) as client:
        with serve(app(client, writable=True, token=token)) as site:
            port = site.port
            desk = Desk(chromium, site)
            desk.go(f"/s/{SHOP}")
            desk.page.wait_for_function(LIVE)
        desk.see("Not live")
        save(own_story, 1)
        with serve(app(client, writable=True, token=token), port=port):
            desk.page.wait_for_function(LIVE)
            desk.page.wait_for_selector(".row >> text=late 0")
            assert "Not live" not in desk.page.inner_text("body")
        with serve(app(client, writable=True), port=port):
            desk.see("signed out")
            desk.faults.clear()
            desk.context.close()


def test_one_request_that_failed_is_made_good(own_desk: Desk, own_story: WebStory):
    """The stream goes on meanwhile: nothing else says that the page is behind."""
    own_desk.page.wait_for_function(LIVE)
    for path, said in (("**/api/v1/runs?*", RUN), ("**/static/screens/log.js", "pin")):
        own_desk.page.route(path, lambda route: route.abort())
        own_desk.page.click(f"nav >> text={'Runs' if 'runs' in path else 'Log'}")
        own_desk.see("Not live")
        own_desk.page.unroute(path)
        save(own_story)  # an event comes
        own_desk.page.wait_for_function(LIVE)
        own_desk.see(said)
        own_desk.settle()
        assert "Not live" not in own_desk.text("body")


def test_a_link_in_a_page_of_another_site_opens_the_page(chromium: Any, own_site: Any):
    """As in a terminal or a mail program in the browser: the new cookie must go along from the first page on."""
    context = chromium.new_context()
    page = context.new_page()
    link = f"<a href='{own_site.new_link(f'/s/{SHOP}')}'>open</a>"
    page.route("http://elsewhere.example/", lambda route: route.fulfill(body=link, content_type="text/html"))
    for _ in range(2):  # the second time with a link that was used
        page.goto("http://elsewhere.example/")
        page.click("a")
        page.wait_for_url(f"{own_site.origin}/s/{SHOP}**")
        if "Signed out" in page.inner_text("h1"):  # a browser sends no strict cookie there: the page says what to do
            page.click("a")
        page.wait_for_selector(f"main h1 >> text={SHOP}")
    context.close()


def test_two_tabs_share_one_stream_and_a_hidden_one_has_none(chromium: Any, own_story: WebStory):
    with serve_store(own_story) as site:
        desk = Desk(chromium, site)
        streams: list[str] = []
        open_now: set[Any] = set()

        def watch(page: Any) -> None:
            def started(request: Any) -> None:
                if request.url.endswith("/events"):
                    streams.append(request.url)
                    open_now.add(request)

            def ended(request: Any) -> None:
                open_now.discard(request)

            page.on("request", started)
            page.on("requestfailed", ended)
            page.on("requestfinished", ended)

        watch(desk.page)
        desk.go(f"/s/{SHOP}")
        desk.page.wait_for_function(LIVE)
        other = desk.new_page()
        watch(other)
        other.goto(f"{site.origin}/s/{SHOP}")
        other.wait_for_function(LIVE)
        assert len(open_now) == 1
        save(own_story, 1)
        for page in (desk.page, other):
            page.wait_for_selector(".row >> text=late 0")
        for page in (desk.page, other):
            page.evaluate("""() => {
                Object.defineProperty(document, 'hidden', {value: true, configurable: true});
                document.dispatchEvent(new Event('visibilitychange'));
            }""")
        while open_now:  # without an end, the test runs into its timeout
            other.wait_for_timeout(20)
        save(own_story, 2)
        other.evaluate("""() => {
            Object.defineProperty(document, 'hidden', {value: false, configurable: true});
            document.dispatchEvent(new Event('visibilitychange'));
        }""")
        other.wait_for_selector(".row >> text=late 1")
        while not open_now:  # the rows are read before the stream is asked for
            other.wait_for_timeout(20)
        assert len(open_now) == 1
        desk.close()


def test_a_page_that_slept_says_so_and_catches_up(chromium: Any, own_story: WebStory):
    """As after a laptop's sleep: the connection looks open, and nothing comes through it."""
    with started(str(own_story.path), "--write") as said:
        desk = Desk(chromium, SimpleNamespace(**said))
        desk.page.clock.install()
        desk.go(f"/s/{SHOP}")
        desk.page.wait_for_function(LIVE)
        os.kill(said["pid"], signal.SIGSTOP)
        try:
            save(own_story, 2)
            desk.page.clock.fast_forward(60_000)
            desk.see("Not live")
        finally:
            os.kill(said["pid"], signal.SIGCONT)
        # The time is not moved again: a stream that has just opened would be taken for a silent one.
        desk.page.wait_for_function(LIVE)
        desk.page.wait_for_selector(".row >> text=late 1")
        assert "Not live" not in desk.text("body")
        desk.close()


def test_a_session_whose_head_is_damaged_shows_the_others(own_desk: Desk, own_story: WebStory):
    flip_a_bit(own_story.path, own_story.ids["last"])
    own_desk.go(f"/s/{DAMAGED}")
    own_desk.page.wait_for_selector(".banner[role=alert] >> text=damaged")
    own_desk.page.wait_for_selector(".row >> text=s0")
    assert own_desk.page.locator(".row:has-text('damaged')").count() == 2
    own_desk.go("/")
    own_desk.page.wait_for_selector(".row >> text=damaged")
