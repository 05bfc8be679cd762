"""A process is killed at every system call that changes the disk (R2). What it acknowledged is there, nothing is torn.

Every call, n-th time, is a point: before the call, which is after the one before it. All points are visited under
HOLDFAST_SOAK=1, evenly spread ones in `make test`.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest
from acknowledged import Said, findings, open_client
from broken import EARLY, LATE, PIECES
from campaign import BACKENDS, CRASH_POINTS, share, tally
from injection import calls_of_the_story, need_strace, spread, story_with_fault

from holdfast.backends.files import change_log
from holdfast.backends.files.disk import Disk

pytestmark = pytest.mark.slow
SHARES = 4
KILLED = (-9, 137)


def judge(kind: str, folder: Path, point: tuple[str, int], how_broken: str = "") -> tuple[bool, list[str]]:
    """Whether the writer was killed at that point, and what is wrong with the store it left."""
    call, n = point
    store = folder / f"{call}-{n}"
    status, said, errors = story_with_fault(kind, store, f"{call}:signal=KILL:when={n}", how_broken)
    killed = status in KILLED
    assert killed or said.finished, f"{point}: the writer ended by itself, with {status}: {errors}"
    client = open_client(kind, store)
    try:
        return killed, findings(client, said, in_flight=1 if killed else 0)
    finally:
        client.close()


@pytest.mark.parametrize("number", range(SHARES))
@pytest.mark.parametrize("kind", BACKENDS)
def test_a_kill_at_any_system_call_loses_and_tears_nothing(kind: str, number: int, tmp_path: Path):
    need_strace()
    calls = calls_of_the_story(kind, tmp_path)
    killed, wrong = 0, {}
    for point in share(spread(calls, CRASH_POINTS), number, SHARES):
        was_killed, found = judge(kind, tmp_path, point)
        killed += was_killed
        if found:
            wrong[point] = found
    tally(f"crash points, {kind}", done=killed, wrong=len(wrong))
    assert not wrong, f"{len(wrong)} of {killed} crash points: {wrong}"
    assert killed >= 20, "too few crash points were reached: this proves nothing"


@pytest.mark.parametrize(
    ("kind", "how_broken", "call", "complaint"),
    [
        ("sqlite", EARLY, "pwrite64", "lost:"),
        ("files", EARLY, "fsync", "lost:"),
        ("sqlite", PIECES, "pwrite64", "torn:"),
        ("files", LATE, "write", "torn:"),
    ],
)
def test_control_broken_writers_are_found_out(kind: str, how_broken: str, call: str, complaint: str, tmp_path: Path):
    """The same kills and the same judge, and a writer that does lose or tear: it must be seen."""
    need_strace()
    calls = calls_of_the_story(kind, tmp_path, (call,), how_broken)
    found: list[str] = []
    for point in spread(calls, 40):
        found += judge(kind, tmp_path, point, how_broken)[1]
        if any(text.startswith(complaint) for text in found):
            return
    pytest.fail(f"{how_broken!r} went unnoticed: {found}")


@pytest.mark.parametrize("n", [1, 3])
def test_control_a_place_in_the_order_that_is_never_filled_in_is_found_out(
    n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What a crash between a record and its entry in `order` would leave, were there no journal."""
    put, calls = change_log.put, []

    def forgetful(disk: Disk, first: int, ids: Sequence[bytes]) -> None:
        calls.append(first)
        if len(calls) != n:
            put(disk, first, ids)

    monkeypatch.setattr(change_log, "put", forgetful)
    with open_client("files", tmp_path / "store", durability="fast") as client:
        for _ in range(3):
            client.save("a", session_id="s", digest="")
        found = findings(client, Said(), in_flight=3)
    assert any(text.startswith("events:") for text in found), found
