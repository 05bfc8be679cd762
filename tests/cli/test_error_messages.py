"""Error messages name options and commands, not parameters of the library.

Each command is called with each kind of wrong value: for every argument, and for every option
beside valid arguments.
"""

from __future__ import annotations

import inspect
import re
import shutil
from collections.abc import Iterator

import click
import pytest
from test_every_command import TABLE, call, places
from world import make_world

from holdfast import SyncClient
from holdfast.cli.main import COMMANDS, cli
from holdfast.cli.option_words import ADVICE, rephrase_message

WRONG = ["", "nobody", "@~999999", "main@{{", "x" * 300, "-1", "0", "nan", "0s", "a,b", "{{", "9" * 21, "2020-01-01",
         "main", "what-if"]  # fmt: skip
ENDLESS = ("--watch", "--follow", "--serve")
NOT_CALLED = ("demo", "watch", "events")  # they take long, or do not end


def parameters() -> set[str]:
    """Every parameter of the client's methods."""
    methods = [method for name, method in inspect.getmembers(SyncClient, callable) if not name.startswith("_")]
    return {name for method in methods for name in inspect.signature(method).parameters} - {"self"}


NAMES = "|".join(sorted(parameters()))
SNAKE = "|".join(sorted(name for name in parameters() if "_" in name))
PYTHON = re.compile(rf"(?<![\w-])(?:{NAMES})=|\b(?:{SNAKE})\b|(?<![\w.])[a-z]\w+\((?:\)|\.\.\.)")


def wrong_calls(name: str) -> Iterator[tuple[str, ...]]:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    for case in TABLE[name]:
        words, dashes, rest = case.ok.partition("-- ")
        ours, theirs = words.split(), (dashes + rest).split()
        for place in range(len(ours)):
            yield from ((*ours[:place], wrong, *ours[place + 1 :], *theirs) for wrong in WRONG)
        inner = command
        if isinstance(command, click.Group):
            inner = command.commands.get(ours[0] if ours else "", command)
        for param in inner.params:
            option = param.opts[0]
            if not isinstance(param, click.Option) or option in ("--store", "--json", *ENDLESS):
                continue
            values = [()] if param.is_flag else [(wrong,) for wrong in WRONG]
            yield from ((*ours, option, *value, *theirs) for value in values)


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    root = tmp_path_factory.mktemp("world")
    (root / "asking").mkdir()
    (root / "asking" / "holdfast.toml").write_text('store = "redis://127.0.0.1"\n')
    with SyncClient.sqlite(root / ".holdfast" / "store.db") as client:
        return root, make_world(root, client)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in NOT_CALLED])
def test_no_message_names_a_parameter(run, made_once, tmp_path, monkeypatch, name):
    root, ids = made_once
    for number, words in enumerate(wrong_calls(name)):
        here = tmp_path / str(number)
        shutil.copytree(root, here)
        monkeypatch.chdir(here)
        result = call(run, {**ids, **places(here)}, name, "", *words)
        assert result.exit_code in range(7), words
        found = PYTHON.search(result.stderr)
        assert found is None, f"holdfast {name} {' '.join(words)}: {found[0]} in {result.stderr}"
        monkeypatch.chdir(tmp_path)
        shutil.rmtree(here)


@pytest.mark.parametrize(
    ("command", "said", "meant"),
    [
        ("fork", "Choose another session_id, or leave it out", "Choose another --session, or leave it out"),
        ("replay", "Choose another session_id", "Choose another --name"),
        ("adopt", "say session_id", "say --into"),
        ("sessions", "limit=-1 is wrong", "--limit -1 is wrong"),
        ("rollback", "name them in acknowledge=[...], or leave out strict=True",
         "name them in --acknowledge [...], or leave out --strict"),
        ("convert", "Accept it: accept=['images', 'result_files']; or",
         "Accept it: --accept images --accept result_files; or"),
        ("restore", 'keep="user" (--keep-user) leaves them', "--keep-user leaves them"),
        ("replay", "with steps={'pay': 'live'}", "with --live 'pay'"),
        ("save", "move_tag moves the tag that `tag` names", "--move-tag moves the tag that `--tag` names"),
        ("save", "ttl_seconds is 0: it must be positive", "ttl seconds is 0: it must be positive"),
        ("timeline", "there is no session 'limit=5' here", "there is no session 'limit=5' here"),
        ("timeline", "it can't be 'session_id', say session_id", "it can't be 'session_id', say SESSION"),
        ("timeline", "stores/session_id/x is no store", "stores/session_id/x is no store"),
        ("du", "the host=a has no timeout", "the host=a has no timeout"),
    ],
)  # fmt: skip
def test_a_parameter_is_named_by_the_option_of_the_command(command, said, meant):
    found = cli.get_command(click.Context(cli), command)
    assert found is not None
    assert rephrase_message(said, click.Context(found, info_name=command)) == meant


def test_the_address_of_a_store_stays_what_it_is():
    said = "the store redis://127.0.0.1/0?shards=1&prefix=agents can't be reached"
    assert rephrase_message(said, click.Context(cli, info_name="doctor")) == said


def test_what_a_program_did_is_told_in_its_own_words(run, made_once, tmp_path, monkeypatch):
    shutil.copytree(made_once[0], tmp_path, dirs_exist_ok=True)
    (tmp_path / "wrong_program.py").write_text(
        "from holdfast import SyncClient\n"
        "def main(run):\n"
        "    with SyncClient.memory() as client:\n"
        "        client.save('a', ttl_seconds=0)\n"
    )
    monkeypatch.chdir(tmp_path)
    result = run("resume", "steps", "wrong_program:main")
    assert result.exit_code == 2
    assert "ttl_seconds is 0" in result.stderr


def test_settings_keep_their_names(run, tmp_path):
    """A setting of holdfast.toml may have the name of a parameter and of an option."""
    (tmp_path / "holdfast.toml").write_text("[workspace]\ninclude_git = 1\n")
    for command in (["snap"], ["restore", "main", "--yes"]):
        assert "include_git must be true or false" in run(*command).stderr
    du = cli.get_command(click.Context(cli), "du")
    assert du is not None
    assert rephrase_message("more than 9 bytes (max_bytes)", click.Context(du)) == "more than 9 bytes (max_bytes)"


def test_advice_that_is_translated_is_given(pytestconfig):
    """An entry of the table that no message matches any more is to be removed."""
    source = "".join(path.read_text("utf-8") for path in (pytestconfig.rootpath / "src" / "holdfast").rglob("*.py"))
    text = (
        re.sub(r"\"\s*\n\s*f?\"", "", source).replace("{{", "{").replace("}}", "}").replace("{call.name!r:.60}", "'x'")
    )
    text = text.replace("{MOVES}", "`move_tag=True` moves it (`holdfast save --move-tag`)")
    for advice in ADVICE:
        assert re.search(advice, text), advice
