"""The crash kit on a program without a framework, and on programs that it must find out."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from campaign import randomness
from crash_kit import (
    Finished,
    Killed,
    ProgramFailed,
    assert_called_once,
    assert_calls_not_repeated,
    assert_same_outcome,
    count_commits,
    run_program,
    run_until_done,
    spread,
)
from stored_secrets import assert_secret_is_not_stored, write_in_forms

from holdfast import SyncClient

PLAIN, FORGETFUL = "plain_agent", "forgetful_agent"
READS = ("model", "balance")
CALLS = 10  # that the plain agent makes
SECRET = "sk-0123456789abcdefghij-ÄÖ"


def write_program(where: Path, text: str) -> Path:
    path = where / "program.py"
    path.write_text(text)
    return path


def judge(uninterrupted: Finished, interrupted: Finished, directory: Path) -> None:
    assert interrupted.lives == 2
    assert_same_outcome(uninterrupted, interrupted)
    assert_calls_not_repeated(uninterrupted, interrupted, repeatable=READS)
    assert_called_once(directory, "pay")


@pytest.mark.parametrize("when", ["kill_after_commits", "kill_before_commit"])
def test_a_program_killed_at_a_commit_goes_on_and_pays_once(places, when):
    uninterrupted = run_program(PLAIN, *places.make("whole"))
    for number in spread(uninterrupted.commits, 5 if places.kind == "sqlite" else 2):
        store, directory = places.make(f"at-{number}")
        judge(uninterrupted, run_until_done(PLAIN, store, directory, **{when: number}), directory)


def test_a_program_killed_at_random_moments_goes_on_and_pays_once(sqlite_places):
    uninterrupted = run_program(PLAIN, *sqlite_places.make("whole"))
    chance = randomness("crash kit")
    for number in spread(20, 3):
        store, directory = sqlite_places.make(f"at-{number}")
        moment = chance.uniform(0, uninterrupted.seconds)
        ended = run_until_done(PLAIN, store, directory, kill_after_seconds=moment)
        assert_same_outcome(uninterrupted, ended)
        assert_calls_not_repeated(uninterrupted, ended, repeatable=READS)
        assert_called_once(directory, "pay")


def test_a_program_is_started_again_in_a_new_interpreter(sqlite_places):
    uninterrupted = run_program(PLAIN, *sqlite_places.make("whole"))
    store, directory = sqlite_places.make("killed")
    judge(uninterrupted, run_until_done(PLAIN, store, directory, fresh=True, kill_after_commits=4), directory)


HANGING = """
import json, os, sys, time
from pathlib import Path
if __name__ == "__main__":
    directory = Path(sys.argv[2])
    (directory / "process").write_text(str(os.getpid()))
    while (directory / "hang").exists():
        time.sleep(0.01)
    print(json.dumps(directory.name))
"""


@contextmanager
def timed_out(is_due: Callable[[], bool]) -> Iterator[None]:
    """Raise TimeoutError in the test when it is due, once, as pytest-timeout does."""

    def stop(*_: object) -> None:
        if is_due():
            signal.setitimer(signal.ITIMER_REAL, 0)  # another one would cut off what the first one makes the kit do
            raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    timer = signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
@pytest.mark.parametrize("fresh", [False, True])
def test_a_test_that_is_timed_out_leaves_nothing_to_the_next_one(sqlite_places, tmp_path, fresh):
    program = write_program(tmp_path, HANGING)
    store, directory = sqlite_places.make("hanging")
    (directory / "hang").touch()
    noted = directory / "process"
    with pytest.raises(TimeoutError), timed_out(lambda: noted.exists() and noted.read_text() != ""):
        run_program(program, store, directory, fresh=fresh)
    assert not Path("/proc", noted.read_text()).exists()
    deadline = time.monotonic() + 30
    with timed_out(lambda: time.monotonic() > deadline):
        ended = run_program(program, *sqlite_places.make("next"), fresh=fresh)
    assert ended.outcome == "next"


@pytest.mark.parametrize("call", [1, 4, CALLS])
def test_control_a_program_without_holdfast_repeats_its_calls(sqlite_places, call):
    uninterrupted = run_program(FORGETFUL, *sqlite_places.make("whole"))
    assert uninterrupted.outcome == run_program(PLAIN, *sqlite_places.make("with-holdfast")).outcome
    store, directory = sqlite_places.make("killed")
    ended = run_until_done(FORGETFUL, store, directory, kill_in_call=call)
    assert_same_outcome(uninterrupted, ended)  # only what it did outside tells them apart
    if call == 1:  # nothing was done before the kill: only the call under way is repeated
        assert_calls_not_repeated(uninterrupted, ended)
        return
    with pytest.raises(AssertionError, match="calls were repeated"):
        assert_calls_not_repeated(uninterrupted, ended, repeatable=READS)
    with pytest.raises(AssertionError, match="pay was called more than once"):
        assert_called_once(directory, "pay")


def test_control_calls_that_are_lost_or_new_are_found():
    whole = Finished({}, {"pay": ['["a"]', '["b"]'], "model": ["[0]"]}, 0, 0)
    with pytest.raises(AssertionError, match="missing"):
        assert_calls_not_repeated(whole, Finished({}, {"pay": ['["a"]'], "model": ["[0]"]}, 0, 0, 2))
    with pytest.raises(AssertionError, match="no such calls"):
        assert_calls_not_repeated(whole, Finished({}, {"pay": ['["a"]', '["b"]', '["c"]'], "model": ["[0]"]}, 0, 0, 2))
    with pytest.raises(AssertionError, match="more calls were repeated than were under way"):
        assert_calls_not_repeated(whole, Finished({}, {"pay": ['["a"]', '["b"]'], "model": ["[0]"] * 3}, 0, 0, 2))
    with pytest.raises(AssertionError, match="more calls were repeated than were under way"):  # nothing was killed
        assert_calls_not_repeated(whole, Finished({}, {"pay": ['["a"]', '["b"]'], "model": ["[0]"] * 2}, 0, 0, 1))
    with pytest.raises(AssertionError, match="never called"):
        assert_called_once(Path("/nowhere"), "pay")


def test_a_kill_within_a_call_leaves_its_line(sqlite_places):
    store, directory = sqlite_places.make("killed")
    killed = run_program(PLAIN, store, directory, kill_in_call=3)
    assert isinstance(killed, Killed)
    assert [path.name for path in sorted(directory.glob("*.calls"))] == ["balance.calls", "model.calls", "pay.calls"]
    assert not (directory / "paid").exists()


def test_a_program_that_has_no_such_commit_ends_by_itself(sqlite_places):
    commits = count_commits(PLAIN, *sqlite_places.make("whole"))
    ended = run_program(PLAIN, *sqlite_places.make("other"), kill_after_commits=commits + 1)
    assert isinstance(ended, Finished)
    assert ended.commits == commits


def test_a_program_sees_nothing_of_our_environment(sqlite_places, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    program = write_program(tmp_path, "import os, json\nprint(json.dumps(dict(os.environ)))")
    seen = run_program(program, *sqlite_places.make("whole")).outcome
    assert "OPENAI_API_KEY" not in seen
    assert seen["HOME"] != os.environ["HOME"]
    assert seen["OTEL_SDK_DISABLED"] == "true"


@pytest.mark.parametrize(
    "call",
    ["socket.create_connection(('192.0.2.1', 443), 1)", "urllib.request.urlopen('http://telemetry.example')"],
)
def test_a_program_that_calls_home_fails_though_it_swallows_the_error(sqlite_places, tmp_path, call):
    tried = f" try:\n  {call}\n except OSError:\n  pass\n print(1)"
    guarded = f"import socket, urllib.request\nif __name__ == '__main__':\n{tried}"
    with pytest.raises(ProgramFailed, match="tried to reach other machines"):
        run_program(write_program(tmp_path, guarded), *sqlite_places.make("whole"))


def test_a_program_that_fails_says_why(sqlite_places, tmp_path):
    program = write_program(tmp_path, "if __name__ == '__main__':\n raise ValueError('no idea')")
    with pytest.raises(ProgramFailed, match="no idea"):
        run_program(program, *sqlite_places.make("whole"))
    broken = tmp_path / "broken.py"
    broken.write_text("import no_such_module")
    with pytest.raises(ProgramFailed, match="no_such_module"):
        run_program(broken, *sqlite_places.make("broken"))


def test_a_program_that_starts_threads_at_import_is_refused(sqlite_places, tmp_path):
    text = "import threading, time\nthreading.Thread(target=time.sleep, args=(2,), daemon=True).start()"
    with pytest.raises(ProgramFailed, match="starts threads"):
        run_program(write_program(tmp_path, text), *sqlite_places.make("whole"))


def test_what_a_program_started_ends_with_it(sqlite_places, tmp_path):
    text = "import subprocess, json\nif __name__ == '__main__':\n print(subprocess.Popen(['sleep', '600']).pid)"
    child = run_program(write_program(tmp_path, text), *sqlite_places.make("whole")).outcome
    deadline = time.monotonic() + 60
    while is_running(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end while we read
        return False


def test_points_are_spread_over_all_commits():
    assert spread(3) == [1, 2, 3]
    assert {1, 16} <= set(spread(16))
    assert max(spread(100)) == 100


STATES = {
    "a text": {"key": SECRET},
    "a nested text": {"deep": [{"messages": [{"content": f"the key is {SECRET}!"}]}]},
    "compressed": {"messages": [{"n": n, "content": f"{SECRET} " * 200} for n in range(30)]},
    "bytes": {"raw": SECRET.encode()},
    "the name of a field": {SECRET: 1},
}


@pytest.mark.parametrize("state", STATES)
def test_a_stored_secret_is_found(places, state):
    store, directory = places.make("whole")
    with SyncClient.open(store) as client:
        client.save("a", session_id="s", execution_state={"messages": ["harmless"] * 50})
    assert_secret_is_not_stored(store, SECRET, directory)
    with SyncClient.open(store) as client:
        client.save("a", session_id="s", execution_state=STATES[state])
    with pytest.raises(AssertionError, match="the secret is stored in"):
        assert_secret_is_not_stored(store, SECRET, directory)


@pytest.mark.parametrize("form", sorted(write_in_forms(SECRET)), ids=lambda form: form.hex()[:24])
def test_a_secret_is_found_in_each_form(sqlite_places, form):
    store, directory = sqlite_places.make("whole")
    SyncClient.open(store).close()
    assert_secret_is_not_stored(store, SECRET, directory)
    (directory / "cache").write_bytes(b"before" + form + b"after")
    with pytest.raises(AssertionError, match="the file cache"):
        assert_secret_is_not_stored(store, SECRET, directory)
