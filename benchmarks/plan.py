"""How much of each workload is run: the full measure, or a quick one that only shows that everything works."""

from dataclasses import dataclass
from pathlib import Path

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Plan:
    stores: Path
    """Where the databases go while they are measured: a real disk, or fsync costs nothing and nothing is learnt."""
    with_peers: bool
    growing_steps: dict[int, int]
    """Workload A: number of steps -> rounds."""
    growing_tail: int
    """How many of the last saves make "the save at step N"."""
    writers: tuple[int, ...]
    writes_total: int
    history_saves: dict[int, int]
    """Workload H: bytes of history -> saves of each contender."""
    restores: int
    """Of each contender and size; those of a random checkpoint are half as many."""
    timelines: int
    cold_processes: int
    memory_sessions: int
    fork_steps: tuple[int, ...]
    forks: int
    import_runs: int
    command_checkpoints: int
    command_runs: int


def full_plan(stores: Path, *, with_peers: bool, rounds: int | None) -> Plan:
    return Plan(
        stores=stores,
        with_peers=with_peers,
        growing_steps={100: rounds or 5, 1000: rounds or 2, 3000: 1},
        growing_tail=50,
        writers=(1, 32),
        writes_total=10_000,
        history_saves={MEGABYTE: 40, 10 * MEGABYTE: 15},
        restores=31,
        timelines=9,
        cold_processes=11,
        memory_sessions=1000,
        fork_steps=(100, 3000),
        forks=100,
        import_runs=15,
        command_checkpoints=3000,
        command_runs=7,
    )


def quick_plan(stores: Path, *, with_peers: bool, rounds: int | None) -> Plan:
    return Plan(
        stores=stores,
        with_peers=with_peers,
        growing_steps={100: rounds or 1, 300: 1},
        growing_tail=20,
        writers=(1, 32),
        writes_total=640,
        history_saves={MEGABYTE: 8},
        restores=4,
        timelines=3,
        cold_processes=3,
        memory_sessions=100,
        fork_steps=(100, 300),
        forks=5,
        import_runs=5,
        command_checkpoints=300,
        command_runs=2,
    )
