"""Trees of files with right hashes that are malformed, or more than anybody wants: refused before a byte is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import limited
import pytest
from forge import MALFORMED, TOO_MUCH, Forge

from holdfast import SyncClient

pytestmark = pytest.mark.slow
Jobs = Mapping[str, Sequence[object]]


def suffered(jobs: Jobs) -> dict[str, dict[str, Any]]:
    """What came of each job, all of them in one child process."""
    arguments: list[object] = []
    for job in jobs.values():
        arguments += ["--", *job] if arguments else job
    return dict(zip(jobs, limited.run("foreign_store.py", *arguments, seconds=300), strict=True))


def forged(folder: Path, make: Callable[[Forge], str]) -> tuple[Path, str]:
    """A bundle, and the checkpoint in it."""
    forge = Forge()
    ref = make(forge)
    bundle = folder / f"{make.__name__}.bundle"
    bundle.write_bytes(forge.bundle())
    return bundle, ref


def stored(folder: Path, make: Callable[[Forge], str]) -> tuple[Path, str]:
    """A store in which such a tree is."""
    path = folder / f"{make.__name__}.db"
    with SyncClient.sqlite(path) as client:
        return path, make(Forge(client))


def test_a_bundle_with_a_malformed_tree_is_refused(tmp_path: Path) -> None:
    jobs = {}
    for name, make in MALFORMED.items():
        bundle, _ = forged(tmp_path, make)
        assert bundle.stat().st_size < 20_000
        jobs[name] = (tmp_path / f"{name}.db", "import", bundle)
    said = suffered(jobs)
    assert {name: str(one["import"]).partition(":")[0] for name, one in said.items()} == dict.fromkeys(
        MALFORMED, "CorruptError"
    )


def test_a_malformed_tree_in_a_store_is_found_and_never_written(tmp_path: Path) -> None:
    jobs: dict[str, Sequence[object]] = {}
    for name, make in MALFORMED.items():
        store, ref = stored(tmp_path, make)
        fork, here = tmp_path / f"{name}.fork", tmp_path / f"{name}.here"
        jobs[name] = (store, "verify", "fork", ref, fork, "restore", ref, here)
    for name, said in suffered(jobs).items():
        assert any("malformed" in message or "can't be read" in message for message in said["verify"]), (name, said)
        if name == "other_counts":  # what a snapshot says about itself is not gone by
            continue
        assert said["fork"].startswith(("CorruptError", "UsageError")), (name, said)
        assert said["restore"].startswith(("CorruptError", "UsageError")), (name, said)
        assert not (tmp_path / f"{name}.fork").exists()
        assert list((tmp_path / f"{name}.here").iterdir()) == []


def test_a_tree_beyond_the_limits_is_imported_and_not_written(tmp_path: Path) -> None:
    jobs = {}
    for name, make in TOO_MUCH.items():
        bundle, ref = forged(tmp_path, make)
        assert bundle.stat().st_size < 600_000
        fork, here = tmp_path / f"{name}.fork", tmp_path / f"{name}.here"
        work = ("plan", ref, here, "fork", ref, fork, "restore", ref, here)
        jobs[name] = (tmp_path / f"{name}.db", "import", bundle, "verify", *work)
    for name, said in suffered(jobs).items():
        assert said["import"] == 1, (name, said)
        assert said["verify"] == [], (name, said)
        for verb in ("plan", "fork", "restore"):
            assert said[verb].startswith("UsageError"), (name, said)
            assert "would be written" in said[verb], (name, said)  # the totals
        assert not (tmp_path / f"{name}.fork").exists()
        assert list((tmp_path / f"{name}.here").iterdir()) == []
    assert not list(tmp_path.glob(".*"))
