"""All commands, in one table: `--json` prints what docs/json-output.md says, and what goes wrong has its exit code.

A command that is not in the table makes this fail. `{first}` and the like stand for what the store holds (see `world`).
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from stores import SOME_ID
from world import PROGRAM, make_world

from holdfast import SyncClient
from holdfast.cli.main import COMMANDS

pytestmark = pytest.mark.every_store

DOCUMENTED = (Path(__file__).parents[2] / "docs" / "json-output.md").read_text("utf-8")
# Below these are values of the user's own, or names that are data.
FREE = {"metadata", "tasks", "execution_state", "agent_context", "arguments", "identity", "usage", "heads", "result",
        "value", "schema", "witness",
        "old", "new", "checkpointer"}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """How a command is called so that all goes well; so that something is not there; so that it conflicts.

    `needs_store`: without a store it exits with 3, and with one that is no database with 5. `reads`: it is about the
    checkpoint `{second}`, and exits with 5 if that is damaged. `lines`: it prints a JSON object to a line.
    """

    ok: str
    missing: str | None = None
    conflict: str | None = None
    needs_store: bool = True
    reads: str | None = None
    lines: bool = False
    about: str | None = None  # where its fields are documented, if not under its own name


TABLE: dict[str, list[Case]] = {
    "init": [Case("", missing="{directory}", needs_store=False)],
    "ui": [],  # tests/web/test_ui_command.py: it serves until it is stopped
    "demo": [],  # test_demo.py: it takes seconds
    "status": [Case("")],
    "sessions": [Case("")],
    "runs": [Case("")],
    "timeline": [
        Case("main", missing="nobody", reads="main"),
        Case("main --graph", missing="nobody --graph", reads="main --graph"),
    ],
    "show": [
        Case("main", missing="nobody", reads="{second}"),
        Case("{second} --search two", missing="{second} --search nowhere", reads="{second} --search two"),
    ],
    "save": [
        Case(
            "main {state}",
            missing="main {state} --expect-head nobody",
            conflict="main {state} --expect-head {first}",
            needs_store=False,
        )
    ],
    "snap": [Case("--dir {directory}", conflict="--dir {directory} --session held", needs_store=False)],
    "diff": [Case("{first} {second}", missing="{first} nobody", reads="{first} {second}")],
    "compare": [Case("main what-if", missing="main nobody")],
    "bisect": [Case("main -- true", missing="nobody -- true", reads="main -- false")],
    "replay": [Case("steps every_command_program:main", missing="nobody every_command_program:main")],
    "work": [Case("every_command_program --drain", needs_store=False)],
    "retry": [Case("job", missing="nobody", conflict="void")],
    "resume": [
        Case(
            "steps every_command_program:main",
            missing="nobody every_command_program:main",
            conflict="held every_command_program:main",
        )
    ],
    "events": [Case("--after start --no-follow", lines=True)],
    "restore": [Case("{snapshot} --dir {directory} --yes", missing="nobody --dir {directory} --yes")],
    "rollback": [
        Case(
            "main {first} --yes", missing="nobody {first} --yes", conflict="held {held} --yes",
            reads="main {second} --yes"
        )
    ],
    "undo": [Case("", missing="00000000", conflict="{undone}")],
    "redo": [Case("", missing="00000000", conflict="{tagged}")],
    "op": [Case("log")],
    "fork": [
        Case("{snapshot} {new} --dir {directory}", missing="nobody {new} --dir {directory}"),
        Case("{second} --set messages.0=x", missing="nobody", conflict="{second} --name main",
             reads="{second} --set messages.0=x"),
    ],
    "adopt": [Case("what-if --yes", missing="nobody --yes")],
    "convert": [
        Case("{second} --to crewai", missing="nobody --to crewai", reads="{second} --to crewai"),
        Case("{second} --to crewai --save", missing="nobody --to crewai --save",
             conflict="{second} --to crewai --save --session what-if"),
    ],
    "hook": [Case("claude-code --yes", needs_store=False)],
    "rewind": [Case("{snapshot} --dir {directory} --yes", missing="nobody --dir {directory} --yes")],
    "watch": [Case("{directory} --count 1", needs_store=False, lines=True)],
    "handoff": [Case("{first} helper", missing="nobody helper", conflict="{held} helper", reads="{second} helper")],
    "inbox": [Case("approver")],
    "claim": [
        Case("{handed} --agent approver", missing="nobody --agent approver", conflict="{taken} --agent approver"),
    ],
    "release": [],  # below
    "approvals": [Case("", missing="nobody")],
    "approve": [Case("{approval} --yes", missing="00000000 --yes", conflict="{decided} --yes")],
    "reject": [Case("{approval}", missing="00000000", conflict="{decided}")],
    "effects": [Case("", missing="nobody")],
    "resolve": [Case("{effect} --done", missing="00000000 --done", conflict="{settled} --done")],
    "tag": [
        Case("", needs_store=True),
        Case("later {second}", missing="later nobody", conflict="release {second}", reads="later {second}"),
    ],
    "pin": [Case(""), Case("{second}", missing="nobody", reads="{second}")],
    "expire": [
        Case("{second} --yes", missing="nobody --yes", conflict="{first} --yes", reads="{second} --yes"),
        Case("{second} --dry-run", missing="nobody --dry-run", conflict="{first} --dry-run"),
    ],
    "retain": [Case("--keep-last 1", reads="--keep-last 1")],
    "gc": [Case("--dry-run", reads="--dry-run")],
    "du": [Case("", missing="nobody", reads="")],
    "export": [Case("main -o {new}", missing="nobody -o {new}", reads="-o {new}")],
    "import": [Case("{bundle}", needs_store=False, missing="{new}")],
    "copy": [Case("{path} {new}", missing="{nowhere} {new}", needs_store=False)],
    "encrypt": [],  # these three: tests/sealing/test_key_commands.py
    "keys": [],
    "rekey": [],
    "contract": [
        Case("list"),
        Case("show draft", missing="show nothing"),
        Case("diff draft@1 draft@1", missing="diff draft@1 draft@9"),
    ],
    "topics": [Case(""), Case("news", missing="nothing")],
    "publish": [Case("news {state}", needs_store=False, conflict="news {state} --id {message}")],
    "messages": [Case("news", lines=True)],
    "dead": [
        Case("news"),
        Case("news --group mailer --discard {dead}", missing="news --group mailer --discard {message}"),
    ],
    "redeliver": [Case("news mailer {dead}", missing="news nobody {message}")],
    "team": [Case("main", missing="nobody")],
    "cancel": [Case("main --yes", missing="nobody --yes"), Case("main --dry-run", missing="nobody --dry-run")],
    "langgraph": [Case("threads")],
    "verify": [Case("", missing="nobody", reads="")],
    "scan": [Case("", missing="nobody")],
    "migrate": [Case("--check", missing="--check --session nobody")],
    "trust": [Case("{asking} --yes", needs_store=False), Case("--list", needs_store=False)],
    "doctor": [Case("")],
    "completion": [Case("bash", needs_store=False)],
}  # fmt: skip
CASES = [pytest.param(name, case, id=f"{name} {case.ok}".strip()) for name, cases in TABLE.items() for case in cases]


@pytest.fixture(scope="module")
def made_once(tmp_path_factory) -> tuple[Path, dict[str, str]]:
    """A directory with a store that has something of everything; what commands are given, by name."""
    root = tmp_path_factory.mktemp("world")
    (root / "asking").mkdir()
    (root / "asking" / "holdfast.toml").write_text('store = "redis://127.0.0.1"\n')
    with SyncClient.sqlite(root / ".holdfast" / "store.db") as client:
        return root, make_world(root, client)


@pytest.fixture
def world(made_once, tmp_path) -> dict[str, str]:
    """A copy of it, in the current directory."""
    root, ids = made_once
    shutil.copytree(root, tmp_path, dirs_exist_ok=True)
    return {**ids, **places(tmp_path)}


def places(root: Path) -> dict[str, str]:
    names = {
        "path": ".holdfast/store.db", "directory": "project", "asking": "asking", "state": "state.json", "new": "new",
        "nowhere": "nowhere.db", "bundle": "bundle.hf",
    }  # fmt: skip
    return {name: str(root / where) for name, where in names.items()}


@pytest.fixture
def nowhere(tmp_path_factory, monkeypatch) -> Mapping[str, str]:
    """A directory without a store; whatever is asked for by an id is not there."""
    root = tmp_path_factory.mktemp("empty")
    monkeypatch.chdir(root)
    (root / "project").mkdir()
    (root / "every_command_program.py").write_text(PROGRAM)
    return defaultdict(lambda: SOME_ID, places(root))


def call(run, world: Mapping[str, str], name: str, args: str, *flags: str) -> Any:
    ours, dashes, command = args.partition("-- ")  # what follows is a command line of its own
    words = [*ours.split(), *flags, *dashes.split(), *command.split()]
    return run(name, *(word.format_map(world) for word in words))


def error_of(result: Any) -> dict[str, Any]:
    """What `--json` says of a failure: the last line of stderr. The lines before it are words."""
    said: dict[str, Any] = json.loads(result.stderr.splitlines()[-1])
    assert list(said) == ["error"]
    error: dict[str, Any] = said["error"]
    assert error["exit_code"] == result.exit_code
    assert set(error) <= documented_of_errors()
    assert error["message"]
    assert isinstance(error["did_you_mean"], list)
    assert result.stderr.isascii()
    return error


def test_release_gives_back_what_was_claimed_and_nothing_else(run, world):
    token = json.loads(call(run, world, "claim", "{handed} --agent approver", "--json").stdout)["token"]
    result = call(run, world, "release", "{handed}", "--token", str(token), "--json")
    assert result.exit_code == 0
    assert set(fields(json.loads(result.stdout))) <= documented("release")
    for ref, code in (("{handed}", 4), ("nobody", 3)):
        result = call(run, world, "release", ref, "--token", str(token), "--json")
        assert (result.exit_code, result.stdout) == (code, "")


def test_every_command_is_in_the_table():
    assert set(TABLE) == set(COMMANDS)


@pytest.mark.parametrize(("name", "case"), CASES)
def test_json_is_what_is_documented(run, world, name, case):
    result = call(run, world, name, case.ok, "--json")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.isascii()
    printed = [json.loads(line) for line in result.stdout.splitlines()] if case.lines else [json.loads(result.stdout)]
    assert printed
    known = documented(name)
    for value in printed:
        assert isinstance(value, dict)
        assert set(fields(value)) <= known


@pytest.mark.parametrize(("name", "case"), [one for one in CASES if one.values[1].missing is not None])
def test_what_is_not_there_exits_with_3_and_prints_nothing(run, world, name, case):
    result = call(run, world, name, case.missing)
    assert (result.exit_code, result.stdout) == (3, ""), result.stderr
    assert result.stderr.startswith("holdfast: ")
    result = call(run, world, name, case.missing, "--json")
    assert (result.exit_code, result.stdout) == (3, "")
    assert error_of(result)["kind"].endswith("not_found")


@pytest.mark.parametrize(("name", "case"), [one for one in CASES if one.values[1].conflict is not None])
def test_a_conflict_exits_with_4_and_prints_nothing(run, world, name, case):
    result = call(run, world, name, case.conflict)
    assert (result.exit_code, result.stdout) == (4, ""), result.stderr
    assert "holdfast: " in result.stderr
    result = call(run, world, name, case.conflict, "--json")
    assert (result.exit_code, result.stdout) == (4, "")
    error_of(result)


@pytest.mark.parametrize(("name", "case"), [one for one in CASES if one.values[1].reads is not None])
def test_damage_exits_with_5(run, world, name, case):
    connection = sqlite3.connect(world["path"])
    id_ = bytes.fromhex(world["second"].replace("-", ""))
    [[data]] = connection.execute("SELECT data FROM record WHERE id = ?", (id_,))
    damaged = data[:40] + bytes((data[40] ^ 1,)) + data[41:]
    connection.execute("UPDATE record SET data = ? WHERE id = ?", (damaged, id_))
    connection.commit()
    connection.close()
    result = call(run, world, name, case.reads)
    assert result.exit_code == 5, result.stderr
    assert "holdfast: " in result.stderr
    result = call(run, world, name, case.reads, "--json")
    assert result.exit_code == 5, result.stderr
    if result.stdout:  # what could be read
        json.loads(result.stdout)
    else:
        assert error_of(result)["kind"] == "corrupt"


@pytest.mark.parametrize(("name", "case"), [one for one in CASES if one.values[1].needs_store])
def test_without_a_store_it_exits_with_3_and_says_how_to_begin(run, nowhere, name, case):
    result = call(run, nowhere, name, case.ok)
    assert result.exit_code == 3
    assert "holdfast demo" in result.output
    assert {path.name for path in Path.cwd().iterdir()} - {"__pycache__"} == {"project", "every_command_program.py"}
    result = call(run, nowhere, name, case.ok, "--json")
    assert result.exit_code == 3
    if name != "doctor":  # it found that
        assert error_of(result)["kind"] == "store_not_found"


@pytest.mark.parametrize(("name", "case"), [one for one in CASES if one.values[1].needs_store])
def test_a_store_that_is_no_database_exits_with_5(run, nowhere, monkeypatch, name, case):
    Path("other.db").write_text("this is no database " * 500)
    monkeypatch.setenv("HOLDFAST_URL", "other.db")
    result = call(run, nowhere, name, case.ok)
    assert result.exit_code == 5
    assert "damaged or not a SQLite database" in result.output
    result = call(run, nowhere, name, case.ok, "--json")
    assert result.exit_code == 5
    if name != "doctor":
        assert error_of(result)["kind"] == "corrupt"


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("wrong", ["--nonsense", "--store"])
def test_a_wrong_command_line_is_told_as_json(run, name, wrong):
    """An option that is not there, and one without its value; before and after the command."""
    inner = {
        "op": ["log"],
        "langgraph": ["threads"],
        "contract": ["list", "show"],
        "import": ["file"],
        "keys": ["export"],
    }.get(name, [])
    for args in ([name, *inner, "--json", wrong], ["--nonsense", name, *inner, "--json"]):
        result = run(*args)
        assert (result.exit_code, result.stdout) == (2, "")
        assert error_of(result)["kind"] == "usage"
        assert len(result.stderr.splitlines()) == 1


def test_a_store_that_cannot_be_reached_is_told_as_json(run):
    for name, cases in TABLE.items():
        if any(case.needs_store for case in cases) and name not in ("doctor", "compare", "bisect"):
            result = call(
                run, defaultdict(lambda: SOME_ID, directory="."), name, cases[0].ok, "--store", "mysql://x/y", "--json"
            )
            assert result.exit_code in (1, 2, 3), name
            error_of(result)


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1", "postgresql://127.0.0.1:1/none"])
def test_a_server_that_is_down_is_told_as_json(run, url):
    pytest.importorskip("redis" if url.startswith("redis") else "psycopg")
    result = run("sessions", "--store", url, "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert error_of(result)["kind"] == "store"


def test_a_json_of_the_program_that_is_called_is_not_ours(run, world):
    result = run("bisect", "nobody", "--", "true", "--json")
    assert result.stderr.startswith("holdfast: ")


def test_a_file_that_cannot_be_written_is_told_without_a_traceback(run, world):
    result = run("export", "main", "-o", "x" * 300)
    assert result.exit_code == 1
    assert result.stderr.startswith("holdfast: ")
    assert error_of(run("export", "main", "-o", "x" * 300, "--json"))["kind"] == "system"


def test_an_error_carries_what_is_known_of_it(run, world):
    error = error_of(call(run, world, "save", "held {state}", "--json"))
    assert error["kind"] == "lease_held"
    assert error["holder"]
    assert error["expires_at"].endswith("Z")


def fields(value: Any) -> Iterator[str]:
    """Every field of the output but those within values of the user's own."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            if name not in FREE:
                yield from fields(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from fields(inner)


def documented_of_errors() -> set[str]:
    [section] = re.findall(r"^## An error$(.*?)^## ", DOCUMENTED, re.MULTILINE | re.DOTALL)
    section = re.sub(r"^```.*?^```$", "", section, flags=re.MULTILINE | re.DOTALL)
    return {word for quoted in re.findall(r"`([^`]+)`", section) for word in re.findall(r"\w+", quoted)}


def documented(name: str) -> set[str]:
    """The words that stand in backticks where the command is documented, there where it refers to,
    and of checkpoints."""
    _, _, of_checkpoints, _, of_commands = re.split(r"^## .*$", DOCUMENTED, flags=re.MULTILINE)
    paragraphs = of_commands.split("\n\n")
    own = "\n".join(one for one in paragraphs if re.search(rf"`holdfast {name}[` ]", one))
    assert own, f"docs/json-output.md says nothing about `holdfast {name}`"
    referred = [other for other in COMMANDS if re.search(rf"`holdfast {other}[` ]", own)]
    text = "\n".join(one for one in paragraphs for other in referred if re.search(rf"`holdfast {other}[` ]", one))
    return {word for quoted in re.findall(r"`([^`]+)`", text + of_checkpoints) for word in re.findall(r"\w+", quoted)}
