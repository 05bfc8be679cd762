"""After all but the last ten of a thousand steps were expired and collected, a store is hardly
larger than one that only ever had these ten: at most half again as large, in bytes and, for files,
in blocks of the disk."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stores import Store

from holdfast.backends.bridge.step import run_inline
from holdfast.format.state import record
from holdfast.model import ids
from holdfast.operations.expire import BY_HAND, tombstone_all

STEPS, KEPT = 1000, 10
AT_MOST = 1.5
WORDS = ("the", "agent", "reads", "a", "file", "then", "writes", "what", "it", "has", "found", "into", "another", "one")


def prose(rng: random.Random, size: int) -> str:
    """Words, and now and then something that does not compress."""
    words: list[str] = []
    while size > 0:
        words.append(rng.choice(WORDS) if rng.random() < 0.8 else f"{rng.getrandbits(32):x}")
        size -= len(words[-1]) + 1
    return " ".join(words)


def conversations() -> Callable[[int], Any]:
    """One message of 1.2 KB more at each step; the whole list is saved each time."""
    rng = random.Random(1)
    messages = [
        {"role": ("user", "assistant")[i % 2], "id": f"{rng.getrandbits(128):032x}", "content": prose(rng, 1130)}
        for i in range(STEPS)
    ]
    return lambda step: {"messages": messages[: step + 1]}


def replaced() -> Callable[[int], Any]:
    """4 KB that are others at each step."""

    def state(step: int) -> Any:
        rng = random.Random(step)
        return {
            "step": step,
            "plan": [prose(rng, 200) for _ in range(6)],
            "findings": {f"file {number}": prose(rng, 240) for number in range(9)},
            "note": prose(rng, 500),
        }

    return state


def expire_all(store: Store, saved: list[str]) -> None:
    ctx = store.client()._ctx
    found = run_inline(ctx.backend.records([ids.from_text(id_) for id_ in saved]))
    read = [(one, record.unpack(ctx.codec, one.data)) for one in found if one]
    assert len(run_inline(tombstone_all(ctx, read[0][1].tree, read, BY_HAND))) == len(saved)


def sizes(where: Path) -> dict[str, int]:
    """Bytes of all files, each counted once however many names it has; and blocks, those of directories too."""
    found = {entry.stat().st_ino: entry for entry in [where, *where.rglob("*")]}.values()
    return {
        "bytes": sum(entry.stat().st_size for entry in found if entry.is_file()),
        "blocks": sum(entry.stat().st_blocks * 512 for entry in found),
    }


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="counts blocks of the disk")
@pytest.mark.parametrize("shape", [conversations, replaced])
@pytest.mark.parametrize("kind", ["sqlite", "files"])
def test_a_store_is_small_again_after_collection(kind: str, shape: Callable[[], Callable[[int], Any]], tmp_path: Path):
    state = shape()
    measured = []
    for name, first in (("collected", 0), ("never more", STEPS - KEPT)):
        (tmp_path / name).mkdir()
        store = Store(kind, tmp_path / name)
        client = store.client()
        saved = [client.save("a", session_id="run", execution_state=state(step)) for step in range(first, STEPS)]
        if first == 0:
            expire_all(store, saved[:-KEPT])
            report = client.gc()
            assert report.tombstones_packed == STEPS - KEPT
            assert client.verify().ok
        for step, id_ in zip(range(STEPS - KEPT, STEPS), saved[-KEPT:], strict=True):
            assert client.restore(id_).execution_state == state(step)
        store.close()
        measured.append(sizes(tmp_path / name))
    collected, never_more = measured
    ratios = {unit: round(collected[unit] / never_more[unit], 3) for unit in collected}
    assert max(ratios.values()) <= AT_MOST, f"{kind}, {shape.__name__}: {ratios}; {collected} against {never_more}"
