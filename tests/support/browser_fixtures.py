"""Fixtures: one Chromium for each module, and a page that fails its test on any error.

Chromium comes from the system, Playwright and axe-core from `make test`. Without one of them the
tests are skipped, and say which. With `CI=true` that is a failure.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
AXE = Path(sys.prefix) / "axe-core" / "axe.min.js"
SHOTS = Path(os.environ.get("HOLDFAST_SHOTS", Path(__file__).parents[2] / ".screenshots"))
WIDE, NARROW = (1360, 860), (360, 780)
GO = """(path) => {
    document.querySelector('main h1').remove();
    history.pushState(null, "", path);
    dispatchEvent(new PopStateEvent("popstate"));
}"""
TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
IS_SETTLED = """() => document.getElementById('app').dataset.drawn === location.pathname
    && !document.querySelector('[aria-busy=true], .row.is-pending')
    && ![...document.querySelectorAll('main .muted')]
        .some((node) => /^(Reading|Comparing|Measuring)…/.test(node.textContent))
"""
WATCH_POLICY = """
    window.refused = [];
    document.addEventListener("securitypolicyviolation", (event) =>
        window.refused.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""


def give_up(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"{reason}; CI needs it")
    pytest.skip(f"NO BROWSER TESTS: {reason}; `make test` installs it where it can")


@pytest.fixture(scope="module")  # it runs an event loop in this thread: later modules need theirs
def chromium() -> Iterator[Any]:
    """The browser of a module."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        give_up("playwright is not installed")
    try:
        import uvicorn  # noqa: F401 - what the server runs on
    except ImportError:
        give_up("the extra `ui` is not installed")
    path = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if path is None:
        give_up("there is no Chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path)
        yield browser
        browser.close()


class Desk:
    """A page of the browser, signed in to a site. `close` fails the test if the page had any error."""

    def __init__(self, chromium: Any, site: Any, *, scheme: str = "light", size: tuple[int, int] = WIDE) -> None:
        self.site = site
        self.context = chromium.new_context(
            color_scheme=scheme, viewport={"width": size[0], "height": size[1]}, reduced_motion="reduce"
        )
        self.context.add_init_script(WATCH_POLICY)
        self.faults: list[str] = []
        self.page = self.new_page()
        self.page.goto(site.url)
        self.page.wait_for_selector("h1")

    def new_page(self) -> Any:
        page = self.context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda said: self._note(said.type, said.text))
        page.on("pageerror", lambda error: self.faults.append(f"{error}"))
        return page

    def _note(self, kind: str, text: str) -> None:
        # The browser itself reports each answer of 400 and above. Tests of refusals look at the page.
        if kind in ("error", "warning") and not text.startswith("Failed to load resource"):
            self.faults.append(text)

    def go(self, path: str, *, load: bool = True) -> None:
        """Go to an address of the site: load it, or let the page that is open go there."""
        if load:
            self.page.goto(self.site.origin + path)
        else:
            self.page.evaluate(GO, path)
        self.page.wait_for_selector("main h1")
        if path.startswith("/s/"):
            self.page.wait_for_selector("aside h2")
        self.settle()

    def arrive(self, address: str) -> None:
        """Wait until the page is at that address, and drawn: before that, keys of its screen do nothing."""
        self.page.wait_for_url(address)
        self.settle()

    def settle(self) -> None:
        """Wait until the screen of the address is drawn, and nothing is being read."""
        self.page.evaluate(TWO_FRAMES)  # what a key or a scroll changed is drawn in the next frame, not at once
        self.page.wait_for_function(IS_SETTLED)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def see(self, text: str) -> None:
        self.page.wait_for_function("(text) => document.body.innerText.includes(text)", arg=text)

    def text(self, selector: str = "main") -> str:
        return str(self.page.inner_text(selector))

    def show(self, name: str) -> Path:
        """Keep a screenshot."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        path = SHOTS / f"{name}.png"
        self.page.screenshot(path=path)
        return path

    def check_policy(self) -> None:
        refused = self.page.evaluate("window.refused")
        assert not refused, refused
        assert not self.faults, self.faults

    def check_access(self) -> None:
        """Nothing that axe-core finds stands in the way of a user."""
        found = self.page.evaluate("axe.run()") if self._has_axe() else {"violations": []}
        told = [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found["violations"]]
        assert not told, told

    def _has_axe(self) -> bool:
        if not AXE.exists():
            give_up("axe-core is not installed")
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.read_text())
        return True

    def close(self) -> None:
        for page in self.context.pages:
            assert page.evaluate("window.refused") == []
        self.context.close()
        assert self.faults == []


@pytest.fixture(scope="session")
def web_story(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The store that tests only read."""
    return build_aside(tmp_path_factory.mktemp("story"))


def build_aside(where: Path) -> Any:
    """Build the store in a thread: Playwright has an event loop in this one, and graphs say so."""
    from web_story import build_story

    with ThreadPoolExecutor(1) as aside:
        return aside.submit(build_story, where).result()


@pytest.fixture(scope="module")
def story_site(chromium: Any, web_story: Any) -> Iterator[Any]:
    """A server of the store that tests only read."""
    with serve_store(web_story) as site:
        yield site


def serve_store(story: Any, **options: Any) -> Any:
    """Serve a copy of a client's own on the store."""
    from contextlib import contextmanager

    from holdfast import SyncClient
    from holdfast.web import app
    from holdfast.web.server import serve

    @contextmanager
    def served() -> Iterator[Any]:
        with SyncClient.sqlite(story.path) as client:
            options.setdefault("workspace", client.workspace(story.directory))
            options.setdefault("store", "~/shop/.holdfast/store.db")  # pictures name no directory of a test
            with serve(app(client, writable=True, by="alice", **options)) as site:
                yield site

    return served()


@pytest.fixture
def own_story(chromium: Any, tmp_path: Path) -> Any:
    """A store that a test may change."""
    return build_aside(tmp_path)


@pytest.fixture
def own_site(own_story: Any) -> Iterator[Any]:
    """A server of the store that a test may change."""
    with serve_store(own_story) as site:
        yield site


@pytest.fixture
def desk(chromium: Any, story_site: Any) -> Iterator[Desk]:
    """A page on the store that tests only read."""
    opened = Desk(chromium, story_site)
    yield opened
    opened.close()


@pytest.fixture
def own_desk(chromium: Any, own_site: Any) -> Iterator[Desk]:
    """A page on a store that the test may change."""
    opened = Desk(chromium, own_site, scheme="dark")
    yield opened
    opened.close()


def static_bytes(path: str) -> int:
    """The size of a file of the page."""
    from holdfast import web

    return (Path(web.__file__).parent / "static" / re.sub("^/static/", "", path)).stat().st_size
