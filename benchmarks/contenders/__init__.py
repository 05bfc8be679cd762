"""The stores that are compared. Each is one module; none knows of the others."""

from pathlib import Path

from benchmarks.contenders.contender import Contender


def all_contenders(directory: Path) -> list[Contender]:
    """Every contender that can save and restore a conversation, each with a directory of its own, not yet opened."""
    return [*holdfast_contenders(directory), *peers(directory)]


def holdfast_contenders(directory: Path) -> list[Contender]:
    from benchmarks.contenders.holdfast_sqlite import HoldfastDeclared, HoldfastUndeclared

    return [kind(directory / kind.key) for kind in (HoldfastUndeclared, HoldfastDeclared)]


def peers(directory: Path) -> list[Contender]:
    from benchmarks.contenders.checkpnt_sqlite import CheckpntSqlite
    from benchmarks.contenders.langgraph_sqlite import LanggraphDelta, LanggraphSqlite

    return [kind(directory / kind.key) for kind in (CheckpntSqlite, LanggraphSqlite, LanggraphDelta)]
