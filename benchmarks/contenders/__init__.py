"""The stores that are compared. Each is one module; none knows of the others."""

from pathlib import Path

from benchmarks.contenders.contender import Contender


def contenders(directory: Path, *, with_peers: bool) -> list[Contender]:
    """All that can save and restore a conversation, each with a directory of its own, not yet opened."""
    return [*_ours(directory), *(_peers(directory) if with_peers else [])]


def _ours(directory: Path) -> list[Contender]:
    from benchmarks.contenders.holdfast_sqlite import HoldfastDeclared, HoldfastUndeclared

    return [kind(directory / kind.key) for kind in (HoldfastUndeclared, HoldfastDeclared)]


def _peers(directory: Path) -> list[Contender]:
    from benchmarks.contenders.checkpnt_sqlite import CheckpntSqlite
    from benchmarks.contenders.langgraph_sqlite import LanggraphDelta, LanggraphSqlite

    return [kind(directory / kind.key) for kind in (CheckpntSqlite, LanggraphSqlite, LanggraphDelta)]
