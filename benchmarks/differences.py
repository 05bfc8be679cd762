"""`client.diff` beside deepdiff and jsonpatch, on the same states: `python -m benchmarks.differences [--results DIR]`.

Two checkpoints of a conversation, next to each other and twenty steps apart, in one SQLite file. holdfast is given two
ids and a client that remembers nothing; the others are given the two states, loaded already: what loading costs stands
in a column of its own. CPU time of one process, contenders taking turns, medians. Each result is checked: applied to
the one state it gives the other.

Then holdfast alone, by where 15,000 messages were edited. `--insertions` measures only that, and writes nothing.
"""

import argparse
import copy
import gc
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import environment, pages, plot
from benchmarks.conversation import Conversation
from benchmarks.goals import Goal, Verdict
from benchmarks.subprocesses import ROOT
from benchmarks.tables import number, table
from holdfast import SyncClient

CASES = ((1_000_000, 1), (1_000_000, 20), (10_000_000, 1))  # bytes of history, steps apart; the last is the goals'
MESSAGES = 15_000
ROUNDS = 3
OFTEN = 5  # in each round, what takes milliseconds: the others take seconds
PACKAGES = ("holdfast", "deepdiff", "jsonpatch", "ormsgpack", "zstandard")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--insertions", action="store_true", help="only where a list was edited; writes nothing")
    given = parser.parse_args()
    directory = given.results
    if given.insertions:
        with tempfile.TemporaryDirectory() as stores:
            print("\n".join(_insertion_table(insertions(Path(stores)))))
        return
    with tempfile.TemporaryDirectory() as stores:
        results = {"environment": environment.describe(Path(stores), PACKAGES)}
        results["cases"] = [measured(Path(stores), size, apart) for size, apart in CASES]
        results["insertions"] = insertions(Path(stores))
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "differences.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    page = "\n".join(_page(results)) + "\n"
    (directory / "differences.md").write_text(page, "utf-8")
    bars = {f"{_told(case)}: CPU ms": case["cpu_ms"] for case in results["cases"]}
    plot.bars(bars, "Difference of two checkpoints", directory / "differences.png", log=True)
    print(page)


def measured(stores: Path, size: int, apart: int) -> dict[str, Any]:
    import jsonpatch
    from deepdiff import DeepDiff, Delta

    path = stores / f"{size}-{apart}.db"
    conversation = Conversation()
    conversation.grow_to(size)
    with SyncClient.sqlite(path, durability="fast") as client:
        one = client.save("a", session_id="s", execution_state=conversation.state)
        for _ in range(apart):
            conversation.advance()
            other = client.save("a", session_id="s", execution_state=conversation.state)

    def load() -> tuple[Any, Any]:
        with SyncClient.sqlite(path) as client:
            return client.restore(one).execution_state, client.restore(other).execution_state

    a, b = load()
    with SyncClient.sqlite(path) as client:
        found = client.diff(one, other)
        assert found.apply(client.restore(one)).execution_state == b
    assert jsonpatch.make_patch(a, b).apply(copy.deepcopy(a)) == b
    assert copy.deepcopy(a) + Delta(DeepDiff(a, b)) == b

    def ours() -> None:
        with SyncClient.sqlite(path) as client:
            client.diff(one, other)

    contenders: dict[str, Callable[[], Any]] = {
        "holdfast": ours,
        "loading two states": load,
        "jsonpatch": lambda: jsonpatch.make_patch(a, b),
        "deepdiff": lambda: DeepDiff(a, b),
    }
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, run in contenders.items():
            times[name] += [_cpu_ms(run) for _ in range(OFTEN if name == "holdfast" else 1)]
    return {
        "bytes": size,
        "apart": apart,
        "edits": len(found.edits),
        "cpu_ms": {name: statistics.median(taken) for name, taken in times.items()},
    }


def insertions(stores: Path) -> dict[str, float]:
    """CPU ms of the difference between 15,000 messages and the same with others among them."""
    conversation = Conversation()
    while len(conversation.state["messages"]) < MESSAGES:
        conversation.advance()
    base, new = (
        conversation.state["messages"][:MESSAGES],
        {"role": "system", "content": "a summary of what was said before"},
    )
    half = MESSAGES // 2
    edited = {
        "at the end": [*base, new],
        "at the front": [new, *base],
        "at the front and at the end": [new, *base, new],
        "in the middle": [*base[:half], new, *base[half:]],
        "at the front, of another session": [new, *base],
        "at the end, of another session": [*base, new],
    }
    found = {}
    for name, messages in edited.items():
        path = stores / f"{name}.db"
        with SyncClient.sqlite(path, durability="fast") as client:
            one = client.save("a", session_id="s", execution_state={"messages": base})
            session = "other" if "another" in name else "s"
            other = client.save("a", session_id=session, execution_state={"messages": messages})
            assert client.diff(one, other).apply(client.restore(one)).execution_state == {"messages": messages}

        def ours(path: Path = path, one: str = one, other: str = other) -> None:
            with SyncClient.sqlite(path) as client:
                client.diff(one, other)

        found[name] = statistics.median(_cpu_ms(ours) for _ in range(ROUNDS * OFTEN))
    return found


def _insertion_table(found: dict[str, float]) -> list[str]:
    return table([f"inserted into {MESSAGES:,} messages", "CPU ms"], [[name, number(ms)] for name, ms in found.items()])


def _cpu_ms(run: Callable[[], Any]) -> float:
    gc.collect()
    began = time.process_time()
    run()
    return (time.process_time() - began) * 1000


def verdicts(results: dict[str, Any]) -> list[Verdict]:
    size, apart = CASES[-1]
    neighbours = next(case for case in results["cases"] if (case["bytes"], case["apart"]) == (size, apart))["cpu_ms"]
    goals = (
        Goal("CPU of the difference of two neighbours with 10 MB of history", "differences",
             lambda _: neighbours["holdfast"], 5, unit="ms"),
        *(
            Goal(
                f"CPU of the difference with an insertion {where} of {MESSAGES:,} messages",
                "differences",
                lambda _, where=where: results["insertions"][where],
                5,
                unit="ms",
            )
            for where in ("at the front", "at the front and at the end")
            if "insertions" in results  # results of before have none
        ),
        *(
            Goal(
                f"the same by {peer}, of states in memory, over ours",
                "differences",
                lambda _, peer=peer: neighbours[peer] / neighbours["holdfast"],
                50,
                at_least=True,
            )
            for peer in ("jsonpatch", "deepdiff")
        ),
    )  # fmt: skip
    return [goal.judge(results) for goal in goals]


def command(workload: str) -> str:
    return f"python -m benchmarks.{workload}"


def _page(results: dict[str, Any]) -> list[str]:
    rows = []
    for case in results["cases"]:
        cpu = case["cpu_ms"]
        ours = cpu["holdfast"]
        rows.append(
            [
                _told(case),
                number(ours),
                number(cpu["loading two states"]),
                *(f"{number(cpu[peer])} ({number(cpu[peer] / ours)} ×)" for peer in ("jsonpatch", "deepdiff")),
            ]
        )
    software = f"SQLite {results['environment']['sqlite']}"
    return [
        *pages.head("Differences", results, software=software, not_worth_quoting=False),
        (
            "CPU time in ms, medians of runs in turn. holdfast starts from two ids and an opened file; "
            "the others from two states"
        ),
        "in memory.",
        "",
        "![CPU of a difference](differences.png)",
        "",
        "## Goals",
        "",
        *pages.goals(verdicts(results), command),
        "## Figures",
        "",
        *table(["", "holdfast", "loading two states", "jsonpatch", "deepdiff"], rows),
        *_insertions_page(results),
    ]


def _insertions_page(results: dict[str, Any]) -> list[str]:
    if "insertions" not in results:
        return []
    return [
        "",
        "## Where a list was edited",
        "",
        "A list of another session shares no stored elements: both are read as a whole, wherever the insertion is.",
        "",
        *_insertion_table(results["insertions"]),
    ]


def _told(case: dict[str, Any]) -> str:
    return f"{case['bytes'] / 1e6:g} MB, {case['apart']} step{'s' * (case['apart'] > 1)} apart"


if __name__ == "__main__":
    main()
