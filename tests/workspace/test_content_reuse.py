"""A snapshot skips contents only if the snapshot before it holds them; older ones may be collected."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from stores import Store

from holdfast import SyncClient

LARGE = os.urandom(1_300_000)
CONTENTS = {"small": (b"one", b"two"), "large": (LARGE, LARGE[:-1] + b"x"), "becomes small": (LARGE, b"two")}


@pytest.mark.parametrize("kind", CONTENTS)
@pytest.mark.parametrize("reopened", [False, True])
def test_a_content_that_comes_back_after_it_was_collected_is_stored_again(
    sqlite_store: Store, tmp_path: Path, kind: str, reopened: bool
):
    first, second = CONTENTS[kind]
    root = tmp_path / "root"
    root.mkdir()
    client = sqlite_store.client()

    def save(data: bytes) -> str:
        nonlocal client
        if reopened:
            client = sqlite_store.client()
        (root / "f").write_bytes(data)
        (root / "other").write_bytes(os.urandom(8))
        return client.save("a", session_id="s", workspace=client.workspace(root))

    old = save(first)
    save(second)
    client.expire(old)
    client.gc()
    back = save(first)
    assert client.verify().ok
    assert client.workspace(root).read(back, "f") == first


def test_and_so_is_one_that_only_another_session_knew(quick: SyncClient, tmp_path: Path):
    root = tmp_path / "root"
    root.mkdir()
    workspace = quick.workspace(root)
    points = []
    for n, text in enumerate(("one", "two", "one", "three", "two", "one")):
        (root / "f").write_text(text)
        points.append(quick.save("a", session_id=f"s{n % 2}", workspace=workspace))
        for old in points[:-1]:
            quick.expire(old)
        quick.gc()
        assert quick.verify().ok
        assert workspace.read(points[-1], "f") == text.encode()
