"""A restore is killed at each rename and unlink, and at everything else by which it changes the directory. Whatever is
left, `resume` leads to the target and `roll_back` to what was there before."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import restore_store
from campaign import share, tally
from injection import need_strace
from paths import SUPPORT
from restore_trees import on_disk

from holdfast.backends.bridge.step import run_inline

pytestmark = pytest.mark.slow
STORY = SUPPORT / "restore_story.py"
CALLS = ("rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "mkdirat", "symlinkat", "syncfs")
SHARES = 2
TIMEOUT = 240


def story(folder: Path, *tracing: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["strace", "-f", "-qq", *tracing, sys.executable, str(STORY), str(folder / "store.db"), str(folder / "root")],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        env=os.environ | {"PYTHONPATH": str(SUPPORT), "PYTHONDONTWRITEBYTECODE": "1"},
    )


def points(folder: Path) -> list[tuple[str, int]]:
    """The calls of the restore itself, counted from the start of the process: what happens before it says "changed" is
    the making of the directory."""
    folder.mkdir()
    log = folder / "calls"
    done = story(folder, "-o", str(log), "-e", f"trace={','.join(CALLS)},write", "-s", "16")
    assert done.stdout.endswith("done\n"), done.stderr
    counts: Counter[str] = Counter()
    found, is_restoring = [], False
    for line in log.read_text().splitlines():
        call = re.match(r"^\d+ +(\w+)\(", line)
        if call is None:
            continue
        if call[1] == "write":
            is_restoring = (is_restoring or '"changed' in line) and '"done' not in line
            continue
        counts[call[1]] += 1
        if is_restoring:
            found.append((call[1], counts[call[1]]))
    return found


def judge(folder: Path, point: tuple[str, int], way: str) -> list[str]:
    call, n = point
    folder.mkdir()
    done = story(folder, "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={n}")
    said = done.stdout.split()
    if "done" in said or len(said) < 3:
        return [f"{point}: it was not killed within the restore: {done.stdout} {done.stderr}"]
    root = folder / "root"
    directory = restore_store.open_directory(str(folder / "store.db"), root)
    try:
        journal = run_inline(directory.restoring.find_interrupted())
        expected = {said[1], said[2]}
        if journal is not None:
            run_inline(getattr(directory.restoring, way)())
            expected = {said[1] if way == "resume" else said[2]}
        there = restore_store.entries_of(directory, restore_store.name(directory.snapshot()))
        wanted = [restore_store.entries_of(directory, one) for one in expected]
        wrong = [] if there in wanted else [f"{point} {way}: another tree"]
        return wrong + [f"{point} {way}: left {path!r}" for path in on_disk(root) if b".holdfast-" in path]
    finally:
        directory.client.close()


@pytest.mark.parametrize("number", range(SHARES))
@pytest.mark.parametrize("way", ["resume", "roll_back"])
def test_a_kill_at_every_rename_and_unlink_can_be_finished_both_ways(way: str, number: int, tmp_path: Path):
    need_strace()
    everything = points(tmp_path / "undisturbed")
    assert sum("rename" in call for call, _ in everything) >= 5
    assert sum(call in ("unlinkat", "rmdir") for call, _ in everything) >= 4
    wrong: list[str] = []
    chosen = share(everything, number, SHARES)
    for point in chosen:
        wrong += judge(tmp_path / f"{point[0]}-{point[1]}", point, way)
    tally(f"crash points of restores, {way}", done=len(chosen), wrong=len(wrong))
    assert not wrong
