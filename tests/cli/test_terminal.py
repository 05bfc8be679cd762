"""What reaches a terminal: nothing that a name could smuggle in, no colors where none are wanted, no tracebacks."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from terminal import on_a_terminal

from holdfast import SyncClient
from holdfast.cli.terminal.sanitize import escape, format_bytes, measure_width

pytestmark = pytest.mark.slow  # in sum: processes, terminals, waits

HOSTILE = [
    "\x1b[2J\x1b]0;owned\x07",
    "a\nb\rc\x08d",
    "nul\x00",
    "\x9b31m c1",
    "\u202egnp.exe",
    "\ud800 alone",
    "x" * 10_000,
    "[bold red]markup[/]",
    "日本語の名前",
]


@pytest.fixture
def hostile(tmp_path):
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        for name in HOSTILE:
            client.save(agent_id=name, session_id=name, step_name=name, execution_state={name: name}, app_version=name)


def is_harmless(text: str) -> bool:
    return all(char.isprintable() or char == "\n" for char in text)


def test_hostile_names_are_escaped_and_shortened(run, hostile):
    for args in (["sessions"], ["timeline"], *(["timeline", name] for name in HOSTILE), ["timeline", "--graph"]):
        result = run(*args)
        assert result.exit_code == 0
        assert is_harmless(result.stdout)
        assert is_harmless(result.stderr)
        assert max(map(len, result.stdout.splitlines())) < 800  # two names of 255, and no more of any
    for name in HOSTILE:
        result = run("show", name)
        assert result.exit_code == 0
        assert is_harmless(result.stdout)
        for option in ("--json", "--state"):
            result = run("show", name, option)
            assert result.stdout.isascii()
            assert is_harmless(result.stdout)


def test_hostile_names_in_errors(run, made):
    for name in HOSTILE:
        for args in (["timeline", name], ["show", name], ["verify", name], ["--store", f"/{name}", "sessions"]):
            result = run(*args)
            assert result.exit_code in (1, 2, 3)
            assert is_harmless(result.stderr)


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo terminal")
def test_on_a_terminal_titles_are_bold_unless_no_color_says_otherwise(hostile, tmp_path):
    bold = on_a_terminal("sessions", cwd=tmp_path, COLUMNS="130")
    assert "\x1b[1m" in bold
    assert is_harmless(bold.replace("\r\n", "\n").replace("\x1b[1m", "").replace("\x1b[0m", ""))
    assert "[bold red]markup[/]" in bold
    plain = on_a_terminal("sessions", cwd=tmp_path, NO_COLOR="1")
    assert is_harmless(plain.replace("\r\n", "\n"))


def test_colors_are_as_asked_for(run, made, monkeypatch):
    plain = run("diff", made.first, made.second).stdout
    assert "\x1b[" not in plain
    colored = run("--color", "always", "diff", made.first, made.second).stdout
    assert "\x1b[32m+ " in colored
    monkeypatch.setenv("NO_COLOR", "1")
    assert run("--color", "always", "diff", made.first, made.second).stdout == colored
    assert run("--color", "sometimes", "diff").exit_code == 2


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals")
def test_a_terminal_gets_a_colored_diff_unless_it_wants_none(made, tmp_path):
    args = ("diff", made.first, made.second)
    assert "\x1b[32m+ " in on_a_terminal(*args, cwd=tmp_path)
    assert "\x1b[" not in on_a_terminal(*args, cwd=tmp_path, NO_COLOR="1")
    assert "\x1b[" not in on_a_terminal("--color", "never", *args, cwd=tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals")
def test_what_is_longer_than_the_screen_goes_through_a_pager(made, tmp_path):
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho paged\ncat\n")
    pager.chmod(0o700)
    small = {"PAGER": str(pager), "LINES": "3", "COLUMNS": "100"}
    shown = on_a_terminal("timeline", "main", cwd=tmp_path, **small)
    assert shown.startswith("paged")
    assert made.first[-8:] in shown
    wrapped = on_a_terminal("timeline", "main", "--graph", cwd=tmp_path, **{**small, "LINES": "8", "COLUMNS": "30"})
    assert wrapped.startswith("paged")  # four lines that take more of the screen
    for args, environment in (
        (("timeline", "main"), {**small, "LINES": "50"}),
        (("--no-pager", "timeline", "main"), small),
        (("timeline", "main"), {**small, "PAGER": ""}),
    ):
        shown = on_a_terminal(*args, cwd=tmp_path, **environment)
        assert "paged" not in shown
        assert made.first[-8:] in shown


def test_without_a_terminal_there_is_no_pager(run_process, made, tmp_path):
    shown = run_process("timeline", "main", PAGER="false", LINES="2").stdout
    assert made.first[-8:] in shown


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals")
def test_a_narrow_terminal_shortens_what_describes_and_never_ids_or_times(made, tmp_path):
    with SyncClient.sqlite(made.path) as client:
        client.save("an agent", session_id="short", step_name="a step with a name that says a lot about it")
    wide = on_a_terminal("sessions", cwd=tmp_path, COLUMNS="200").splitlines()
    narrow = on_a_terminal("sessions", cwd=tmp_path, COLUMNS="80", NO_COLOR="1").splitlines()
    assert "…" in narrow[1]
    assert max(map(measure_width, narrow)) <= 80
    assert [line.split()[-3:] for line in narrow[1:]] == [line.split()[-3:] for line in wide[1:]]


def test_a_terminal_without_boxes_gets_a_graph_all_the_same(run_process, made):
    result = run_process("timeline", "main", "--graph", PYTHONIOENCODING="ascii")
    assert result.returncode == 0
    assert [line[:3] for line in result.stdout.splitlines()] == ["*  ", "| *", "| *", "*-'"]


def test_errors_are_words_not_tracebacks(run_process):
    result = run_process("timeline")
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr.startswith("holdfast: no store found")
    assert "Traceback" not in result.stderr


@pytest.mark.skipif(os.name != "posix", reason="pipes end differently elsewhere")
def test_a_reader_that_leaves_early_is_no_error(made, tmp_path):
    with SyncClient.sqlite(made.path, durability="fast") as client:
        for _ in range(300):
            client.save(agent_id="worker", session_id="main")
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", "timeline", "main", "-n", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": ""},  # unbuffered, Python does not notice that a write was cut short
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        said = process.stderr.read().decode()
    assert process.returncode == 141
    assert "Traceback" not in said
    assert "Exception" not in said


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.usefixtures("interruptible")
def test_control_c_exits_with_130_and_leaves_nothing_behind(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "holdfast", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.readline()
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read().decode()
        process.stdout.read()
    assert process.returncode == 130
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


def test_printable():
    assert escape("plain 日本 é") == "plain 日本 é"
    assert escape("\x1b[1m\n\u202e\U000e0001") == "\\x1b[1m\\x0a\\u202e\\U000e0001"
    assert escape("abcdef", 4) == "abc…"
    assert escape("\x00" * 4, 8) == "\\x00\\x0…"


def test_width():
    assert [measure_width(text) for text in ("abc", "日本", "e\u0301")] == [3, 4, 1]


def test_byte_count():
    assert [format_bytes(n) for n in (0, 999, 1000, 98_304, 3_100_000)] == [
        "0 B",
        "999 B",
        "1.0 KB",
        "98.3 KB",
        "3.1 MB",
    ]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("command", ["sessions", "timeline", "timeline --json", "verify"])
def test_output_that_cannot_be_written_is_told(made, tmp_path, command):
    done = in_shell(f"{command} > /dev/full", tmp_path)
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    message = json.loads(said)["error"]["message"] if "--json" in command else said.removeprefix("holdfast: ")
    assert message.startswith("the output can't be written: No space left on device")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["sessions", "timeline", "timeline --graph", "verify", "show main@", "--help"])
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_output_that_is_closed_is_not_wanted(made, tmp_path, command, closed):
    done = in_shell(f"{command} {closed}", tmp_path)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def in_shell(command: str, where: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m holdfast {command}"],
        cwd=where, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals")
@pytest.mark.parametrize(
    ("environment", "args", "less", "colored"),
    [
        ({}, (), "FRX", True),
        ({"LESS": "-FX"}, (), "-FX", False),
        ({"LESS": ""}, (), "", False),
        ({"LESS": "-iMR"}, (), "-iMR", True),
        ({"LESS": "-Pfor%t"}, (), "-Pfor%t", False),
        ({"LESS": "--raw-control-chars"}, (), "--raw-control-chars", True),
        ({"LESS": "-FX", "PAGER": "less -R"}, (), "-FX", True),
        ({"LESS": "-FX"}, ("--color", "always"), "-FX", True),
        ({"PAGER": "most"}, (), "FRX", False),
        ({"NO_COLOR": "1"}, (), "FRX", False),
    ],
)
def test_a_pager_gets_colors_only_if_it_shows_them(made, tmp_path, monkeypatch, environment, args, less, colored):
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("less", "most"):
        program = programs / name
        program.write_text(f'#!/bin/sh\nprintf %s "$LESS" > {tmp_path}/less\ncat > {tmp_path}/input\n')
        program.chmod(0o700)
    for name in ("LESS", "LV", "PAGER"):
        monkeypatch.delenv(name, raising=False)
    found = {"PATH": f"{programs}:{os.environ['PATH']}", "LINES": "2"}
    on_a_terminal(*args, "diff", made.first, made.second, cwd=tmp_path, **found, **environment)
    assert (tmp_path / "less").read_text() == less
    shown = (tmp_path / "input").read_text()
    assert "INV-1" in shown
    assert ("\x1b[" in shown) == colored
