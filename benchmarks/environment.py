"""What the figures were measured with. A figure without it is hearsay."""

import os
import platform
import sqlite3
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.subprocesses import ROOT

PACKAGES = (
    "holdfast",
    "ormsgpack",
    "zstandard",
    "checkpnt",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "aiosqlite",
    "msgpack",
)


def describe(stores: Path, packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "--short=12", "HEAD"),
        "uncommitted_changes": bool(
            _git("status", "--porcelain", "--", "src", "benchmarks/*.py", "benchmarks/langgraph")
        ),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "kernel": platform.release(),
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "filesystem": _filesystem(stores),
        "load_average_at_start": [round(load, 2) for load in os.getloadavg()],
        "packages": {name: _version(name) for name in packages},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _filesystem(directory: Path) -> str:
    """The type only; on tmpfs every figure with an fsync in it would be worthless."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    inside = [(point, kind) for point, kind in mounts if directory.resolve().is_relative_to(point)]
    return max(inside, key=lambda mount: len(mount[0]))[1] if inside else "unknown"
