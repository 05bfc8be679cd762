"""Stored markup in every field of every screen stays text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from browser_fixtures import Desk, serve_store
from web_story import WebStory

from holdfast import Message, SyncClient

pytestmark = [pytest.mark.slow, pytest.mark.browser]

CORPUS = (
    "<img src=x onerror=window.hacked=1>",
    "<script>window.hacked=2</script>",
    '"><svg/onload=window.hacked=3>',
    "'-window.hacked=4-'",
    "javascript:window.hacked=5//",
    "</title><iframe srcdoc='<script>parent.hacked=6</script>'>",
    "{{constructor.constructor('window.hacked=7')()}}",
    "${window.hacked=8}",
    "<a href=javascript:window.hacked=9>click</a>",
    "<style>@import'//example.org/x'</style><base href=//example.org/>",
    "\u202egpj.exe <math><mtext><table><mglyph><style><img src onerror=window.hacked=10>",
    "\ud800<details open ontoggle=window.hacked=11>",
)
FIND_FOREIGN = """() => ({
    hacked: window.hacked ?? null,
    foreign: [...document.querySelectorAll('#app :is(script, img, iframe, style, base, object, embed, math), '
        + '#app :is([onerror], [onload], [ontoggle])')].map((node) => node.outerHTML),
    links: [...document.querySelectorAll('#app a[href]')].map((node) => node.href)
        .filter((href) => !href.startsWith(location.origin)),
})"""
EVERYTHING = " ".join(CORPUS[:-1])


def save_hostile(where: Path) -> WebStory:
    """A store in which each text that a program may choose is hostile."""
    directory = where / "project"
    directory.mkdir()
    path = where / "store.db"
    name = CORPUS[0]
    with SyncClient.sqlite(path, durability="fast") as client:
        (directory / CORPUS[0]).write_text(EVERYTHING)
        (directory / "plain.txt").write_text("one\n")
        for text in CORPUS:
            (directory / "plain.txt").write_text(f"{text}\n".encode("utf-8", "replace").decode())
            state = {
                "messages": [
                    {"role": text, "content": text},
                    {"role": "assistant", "content": text, "tool_calls": [
                        {"id": text, "name": text, "args": {text: text}, "type": "tool_call"}]},
                    {"role": "tool", "content": text, "tool_call_id": text, "name": text},
                ],
                text: {text: [text, {"$type": "cut", "of": text, "size": text, "value": text}]},
                "$type": text, "value": text,
            }  # fmt: skip
            made = client.save(
                agent_id=text, session_id=name, step_name=text, execution_state=state, context={text: text},
                app_version=text, usage={text: 1}, error=text, workspace=client.workspace(directory),
            )  # fmt: skip
            client.save(agent_id=text, session_id=text, step_name=text, execution_state=state)
        client.fork(made, CORPUS[2] + "fork", set={"+" + "x": EVERYTHING})
        client.tag("t<img src=x onerror=window.hacked=12>", made)
        client.pin(made, EVERYTHING)
        client.handoff(made, target_agent_id=CORPUS[1])
        _run(client)
        _publish(client)
    return WebStory(path, directory, {"last": made, "name": name})


def _run(client: SyncClient) -> None:
    def do(**_: Any) -> dict[str, str]:
        return {CORPUS[0]: EVERYTHING}

    def die(**_: Any) -> None:
        raise KeyboardInterrupt(EVERYTHING)

    name = CORPUS[3]
    try:
        with client.run("run " + name, agent_id=CORPUS[1]) as run:
            run.step(CORPUS[0], lambda: EVERYTHING)
            for task in run.tasks(CORPUS[2], [CORPUS[0], CORPUS[1]]):
                run.step(task.id, lambda: 1)
            run.effect(CORPUS[0], do, to=EVERYTHING, key=CORPUS[1])
            run.save(CORPUS[1])
            run.effect(CORPUS[2], die, to=EVERYTHING, key=CORPUS[2])
    except KeyboardInterrupt:
        pass
    client.request_approval(
        "run " + name, CORPUS[0], {CORPUS[1]: EVERYTHING, "to": CORPUS[2]}, summary=EVERYTHING, approvers=CORPUS[4]
    )


def _publish(client: SyncClient) -> None:
    """Topics, groups, keys, values and reasons of hostile texts, as far as names may hold them."""
    for text in CORPUS[:-2]:
        message = Message(text, {text: text, "$type": text, "all": [EVERYTHING]}, key=text)
        client.save(agent_id=text, session_id="publisher " + text, publish=[message])
        for group in (CORPUS[0], CORPUS[2]):
            with client.subscribe(text, group, timeout=0) as messages:
                next(iter(messages)).reject(EVERYTHING)


def check(desk: Desk) -> None:
    """Nothing ran, nothing was refused by the policy, and no element came from a text."""
    found = desk.page.evaluate(FIND_FOREIGN)
    assert found == {"hacked": None, "foreign": [], "links": []}
    desk.check_policy()


def test_hostile_texts_stay_texts_on_every_screen(chromium: Any, tmp_path: Path):
    from urllib.parse import quote

    story = save_hostile(tmp_path)
    ids = story.ids
    session = quote('"' + ids["name"].replace('"', '\\"') + '"', safe="")
    run = quote('"run ' + CORPUS[3] + '"', safe="")
    with serve_store(story) as site:
        desk = Desk(chromium, site)
        last, other = f"/c/{ids['last']}", quote(f'"{CORPUS[3]}"', safe="")
        parts = [f"{last}/{part}" for part in ("state", "talk", "files", "tasks", "ledger", "meta")]
        for path in (
            *("/", "/runs", "/approvals", "/inbox", "/effects", f"/team/{run}", "/storage", "/log"),
            *(*parts, f"/c/{run}/tasks", f"/c/{run}/ledger", f"/s/{session}"),
            *(f"/diff/{ids['last']}", f"/compare/{session}/{other}"),
            *("/topics", *(f"/topics/{quote(json.dumps(text), safe='')}" for text in CORPUS[:-1])),
            *(f"/?q={quote(CORPUS[0])}&agent={quote(CORPUS[1])}", f"/c/{quote(CORPUS[0])}"),
            *(f"/s/{quote(CORPUS[1], safe='')}", f"/s/{session}?at={quote(CORPUS[0])}&only={quote(CORPUS[1])}"),
        ):
            desk.page.goto(site.origin + path)
            desk.page.wait_for_selector("main h1")
            desk.settle()
            check(desk)
        desk.go(f"/topics/{quote(json.dumps(CORPUS[0]), safe='')}")
        desk.page.wait_for_selector("ol li .tree")
        assert len(desk.page.query_selector_all("[aria-label='Dead messages'] tbody tr")) == 2
        check(desk)
        desk.go(f"/c/{ids['last']}/files")
        for link in desk.page.query_selector_all("main table button.more"):
            link.click()
            desk.page.wait_for_selector("#open-file pre, #open-file .muted")
            check(desk)
        desk.go(f"/s/{session}")
        for key in "frtp":
            desk.press(key)
            desk.page.wait_for_selector("dialog[open] form")
            desk.page.wait_for_timeout(300)
            check(desk)
            desk.press("Escape")
            desk.page.wait_for_selector("dialog", state="detached")
        desk.go("/approvals")
        desk.page.wait_for_selector("article")
        desk.press("e")
        desk.page.wait_for_selector("dialog[open] form")
        check(desk)
        desk.press("Escape")
        desk.page.wait_for_selector("dialog", state="detached")
        desk.press("Control+k")
        desk.page.wait_for_selector("[role=combobox]")
        desk.page.keyboard.type("<img")
        desk.page.wait_for_timeout(500)
        check(desk)
        desk.close()
