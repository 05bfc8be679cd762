"""Tools of a coding agent: what they give, what they refuse, and that no path leaves their directory."""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ApprovalPendingError, EffectNotDoneError, SyncFileCheckpoints, UsageError, agent, tool
from holdfast.agent_loop.coding_tools import edit_once
from holdfast.tools import ToolLimits, bash, edit_file, read_file, write_file

ALL = [bash, read_file, write_file, edit_file]


def wants(name, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}


def scripted(*replies):
    """A model that says these in turn, and remembers the last answer that it was given."""
    left = list(replies)

    def model(messages, _tools):
        model.told = messages
        return left.pop(0)

    return model


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.txt").write_text("one\ntwo\nthree\n")
    return root


def call(one, project, **arguments):
    return one.within(project).fn(**arguments)


# -- in an agent -------------------------------------------------------------------------------------------------------


def test_a_coding_agent_works_in_its_workspace(client, project):
    model = scripted(
        wants("read_file", path="a.txt"),
        wants("edit_file", path="a.txt", old="two", new="2"),
        wants("write_file", path="src/b.txt", text="hello"),
        wants("bash", command="cat a.txt src/b.txt; pwd"),
        "done",
    )
    bot = agent(model=model, tools=ALL, checkpoints=client, session_id="s", workspace=project)
    turn, state = bot.generate("go on")
    assert turn.text == "done"
    answers = [message["content"] for message in state.messages if message["role"] == "tool"]
    assert answers[0] == "one\ntwo\nthree\n"
    assert answers[3] == f"one\n2\nthree\nhello{os.path.realpath(project)}\n"


def test_an_awaited_agent_and_a_workspace_that_is_open_already(memory_store, project):
    async def story():
        async with memory_store.async_client() as client:
            workspace = client.workspace(project)
            model = scripted(wants("write_file", path="b.txt", text="hello"), "done")
            bot = agent(model=model, tools=ALL, checkpoints=client, session_id="s", workspace=workspace)
            turn, state = await bot.generate("go on")
            return turn.text, state

    text, state = asyncio.run(story())
    assert (text, state.step) == ("done", 2)
    assert (project / "b.txt").read_text() == "hello"


def test_without_a_workspace_they_work_in_the_current_directory_or_in_one_that_is_given(quick, project, monkeypatch):
    monkeypatch.chdir(project)
    model = scripted(wants("read_file", path="a.txt"), "done")
    agent(model=model, tools=ALL, checkpoints=quick, session_id="s").generate("go on")
    assert model.told[-1]["content"].startswith("one")
    other = project / "other"
    other.mkdir()
    model = scripted(wants("write_file", path="a.txt", text="x"), "done")
    tools = [write_file.within("other")]
    agent(model=model, tools=tools, checkpoints=quick, session_id="t", workspace=project).generate("go on")
    assert (other / "a.txt").read_text() == "x"
    assert (project / "a.txt").read_text() == "one\ntwo\nthree\n"


def test_a_sub_agent_works_in_the_workspace_of_the_agent_that_asks_it(quick, project):
    scout = agent(model=scripted(wants("read_file", path="a.txt"), "it says one"), tools=[read_file])
    model = scripted(wants("scout", prompt="what?"), "done")
    tools = [scout.as_tool("scout", "Finds things out.")]
    bot = agent(model=model, tools=tools, checkpoints=quick, session_id="s", workspace=project)
    _, state = bot.generate("go on")
    [trace] = state.subagent_traces
    assert [one.failed for one in trace.tool_calls] == [False]


def test_each_has_its_kind_and_a_question_changes_no_files(quick, project):
    assert [one.kind for one in ALL] == [None, "read", "workspace", "workspace"]
    offered = []

    def model(_messages, tools):
        offered.extend(one["function"]["name"] for one in tools)
        return "nothing"

    agent(model=model, tools=ALL, checkpoints=quick, session_id="s", workspace=project).query("what?")
    assert offered == ["read_file"]


def test_after_a_rollback_files_are_written_again(sqlite_store, project):
    """A recorded result would say that a file is there which the rollback took away."""
    client = sqlite_store.client()
    workspace = client.workspace(project)
    write = wants("write_file", path="b.txt", text="hello")
    model = scripted(write, "done", "done")
    bot = agent(model=model, tools=ALL, checkpoints=client, session_id="s", workspace=workspace)
    bot.generate("go on")
    before = [one for one in client.timeline(session_id="s", limit=None) if one.step_name == "model"][-1]
    workspace.restore(before.checkpoint_id, scope="both", session_id="s")
    assert not (project / "b.txt").exists()
    assert bot.generate().text == "done"
    assert (project / "b.txt").read_text() == "hello"
    assert client.effects("s") == []  # nothing was done to the outside world


def test_a_command_is_an_effect_and_a_new_call_is_a_new_decision(quick, project):
    run = wants("bash", command="echo x >> log")
    model = scripted(run, run, "done")
    agent(model=model, tools=ALL, checkpoints=quick, session_id="s", workspace=project).generate("go on")
    assert (project / "log").read_text() == "x\nx\n"
    assert len(quick.effects("s")) == 2


def test_a_command_may_wait_for_approval(quick, project):
    model = scripted(wants("bash", command="echo x >> log"), "done")
    tools = [replace(bash, approve="ops")]
    bot = agent(model=model, tools=tools, checkpoints=quick, session_id="s", workspace=project)
    with pytest.raises(ApprovalPendingError):
        bot.generate("go on")
    assert not (project / "log").exists()
    [asked] = quick.approvals()
    quick.decide(asked.approval_id, "approve", by="ann")
    assert bot.generate().text == "done"
    assert (project / "log").read_text() == "x\n"


@pytest.mark.parametrize("kept", ["client", "file"])
def test_what_may_have_changed_files_before_it_was_cut_off_is_not_told_as_not_started(quick, tmp_path, kept):
    class Killed(BaseException):
        pass

    @tool(kind="workspace")
    def append(line: str) -> str:
        with (tmp_path / "log").open("a") as file:
            file.write(line)
        raise Killed

    checkpoints = quick if kept == "client" else SyncFileCheckpoints(tmp_path / "kept")
    options = {"tools": [append], "checkpoints": checkpoints, "session_id": "s", "on_open_call": "error"}
    with pytest.raises(Killed):
        agent(model=scripted(wants("append", line="x")), **options).generate("go on")
    model = scripted("I see")
    agent(model=model, **options).generate()
    assert "may have been carried out" in model.told[-1]["content"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("write_file", {"path": "a.txt"}),
        ("write_file", {"path": ["a.txt"], "text": "x"}),
        ("write_file", {"path": "a.txt", "text": {"a": 1}}),
        ("write_file", {"path": "a.txt", "text": "x", "mode": 7}),
        ("write_file", {"path": "a.txt", "text": "\ud800"}),
        ("write_file", {"path": "\ud800", "text": "x"}),
        ("write_file", {"path": "x" * 5000, "text": "x"}),
        ("write_file", {"path": "a.txt/b", "text": "x"}),
        ("write_file", {"path": "\0", "text": "x"}),
        ("edit_file", {"path": "gone", "old": "a", "new": "b"}),
        ("read_file", {"path": ""}),
        ("read_file", {"path": "a.txt", "first_line": "x"}),
        ("bash", {"command": "a\0b"}),
        ("bash", {"command": "\ud800"}),
        ("bash", {"command": 7}),
        ("bash", {"command": "echo " + "x" * 10_000_000}),
        ("rm", {"path": "a.txt"}),
    ],
)
def test_what_the_model_made_up_is_answered_and_nothing_is_done(quick, project, name, arguments):
    model = scripted(wants(name, **arguments), "I see")
    bot = agent(model=model, tools=ALL, checkpoints=quick, session_id="s", workspace=project)
    assert bot.generate("go on").text == "I see"
    assert model.told[-1]["content"].startswith("This call failed, and was not carried out.")
    assert "Traceback" not in model.told[-1]["content"]
    assert len(model.told[-1]["content"]) < 1000
    assert [one.name for one in project.iterdir()] == ["a.txt"]
    assert (project / "a.txt").read_text() == "one\ntwo\nthree\n"


# -- paths -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "../out.txt",
        "sub/../../out.txt",
        "/etc/hostname",
        "link/out.txt",
        "link",
        "file_link",
        ".",
        "/",
        "sub",
        "pipe",
        "no/such",
    ],
)
def test_no_path_leaves_the_directory(project, path):
    outside = project.parent / "out.txt"
    outside.write_text("secret")
    (project / "sub").mkdir()
    (project / "link").symlink_to(project.parent)
    (project / "file_link").symlink_to(outside)
    os.mkfifo(project / "pipe")
    with pytest.raises(EffectNotDoneError):
        call(read_file, project, path=path)
    with pytest.raises(EffectNotDoneError):
        call(edit_file, project, path=path, old="secret", new="x")
    if path != "no/such":
        with pytest.raises(EffectNotDoneError):
            call(write_file, project, path=path, text="x")
    assert outside.read_text() == "secret"
    assert (project / "file_link").is_symlink()


def test_a_whole_path_below_the_directory_is_taken_for_what_it_is(project):
    assert call(read_file, project, path=f"{os.path.realpath(project)}/a.txt") == "one\ntwo\nthree\n"
    (project.parent / "link").symlink_to(project)
    assert call(read_file, project.parent / "link", path=f"{project.parent}/link/a.txt") == "one\ntwo\nthree\n"
    with pytest.raises(EffectNotDoneError, match="relative"):
        call(read_file, project, path=f"{os.path.realpath(project)}-other/a.txt")


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", ".GIT/config", "sub/.git/config", ".holdfast/store.db"])
def test_what_programs_take_commands_from_is_not_written(project, path):
    with pytest.raises(EffectNotDoneError, match="not written"):
        call(write_file, project, path=path, text="x")
    assert [one.name for one in project.iterdir()] == ["a.txt"]


def test_a_file_keeps_its_mode_and_leaves_nothing_behind(project):
    script = project / "run.sh"
    script.write_text("echo 1")
    script.chmod(0o755)
    assert call(edit_file, project, path="run.sh", old="1", new="2") == "edited run.sh"
    assert script.stat().st_mode & 0o777 == 0o755
    assert sorted(one.name for one in project.iterdir()) == ["a.txt", "run.sh"]


def test_a_directory_that_is_gone_is_told(tmp_path):
    for one, arguments in (
        (read_file, {"path": "a"}),
        (write_file, {"path": "a", "text": ""}),
        (bash, {"command": "ls"}),
    ):
        with pytest.raises(EffectNotDoneError, match="gone"):
            one.within(tmp_path / "gone").fn(**arguments)


# -- reading -----------------------------------------------------------------------------------------------------------


def test_a_file_is_read_in_parts(project):
    (project / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 1001)))
    told = call(read_file, project, path="long.txt", first_line=10, lines=2)
    assert told == "line 10\nline 11\n[lines 10 to 11 of 1000: go on with first_line=12]"
    short = read_file.within(project, characters=40).fn
    assert short(path="long.txt").endswith("line 5\n[lines 1 to 5 of 1000: go on with first_line=6]")
    assert short(path="long.txt", first_line=1000) == "line 1000\n"
    assert short(path="long.txt", first_line=1001) == "[the file has 1000 lines]"
    (project / "wide.txt").write_text("x" * 100)
    assert short(path="wide.txt") == "x" * 40 + "\n[line 1 is cut off here: go on with first_line=2]"
    (project / "empty.txt").touch()
    assert short(path="empty.txt") == "[the file is empty]"


def test_what_is_no_text_or_too_large_is_refused(project):
    (project / "zeros").write_bytes(b"a\0b")
    (project / "latin").write_bytes(b"caf\xe9")
    with pytest.raises(EffectNotDoneError, match="zero"):
        call(read_file, project, path="zeros")
    assert call(read_file, project, path="latin") == "caf\ufffd"
    with pytest.raises(EffectNotDoneError, match="UTF-8"):
        call(edit_file, project, path="latin", old="c", new="k")
    for one, arguments in ((read_file, {}), (write_file, {"text": "12345"})):
        with pytest.raises(EffectNotDoneError, match="larger than 4 bytes"):
            one.within(project, file_bytes=4).fn(path="a.txt", **arguments)


# -- editing -----------------------------------------------------------------------------------------------------------


def test_an_edit_is_made_once_however_often_it_is_asked_for(project):
    for _ in range(2):
        call(edit_file, project, path="a.txt", old="two", new="two\ntwo and a half")
        assert (project / "a.txt").read_text() == "one\ntwo\ntwo and a half\nthree\n"
    assert "already" in call(edit_file, project, path="a.txt", old="two", new="two\ntwo and a half")
    for _ in range(2):
        call(edit_file, project, path="a.txt", old="three\n", new="")
        assert (project / "a.txt").read_text() == "one\ntwo\ntwo and a half\n"


@pytest.mark.parametrize(
    ("text", "old", "new", "told"),
    [
        ("a b a", "a", "c", "more than once"),
        ("aaa", "aa", "b", "more than once"),
        ("a", "x", "y", "does not occur"),
        ("a", "", "y", "empty"),
        ("a", "a", "a", "the same"),
        ("aabb", "ab", "", "would occur again"),
        ("x" * 100_000, "x", "xx", "more than once"),
    ],
)
def test_an_edit_that_is_not_clear_is_refused(text, old, new, told):
    with pytest.raises(EffectNotDoneError, match=told):
        edit_once(text, old, new)


@given(*[st.text("ab", max_size=8)] * 3)
def test_an_edit_that_is_repeated_changes_nothing(text, old, new):
    try:
        edited = edit_once(text, old, new)
    except EffectNotDoneError:
        return
    if edited is not None:
        assert edited != text
        assert edited == text.replace(old, new, 1)
        assert edit_once(edited, old, new) is None


# -- commands ----------------------------------------------------------------------------------------------------------


def test_a_command_tells_its_output_and_how_it_ended(project):
    assert call(bash, project, command="echo a; echo b >&2") == "a\nb\n"
    assert call(bash, project, command="printf a; exit 3") == "a\n[exit code 3]"
    assert call(bash, project, command="true") == "[no output]"
    assert call(bash, project, command="kill -9 $$") == "[killed by signal 9]"
    assert call(bash, project, command="cat") == "[no output]"  # there is no input to wait for
    assert call(bash, project, command="printf '\\xff'") == "\ufffd"


def test_a_command_that_takes_too_long_is_killed_with_its_children(project):
    began = time.monotonic()
    told = bash.within(project, seconds=5).fn(command="echo a; (sleep 30; touch late) & sleep 30", timeout=99)
    assert told == "a\n[killed: it took longer than 5 s]"
    assert call(bash, project, command="sleep 30", timeout=0.1) == "[killed: it took longer than 0.1 s]"
    assert time.monotonic() - began < 30  # which one sleep alone would take


@pytest.mark.parametrize("left", ["sleep 30 &", "yes &", "(exec >&- 2>&-; sleep 30) &"])
def test_what_a_command_leaves_in_the_background_does_not_hold_it_up(project, left):
    began = time.monotonic()
    assert call(bash, project, command=f"echo a; {left}").startswith("a\n")
    assert time.monotonic() - began < 10


def test_a_long_output_is_cut_in_its_middle(project):
    told = bash.within(project, characters=100).fn(
        command="echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last"
    )
    assert told.startswith("first\nxxx")
    assert told.endswith("xxx\nlast\n")
    assert "bytes are left out here" in told
    assert len(told) < 200


@pytest.mark.parametrize("kind", ["read", "workspace"])
def test_an_approval_that_would_not_be_asked_for_is_refused(kind):
    with pytest.raises(UsageError, match="approve"):
        tool(lambda: None, name="w", kind=kind, approve="ann")


def test_limits_that_can_not_be_right_are_refused():
    with pytest.raises(UsageError, match="seconds"):
        bash.within(".", second=5)
    for limits in ({"seconds": 0}, {"characters": -1}, {"file_bytes": "many"}):
        with pytest.raises(UsageError, match=next(iter(limits))):
            ToolLimits(**limits)
