"""Faults in system calls, injected by strace: a kill or an error at the n-th call of a kind."""

import functools
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from acknowledged import Said

HERE = Path(__file__).parent
STORY = HERE / "story_writer.py"
TIMEOUT = 240

# Everything that changes what is on a disk. `write` is also how a writer speaks. Of `openat`, what creates a file is
# followed by one of these: a kill there is a kill right after the file was created.
CHANGING = (
    "pwrite64", "write", "fdatasync", "fsync", "rename", "renameat", "renameat2", "link", "linkat", "unlink",
    "unlinkat", "ftruncate", "mkdir", "mkdirat", "rmdir", "utimensat",
)  # fmt: skip


@functools.cache
def _why_not() -> str | None:
    strace = shutil.which("strace")
    if strace is None:
        return "strace is not installed (apt-get install strace)"
    trial = subprocess.run(
        [strace, "-f", "-qq", "-o", "/dev/null", "-e", "trace=write", "-e", "inject=write:signal=KILL:when=1",
         sys.executable, "-c", "print(1)"],
        capture_output=True, check=False, timeout=TIMEOUT,
    )  # fmt: skip
    if trial.returncode == 0 or trial.stdout:
        return f"strace can't trace or inject here: {trial.stderr.decode().strip() or 'ptrace is not allowed'}"
    return None


def need_strace() -> None:
    reason = _why_not()
    if reason:
        pytest.skip(reason)


def _story(kind: str, store: Path, how_broken: str) -> list[str]:
    return [sys.executable, str(STORY), kind, str(store), *([how_broken] if how_broken else [])]


def calls_of_the_story(kind: str, folder: Path, calls: tuple[str, ...] = CHANGING, how_broken: str = "") -> Counter:
    """How often the story, undisturbed, makes each of these system calls."""
    log = folder / "calls"
    command = ["strace", "-f", "-qq", "-o", str(log), "-e", f"trace={','.join(calls)}"]
    done = subprocess.run(
        [*command, *_story(kind, folder / "undisturbed", how_broken)], capture_output=True, check=True, timeout=TIMEOUT
    )
    assert Said().listen(done.stdout).finished, done.stderr
    return Counter(re.findall(r"^\d+ +(\w+)\(", log.read_text(), re.MULTILINE))


def spread(calls: Counter, at_most: int | None) -> list[tuple[str, int]]:
    """Points (system call, n), all of them or `at_most` evenly spread: of rare calls each, of frequent ones some."""
    everything = [(call, n + 1) for call, count in sorted(calls.items()) for n in range(count)]
    if at_most is None or len(everything) <= at_most:
        return everything
    chosen = {(call, n + 1) for call, count in calls.items() for n in _evenly(count, min(count, 4))}
    rest = [point for point in everything if point not in chosen]
    chosen |= {rest[n] for n in _evenly(len(rest), max(at_most - len(chosen), 0))}
    return sorted(chosen)


def _evenly(count: int, wanted: int) -> list[int]:
    return [number * count // wanted for number in range(wanted)]


def story_with_fault(kind: str, store: Path, fault: str, how_broken: str = "") -> tuple[int, Said, str]:
    """Runs the story with a fault, as strace's `inject=` writes it. Returns how it ended, what it said, its stderr."""
    call = fault.partition(":")[0]
    done = subprocess.run(
        ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={fault}",
         *_story(kind, store, how_broken)],
        capture_output=True, check=False, timeout=TIMEOUT,
    )  # fmt: skip
    return done.returncode, Said().listen(done.stdout), done.stderr.decode()
