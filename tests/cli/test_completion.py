"""Completion by the shell: what it offers, what it never offers, and that it is silent."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from stores import python

from holdfast import SyncClient
from holdfast.cli.main import COMMANDS, cli

HOLDFAST = Path(sys.executable).with_name("holdfast")


@pytest.fixture
def complete():
    """What bash would be offered for a line; the last word is the incomplete one."""

    def ask(*words: str) -> list[str]:
        environment = {
            "_HOLDFAST_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(("holdfast", *words)),
            "COMP_CWORD": str(len(words)),
        }
        result = CliRunner().invoke(cli, prog_name="holdfast", env=environment, catch_exceptions=False)
        assert result.stderr == ""
        return [line.removeprefix("plain,") for line in result.stdout.splitlines() if line]

    return ask


def test_commands_and_options(complete):
    assert complete("tim") == ["timeline"]
    assert complete("") == list(COMMANDS)
    assert "--graph" in complete("timeline", "--g")
    assert complete("completion", "") == ["bash", "zsh", "fish"]


def test_commands_are_completed_without_importing_them():
    done = python("""
        import sys
        from holdfast.cli.main import cli
        import click
        assert len(cli.shell_complete(click.Context(cli), "")) > 5
        print([name for name in sys.modules if name.startswith("holdfast.cli.commands.")])
    """)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    "words", [("timeline",), ("verify",), ("migrate", "--check", "--session"), ("show",), ("export",)]
)
def test_sessions(complete, made, words):
    assert complete(*words, "m") == ["main"]
    assert complete(*words, "what") == ["what-if"]
    assert complete(*words, "nobody") == []


def test_checkpoints_by_their_short_ids(complete, made):
    offered = complete("show", "")
    short = {id_.replace("-", "")[-8:] for id_ in (made.first, made.second, made.handed, made.fork.checkpoint_id)}
    assert set(offered) == {"main", "what-if"} | short
    digits = made.second.replace("-", "")[-8:]
    assert digits in complete("show", digits[:3])


def test_agents(complete, made):
    assert complete("sessions", "--agent", "w") == ["worker"]


def test_of_the_store_that_is_named(complete, tmp_path):
    with SyncClient.files(tmp_path / "elsewhere") as client:
        client.save("a", session_id="far-away")
    assert complete("timeline", "") == []
    assert complete("--store", "elsewhere", "timeline", "") == ["far-away"]
    assert complete("timeline", "--store", "elsewhere", "") == ["far-away"]


def test_a_name_that_a_shell_would_not_take_literally_is_never_offered(complete, tmp_path):
    hostile = ["$(touch pwned)", "`id`", "a;b", "a b", "-rf", "a\nplain,b", "*", "~root", "'q'", "a|b", "é'", "\x1b[0m"]
    literal = ["user:42", "a/b", "run-001", "ünï", "x@y.z"]
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        for name in (*hostile, *literal):
            client.save(name, session_id=name)
    assert sorted(complete("timeline", "")) == sorted(literal)
    assert sorted(complete("sessions", "--agent", "")) == sorted(literal)
    assert set(hostile).isdisjoint(complete("show", ""))


@pytest.mark.parametrize("damage", ["no store", "no database", "a directory"])
def test_any_error_is_silence(complete, tmp_path, damage):
    if damage == "no database":
        (tmp_path / ".holdfast").mkdir()
        (tmp_path / ".holdfast" / "store.db").write_text("not a database " * 99)
    elif damage == "a directory":
        (tmp_path / ".holdfast" / "store.db").mkdir(parents=True)
    assert complete("timeline", "") == []
    assert complete("show", "") == []


def test_a_damaged_session_is_silence_too(complete, made):
    import sqlite3

    connection = sqlite3.connect(made.path)
    connection.execute("UPDATE row SET value = x'00' WHERE space = 'head' AND key = CAST('main' AS BLOB)")
    connection.commit()
    connection.close()
    assert complete("timeline", "") == ["what-if"]


def test_nothing_is_made_by_looking(complete, tmp_path):
    complete("timeline", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("shell", "word", "expected"), [("zsh", "2", "plain\nmain\n_\n"), ("fish", "m", "plain,main\n")]
)
def test_what_other_shells_ask_and_get(made, shell, word, expected):
    asked = {"_HOLDFAST_COMPLETE": f"{shell}_complete", "COMP_WORDS": "holdfast timeline m", "COMP_CWORD": word}
    result = CliRunner().invoke(cli, prog_name="holdfast", env=asked, catch_exceptions=False)
    assert (result.stdout, result.stderr) == (expected, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts(run, shell):
    script = run("completion", shell).stdout
    assert f"_HOLDFAST_COMPLETE={shell}_complete" in script
    assert json.loads(run("completion", shell, "--json").stdout) == {
        "shell": shell,
        "script": script.removesuffix("\n"),
    }


def test_other_shells_are_wrong_usage(run):
    assert run("completion", "tcsh").exit_code == 2


@pytest.mark.skipif(shutil.which("bash") is None or not HOLDFAST.exists(), reason="there is no bash, or no holdfast")
def test_in_a_real_bash(made, tmp_path):
    script = """
        eval "$(holdfast completion bash)"
        complete -p holdfast
        for line in "tim" "timeline ma" "--store"; do
            COMP_WORDS=(holdfast $line) COMPREPLY=()
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
            _holdfast_completion holdfast
            echo "${COMPREPLY[@]}"
        done
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{HOLDFAST.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "complete -o nosort -F _holdfast_completion holdfast", "timeline", "main", "--store",
    ]  # fmt: skip
