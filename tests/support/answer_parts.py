"""Parts of a small store that each question reads, found by strace.

A change of one bit needs only the questions that read the changed part: no other answer depends on it.

    python answer_parts.py KIND PATH QUESTIONS

asks each of them with a client of its own, under strace.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from small_store import Question, SmallStore, open_client

from holdfast.errors import HoldfastError

NOWHERE = -1  # a file descriptor: what is written to it is in strace's log and nowhere else
SECTOR = 512  # SQLite's pages are multiples of it
BEGUN = re.compile(r'write\(-1.*"question (\d+)"')
OPENED = re.compile(r"openat\(.* = \d+<(.+)>$")
READ = re.compile(r"pread64\(\d+<(.+?)>, .*, (\d+), (\d+)\) +=")

Part = tuple[int, int]  # a file's number (it may have two names), and for SQLite a sector of it


def part(store: SmallStore, file: Path, offset: int) -> Part:
    return (file.stat().st_ino, offset // SECTOR if store.kind == "sqlite" else 0)


def readers(store: SmallStore) -> dict[Part, list[Question]] | None:
    """Which questions read each part of the store, if strace can tell. Files are read whole, SQLite's in pages."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    questions = store.knowledge.questions
    log = store.path.with_name("reading")
    asked = json.dumps([(question.verb, question.about) for question in questions])
    done = subprocess.run(
        [strace, "-f", "-qq", "-y", "-o", str(log), "-e", "trace=openat,pread64,write",
         sys.executable, __file__, store.kind, str(store.path), asked],
        capture_output=True, check=False, timeout=240,
    )  # fmt: skip
    if done.returncode != 0:
        return None
    found: defaultdict[Part, dict[int, Question]] = defaultdict(dict)
    number = -1
    for line in log.read_text().splitlines():
        if begun := BEGUN.search(line):
            number = int(begun[1])
        elif store.kind == "sqlite" and (read := READ.search(line)):
            path, length, offset = Path(read[1]), int(read[2]), int(read[3])
            if path == store.path:
                for at in range(offset, offset + length, SECTOR):
                    found[part(store, path, at)][number] = questions[number]
        elif store.kind == "files" and (opened := OPENED.search(line)):
            path = Path(opened[1])
            if path.is_relative_to(store.path) and path.is_file():
                found[part(store, path, 0)][number] = questions[number]
    log.unlink()
    assert number == len(questions) - 1, "not all questions are in the log"
    return {where: list(who.values()) for where, who in found.items()}


def main(kind: str, path: str, asked: str) -> None:
    for number, (verb, about) in enumerate(json.loads(asked)):
        with contextlib.suppress(OSError):
            os.write(NOWHERE, f"question {number}".encode())
        with open_client(kind, Path(path)) as client, contextlib.suppress(HoldfastError):
            Question(verb, about).ask(client)


if __name__ == "__main__":
    main(*sys.argv[1:])
