"""Actions of the page, each by keyboard alone, and what they did to the store."""

from __future__ import annotations

import shlex
from typing import Any

import click
import pytest
from browser_fixtures import TWO_FRAMES, Desk
from web_story import BRANCH, FILES, RUN, SHOP, WebStory

from holdfast import SyncClient
from holdfast.cli.main import cli

pytestmark = [pytest.mark.slow, pytest.mark.browser]


def read(story: WebStory, ask: Any) -> Any:
    with SyncClient.sqlite(story.path) as client:
        return ask(client)


def wait_for_sheet(desk: Desk) -> None:
    desk.page.wait_for_selector("dialog[open] form")


def confirm(desk: Desk, said: str) -> None:
    """Press Enter in the sheet's form, and wait for the message that it is done."""
    desk.page.evaluate(TWO_FRAMES)  # what was typed last may disable the button in the next frame
    desk.page.wait_for_selector("dialog[open] button[type=submit]:not([disabled])")
    desk.page.focus("dialog button[type=submit]")
    desk.press("Enter")
    desk.page.wait_for_function(
        "() => !document.querySelector('dialog') || document.querySelector('dialog .error-box')"
    )
    assert desk.page.query_selector("dialog") is None, desk.text("dialog")
    desk.see(said)


def test_a_fork_with_a_changed_value(own_desk: Desk, own_story: WebStory):
    own_desk.go(f"/s/{SHOP}?at={own_story.ids['shop 9']}")
    own_desk.press("f")
    wait_for_sheet(own_desk)
    own_desk.page.keyboard.type("try-again")
    own_desk.press("Tab")
    own_desk.page.keyboard.type('plan.pay="by card"')
    own_desk.see("--set 'plan.pay=\"by card\"'")
    own_desk.show("action-fork")
    confirm(own_desk, "Forked to try-again")
    own_desk.arrive("**/s/try-again*")
    state = read(own_story, lambda client: client.latest(session_id="try-again"))
    assert state.execution_state["plan"]["pay"] == "by card"


def test_a_fork_with_its_files(own_desk: Desk, own_story: WebStory):
    own_desk.go(f"/c/{own_story.ids['files 1']}")
    own_desk.press("f")
    wait_for_sheet(own_desk)
    own_desk.page.keyboard.type("second-try")
    own_desk.page.get_by_label("Write its files into a new directory").check()
    place = own_story.directory.with_name(f"{own_story.directory.name}-second-try")
    own_desk.see(f"new directory {place}.")
    assert f"holdfast fork {own_story.ids['files 1']} {place} --session second-try" in own_desk.text("dialog")
    confirm(own_desk, "with its files in")
    assert (place / "src" / "auth.py").read_text() == "def login(user):\n    return verify(user)\n"
    assert not (place / "src" / "test_auth.py").exists()


def test_a_rollback_and_its_undo(own_desk: Desk, own_story: WebStory):
    first = read(own_story, lambda client: client.session(SHOP).head.checkpoint_id)
    own_desk.go(f"/s/{SHOP}?at={own_story.ids['shop 9']}")
    own_desk.press("r")
    wait_for_sheet(own_desk)
    confirm(own_desk, f"{SHOP} is at")
    assert read(own_story, lambda client: client.session(SHOP).head.checkpoint_id) == own_story.ids["shop 9"]
    own_desk.go("/log")
    own_desk.see("rollback")
    own_desk.press("u")
    wait_for_sheet(own_desk)
    confirm(own_desk, "Undone")
    assert read(own_story, lambda client: client.session(SHOP).head.checkpoint_id) == first
    own_desk.press("U")
    wait_for_sheet(own_desk)
    confirm(own_desk, "Redone")
    assert read(own_story, lambda client: client.session(SHOP).head.checkpoint_id) == own_story.ids["shop 9"]


def test_a_tag_and_a_pin(own_desk: Desk, own_story: WebStory):
    own_desk.go(f"/c/{own_story.ids['shop 12']}")
    own_desk.press("t")
    wait_for_sheet(own_desk)
    own_desk.page.keyboard.type("best")
    confirm(own_desk, "Tagged")
    own_desk.page.wait_for_selector(".chip >> text=best")
    own_desk.press("p")
    wait_for_sheet(own_desk)
    confirm(own_desk, "Pinned")
    assert read(own_story, lambda client: client.tagged("best")).checkpoint_id == own_story.ids["shop 12"]
    assert own_story.ids["shop 12"] in [pin.checkpoint_id for pin in read(own_story, lambda client: client.pins())]
    own_desk.page.wait_for_selector(".chip >> text=pinned")
    own_desk.press("p")
    wait_for_sheet(own_desk)
    confirm(own_desk, "Unpinned")


def test_approvals_by_keyboard_as_a_form_and_as_json(own_desk: Desk, own_story: WebStory):
    own_desk.go("/approvals")
    own_desk.see("Pay the freight.")
    own_desk.press("e")
    wait_for_sheet(own_desk)
    own_desk.page.get_by_label("amount").fill("750")
    own_desk.see("--modify '{\"amount\":750}'")
    own_desk.show("action-approve")
    confirm(own_desk, "approved")
    own_desk.page.wait_for_function("() => !document.body.innerText.includes('Pay the freight.')")
    own_desk.press("e")
    wait_for_sheet(own_desk)
    own_desk.page.get_by_label("Arguments to replace, as JSON").fill('{"plan": {"replicas": 1}}')
    confirm(own_desk, "approved")
    own_desk.see("Nothing waits for you")
    decided = {one.call.tool: one for one in read(own_story, lambda client: client.approvals(pending=False))}
    assert decided["bank.pay"].decision.arguments["amount"] == 750
    assert decided["bank.pay"].decision.by == "alice"
    assert decided["deploy"].decision.arguments["plan"] == {"replicas": 1}


def test_a_rejection_with_a_reason_and_a_decision_made_elsewhere(own_desk: Desk, own_story: WebStory):
    own_desk.go("/approvals")
    own_desk.see("Pay the freight.")
    own_desk.press("x")
    wait_for_sheet(own_desk)
    own_desk.page.keyboard.type("Too much.")
    confirm(own_desk, "rejected")
    rejected = next(one for one in read(own_story, lambda client: client.approvals(pending=False)) if one.decision)
    assert (rejected.decision.answer, rejected.decision.note) == ("reject", "Too much.")
    own_desk.page.wait_for_function("() => !document.body.innerText.includes('Pay the freight.')")
    own_desk.press("a")
    wait_for_sheet(own_desk)
    [waiting] = read(own_story, lambda client: client.approvals())
    read(own_story, lambda client: client.decide(waiting.approval_id, "approve", by="bob"))
    own_desk.page.focus("dialog button[type=submit]")
    own_desk.press("Enter")
    own_desk.page.wait_for_selector("dialog .error-box")
    assert "bob" in own_desk.page.inner_text("dialog .error-box")
    own_desk.press("Escape")


def test_the_next_key_acts_on_the_next_approval(own_desk: Desk, own_story: WebStory):
    own_desk.go("/approvals")
    own_desk.see("Pay the freight.")
    own_desk.press("x")
    wait_for_sheet(own_desk)
    own_desk.page.route("**/api/v1/approvals?*", lambda _route: None)  # the list is not read again
    confirm(own_desk, "rejected")
    own_desk.press("a")
    wait_for_sheet(own_desk)
    assert own_desk.text("#sheet-title") == "Approve: deploy"
    confirm(own_desk, "deploy: approved")
    own_desk.see("Nothing waits for you")
    own_desk.page.unroute_all()
    decided = {
        one.call.tool: str(one.status) for one in read(own_story, lambda client: client.approvals(pending=False))
    }
    assert (decided["bank.pay"], decided["deploy"]) == ("rejected", "approved")


def test_the_next_key_acts_on_the_next_approval_though_the_list_is_read_before_the_answer_comes(
    own_desk: Desk, own_story: WebStory
):
    answered: list[Any] = []
    own_desk.page.route("**/decide", lambda route: answered.append((route, route.fetch())))
    own_desk.go("/approvals")
    own_desk.see("Pay the freight.")
    own_desk.press("x")
    wait_for_sheet(own_desk)
    own_desk.page.focus("dialog button[type=submit]")
    own_desk.press("Enter")
    own_desk.page.wait_for_function("() => !document.querySelector('main').innerText.includes('Pay the freight.')")
    [(route, answer)] = answered
    route.fulfill(response=answer)
    own_desk.page.wait_for_selector("dialog", state="detached")
    own_desk.press("a")
    wait_for_sheet(own_desk)
    assert own_desk.text("#sheet-title") == "Approve: deploy"
    own_desk.press("Escape")


def test_no_key_acts_on_a_row_that_took_the_place_of_another(own_desk: Desk, own_story: WebStory):
    own_desk.go("/approvals")
    own_desk.see("Pay the freight.")
    first = read(own_story, lambda client: client.approvals())[0]
    read(own_story, lambda client: client.decide(first.approval_id, "reject", by="bob"))
    own_desk.page.wait_for_function("() => !document.body.innerText.includes('Pay the freight.')")
    assert own_desk.page.query_selector(".is-current") is None
    own_desk.press("a", "j")  # with a sheet, j would be typed into its note
    own_desk.page.wait_for_selector(".is-current >> text=deploy")
    own_desk.press("a")
    wait_for_sheet(own_desk)
    assert own_desk.text("#sheet-title") == "Approve: deploy"
    assert '"replicas": 3' in own_desk.text("dialog")
    own_desk.press("Escape")


def test_a_key_before_the_status_is_read_waits_for_it(own_desk: Desk):
    held: list[Any] = []
    own_desk.page.route("**/api/v1/status", lambda route: held.append(route))  # noqa: PLW0108 - no builtin
    own_desk.go("/approvals")
    own_desk.press("a")
    while not held:
        own_desk.page.wait_for_timeout(20)
    held[0].continue_()
    wait_for_sheet(own_desk)
    own_desk.press("Escape")


def test_keys_act_on_the_checkpoint_that_is_selected(own_desk: Desk, own_story: WebStory):
    def save(client: SyncClient) -> list[str]:
        return [client.save(agent_id="a", session_id="long", execution_state={"n": n}) for n in range(130)]

    ids = read(own_story, save)
    held: list[Any] = []
    own_desk.page.route("**/graph?*offset=100*", lambda route: route.continue_() if held else held.append(route))
    own_desk.go("/s/long")
    own_desk.press("End", "r")  # the row is not read yet
    own_desk.see("Reading…")
    while not held:
        own_desk.page.wait_for_timeout(20)
    held[0].continue_()
    own_desk.page.wait_for_function("(id) => location.search.includes(id)", arg=ids[0])
    assert own_desk.page.query_selector("dialog") is None
    own_desk.press("r")
    wait_for_sheet(own_desk)
    assert own_desk.text("#sheet-title") == f"Roll long back to {ids[0][-8:]}"
    own_desk.press("Escape")
    own_desk.go(f"/s/{SHOP}?at={own_story.ids['shop 14']}")
    own_desk.page.check("text=Tags")
    own_desk.page.wait_for_function("() => document.querySelector('aside h2')?.innerText.startsWith('8 plan')")


def test_a_plan_is_applied_as_it_was_shown_or_not_at_all(own_desk: Desk, own_story: WebStory):
    source = own_story.directory / "src" / "auth.py"
    own_desk.go(f"/c/{own_story.ids['files 0']}/files")
    own_desk.press("w")
    wait_for_sheet(own_desk)
    own_desk.see("3 paths will change")
    (own_story.directory / "src" / "test_auth.py").unlink()
    own_desk.page.click("dialog button[type=submit]")
    own_desk.page.wait_for_selector("dialog .error-box >> text=changed since the plan was shown")
    assert "verify" in source.read_text()
    own_desk.see("2 paths will change")
    own_desk.page.get_by_label("Files changed since the last snapshot").select_option("force")
    own_desk.page.get_by_label("Restore", exact=True).select_option("both")
    own_desk.page.wait_for_selector("dialog .error-box", state="detached")
    own_desk.see("--all --force")  # the error may have gone with the first of the two choices
    told = own_desk.text("dialog")
    assert f"holdfast restore {own_story.ids['files 0']} --all --force" in told
    assert f'client.workspace(".").restore("{own_story.ids["files 0"]}", scope="both", force=True)' in told
    confirm(own_desk, "Restored 2 paths")
    assert "check" in source.read_text()


def test_a_refused_action_can_be_tried_again(own_desk: Desk, own_story: WebStory):
    own_desk.go(f"/c/{own_story.ids['shop 12']}")
    own_desk.press("t")
    wait_for_sheet(own_desk)
    own_desk.page.keyboard.type("approved-draft")
    own_desk.press("Enter")
    own_desk.page.wait_for_selector("dialog .error-box")
    read(own_story, lambda client: client.untag("approved-draft"))
    own_desk.page.click(".sheet header")  # neither this nor a press outside loses what was typed
    own_desk.page.mouse.click(5, 5)
    own_desk.page.click("dialog button[type=submit]")
    own_desk.see("Tagged")
    assert read(own_story, lambda client: client.tagged("approved-draft")).checkpoint_id == own_story.ids["shop 12"]


def test_the_selection_of_a_topic_stays(own_desk: Desk, own_story: WebStory):
    own_desk.go("/topics")
    own_desk.page.wait_for_selector(".is-current >> text=drafts")
    own_desk.press("j")
    own_desk.page.wait_for_selector(".is-current >> text=orders/new")
    read(own_story, lambda client: client.publish("drafts", {"chapter": 13}))
    own_desk.see("13 messages")
    assert "orders/new" in own_desk.text(".is-current")


def test_the_selection_stays_with_its_row(own_desk: Desk, own_story: WebStory):
    own_desk.go("/approvals")
    own_desk.see("Pay the freight.")
    own_desk.press("j")
    own_desk.page.wait_for_selector(".is-current >> text=deploy")
    first = read(own_story, lambda client: client.approvals())[0]
    read(own_story, lambda client: client.decide(first.approval_id, "reject", by="bob"))
    own_desk.page.wait_for_function("() => !document.body.innerText.includes('Pay the freight.')")
    assert "deploy" in own_desk.text(".is-current")


def test_an_unknown_outcome_is_recorded(own_desk: Desk, own_story: WebStory):
    own_desk.go("/effects")
    own_desk.see("nothing says how it ended")
    own_desk.press("e")
    wait_for_sheet(own_desk)
    own_desk.page.get_by_label("Its result, as JSON").fill('{"sent": true}')
    confirm(own_desk, "Recorded")
    [effect] = [one for one in read(own_story, lambda client: client.effects()) if one.tool == "mail.send"]
    assert (effect.state, effect.result) == ("done", {"sent": True})


def test_files_go_back_and_forth(own_desk: Desk, own_story: WebStory):
    source = own_story.directory / "src" / "auth.py"
    now = source.read_text()
    own_desk.go(f"/c/{own_story.ids['files 0']}/files")
    own_desk.press("w")
    wait_for_sheet(own_desk)
    own_desk.see("A safety snapshot is taken first")
    confirm(own_desk, "Restored")
    assert source.read_text() != now
    assert (own_story.directory / "README.md").exists()
    own_desk.page.click(".toast >> text=Undo")
    own_desk.see("Undone.")
    assert source.read_text() == now


def test_a_diff_by_two_keys_and_a_comparison_by_two_marks(desk: Desk, web_story: WebStory):
    desk.go(f"/s/{SHOP}?at={web_story.ids['shop 9']}")
    desk.press("m", "j", "j", "d")
    desk.arrive("**/diff/**")
    desk.see("messages")
    desk.press("n", "n")
    desk.page.wait_for_selector(".is-here")
    desk.go("/")
    names = desk.page.eval_on_selector_all(".row .c-name", "all => all.map(e => e.innerText)")
    desk.page.focus(".list")
    desk.press("Home", *["j"] * names.index(SHOP), "m", "Home", *["j"] * names.index(BRANCH), "m")
    desk.arrive("**/compare/**")
    desk.see("First difference")


def test_branches_filters_and_the_scrubber(desk: Desk, web_story: WebStory):
    desk.go(f"/s/{SHOP}?at={web_story.ids['shop 14']}")
    desk.press("]")
    desk.page.wait_for_function("(id) => !location.search.includes(id)", arg=web_story.ids["shop 14"])
    desk.page.select_option("[aria-label=Branches]", "line")
    desk.see("25 checkpoints")
    desk.page.check("text=Tags")
    desk.see("1 checkpoint")
    desk.page.uncheck("text=Tags")
    desk.settle()  # a list that comes late selects its first row
    desk.page.focus("input[type=range]")
    desk.press("End")
    desk.page.wait_for_function("(id) => location.search.includes(id)", arg=web_story.ids["handoff"])
    desk.press("Home")
    desk.page.wait_for_function("(id) => location.search.includes(id)", arg=web_story.ids["shop 0"])
    desk.page.wait_for_function("() => document.querySelector('aside h2')?.innerText.startsWith('0 plan')")


def test_the_palette_finds_sessions_checkpoints_and_actions(desk: Desk, web_story: WebStory):
    desk.press("Control+k")
    desk.page.wait_for_selector("dialog[open] [role=combobox]")
    desk.page.keyboard.type("refactor")
    desk.page.wait_for_selector(f".option >> text={FILES}")
    desk.show("palette")
    desk.press("Enter")
    desk.arrive(f"**/s/{FILES}*")
    desk.press("Control+k")
    desk.page.wait_for_selector("dialog[open] [role=combobox]")
    desk.page.keyboard.type(web_story.ids["shop 5"][-8:])
    desk.page.wait_for_selector(f".option >> text={web_story.ids['shop 5'][-8:]}")
    desk.press("Enter")
    desk.arrive(f"**/c/{web_story.ids['shop 5']}*")
    desk.press("?")
    desk.see("On this screen")
    desk.check_access()
    desk.press("Escape")
    desk.page.wait_for_selector("dialog", state="detached")


def test_storage_shows_a_dry_run_and_a_check(own_desk: Desk, own_story: WebStory):
    before = read(own_story, lambda client: len(client.timeline(SHOP, limit=None)))
    own_desk.go("/storage")
    own_desk.page.get_by_label("Keep the newest N of each session").fill("2")
    own_desk.page.get_by_label("Only older than").fill("")
    own_desk.press("Enter")
    own_desk.page.wait_for_selector(".note[role=status], .error-box >> text=damaged")
    assert read(own_story, lambda client: len(client.timeline(SHOP, limit=None))) == before
    own_desk.press("Tab")
    own_desk.page.click("button >> text=Verify")
    own_desk.page.wait_for_selector("[role=alert] >> text=/problem|damaged/")


def test_commands_that_the_page_shows_are_commands(desk: Desk, web_story: WebStory):
    """Each shell line is parsed by the command line, each Python line names a method."""
    shown: set[str] = set()
    chosen = web_story.ids["shop 9"]
    screens = (
        "/inbox",
        "/topics",
        "/topics/drafts",
        "/log",
        "/storage",
        f"/compare/{SHOP}/{BRANCH}",
        f"/team/{RUN}",
        f"/s/{SHOP}",
    )
    for path in (f"/c/{chosen}", f"/c/{chosen}/meta", f"/diff/{chosen}", *screens):
        desk.go(path)
        desk.page.wait_for_selector(".command code, .error-box")
        shown.update(desk.page.eval_on_selector_all(".command code", "all => all.map(e => e.textContent)"))
    for key in "frtpw":
        desk.go(f"/c/{web_story.ids['shop 9']}")
        desk.press(key)
        wait_for_sheet(desk)
        shown.update(desk.page.eval_on_selector_all("dialog .command code", "all => all.map(e => e.textContent)"))
        desk.press("Escape")
    lines = sorted(line for line in shown if line.startswith("holdfast "))
    assert len(lines) >= 12
    for line in lines:
        words = shlex.split(line)[1:]
        context = click.Context(cli)
        command = cli.get_command(context, words[0])
        assert command is not None, line
        if isinstance(command, click.Group):
            command, words = command.get_command(context, words[1]), words[1:]
        command.make_context(words[0], words[1:])
    client_lines = [line for line in shown if line.startswith("client.")]
    for line in client_lines:
        assert hasattr(SyncClient, line.removeprefix("client.").partition("(")[0]), line
        compile(line.replace("…", "..."), "shown", "eval")
    assert len(client_lines) >= 12
