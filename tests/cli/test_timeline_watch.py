"""timeline --watch: shows checkpoints of another process as they appear."""

import json
import os
import signal
import subprocess
import sys

import pytest

from holdfast import SyncClient

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="signals"),
    pytest.mark.usefixtures("interruptible"),
    pytest.mark.slow,
]


@pytest.fixture
def watching(tmp_path):
    """Starts `holdfast timeline --watch` with these arguments. What it prints is read line by line;
    reading waits, and the suite's own limit ends what never comes."""
    started = []

    def start(*args: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "timeline", "--watch", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd=tmp_path,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "Traceback" not in err
    return out, err


def test_what_is_there_comes_first_oldest_first_and_then_what_is_saved(watching, made):
    process = watching("main", "--json")
    there = [json.loads(process.stdout.readline())["checkpoint_id"] for _ in range(3)]
    assert there == [made.first, made.second, made.handed]
    with SyncClient.sqlite(made.path) as client:
        client.save("elsewhere", session_id="what-if")
        later = [client.save("worker", session_id="main", step_name=f"later {number}") for number in range(3)]
    assert [json.loads(process.stdout.readline())["checkpoint_id"] for _ in range(3)] == later
    assert ended(process)[0] == ""


def test_for_people_it_says_that_it_waits_and_where_a_line_was_left(watching, made):
    process = watching("main", "-n", "1")
    assert made.handed[-8:] in process.stdout.readline()
    assert "watching main" in process.stderr.readline()
    with SyncClient.sqlite(made.path) as client:
        client.rollback("main", to=made.first)
        client.save("worker", session_id="main", step_name="another way")
    line = process.stdout.readline()
    assert "another way" in line
    assert line.rstrip().endswith(f"after {made.first[-8:]}")
    ended(process)


def test_the_graph_is_drawn_anew_for_what_happens_in_its_tree(watching, made):
    process = watching("main", "--graph")
    drawn = [process.stdout.readline() for _ in range(5)]
    assert [line[:3] for line in drawn] == ["●  ", "│ ●", "│ ●", "●─╯", "\n"]
    with SyncClient.sqlite(made.path) as client:
        client.save("a", session_id="of another tree")
        client.save("worker", session_id="what-if", step_name="onward")
    again = [process.stdout.readline() for _ in range(6)]
    assert "onward" in again[0]
    assert again[-1] == "\n"
    ended(process)


def test_a_drawing_that_goes_on_is_no_json(run, made):
    assert run("timeline", "--watch", "--graph", "--json").exit_code == 2
