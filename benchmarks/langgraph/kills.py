"""kill -9 in the third of three nodes, right after its effect: which nodes run again? Holdfast
beside the official saver.

    python -m benchmarks.langgraph.kills [--rounds 20] [--json]

Each round is a process of its own that is killed, and one that goes on as a restarted program
would: with `None` if the thread has a state, with the input if it has none. The nodes take no time,
which is the worst case for durability "async": the checkpoint that it writes in the background has
nothing to hide behind.
"""

import argparse
import contextlib
import json
import operator
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph

from holdfast.langgraph import HoldfastSaver

MODES = ("sync", "async", "exit")
NODES = "abc"
CONFIG: Any = {"configurable": {"thread_id": "t"}}


class State(TypedDict):
    done: Annotated[list[str], operator.add]


def _holdfast(directory: Path) -> Any:
    return HoldfastSaver.from_sqlite(directory / "store.db")


@contextlib.contextmanager
def _official(directory: Path) -> Iterator[Any]:
    with SqliteSaver.from_conn_string(str(directory / "store.db")) as saver:
        yield saver


SAVERS: dict[str, Callable[[Path], Any]] = {"holdfast": _holdfast, "langgraph-checkpoint-sqlite": _official}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = {mode: {name: [] for name in SAVERS} for mode in MODES}
    for _ in range(arguments.rounds):  # interleaved: what else the machine does meets both
        for mode in MODES:
            for name in SAVERS:
                results[mode][name].append(one_round(name, mode))
    print(json.dumps(results) if arguments.json else table(results, arguments.rounds))


def one_round(name: str, mode: str) -> list[int]:
    """How often each of the nodes had its effect."""
    with TemporaryDirectory(prefix="holdfast-kills-") as directory:
        where = Path(directory)
        killed = in_a_process(lambda: run(name, mode, where, dies=True))
        assert os.WIFSIGNALED(killed), "the first run ends by its kill"
        assert os.WTERMSIG(killed) == signal.SIGKILL
        assert in_a_process(lambda: run(name, mode, where, dies=False)) == 0, "the second one finishes"
        effects = Counter((where / "effects").read_text())
        return [effects[node] for node in NODES]


def run(name: str, mode: str, where: Path, *, dies: bool) -> None:
    def node(which: str) -> Callable[[State], Any]:
        def act(_: State) -> Any:
            with (where / "effects").open("a") as effects:
                effects.write(which)
            if dies and which == NODES[-1]:
                os.kill(os.getpid(), signal.SIGKILL)
            return {"done": [which]}

        return act

    builder = StateGraph(State)
    before = START
    for which in NODES:
        builder.add_node(which, node(which))
        builder.add_edge(before, which)
        before = which
    with SAVERS[name](where) as saver:
        graph = builder.compile(checkpointer=saver)
        # Not by `get_state(...).next`: that is empty, too, where a node is done and the checkpoint
        # after it is not there.
        going_on = saver.get_tuple(CONFIG) is not None
        result = graph.invoke(None if going_on else {"done": []}, CONFIG, durability=mode)
    assert result == {"done": list(NODES)}, result


def in_a_process(work: Callable[[], None]) -> int:
    """Its exit status. A fork, so that LangGraph is imported once for all of them; nothing is open, no thread runs."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def table(results: dict[str, dict[str, list[list[int]]]], rounds: int) -> str:
    lines = [
        f"How often each node had its effect, of {rounds} rounds (mean; killed in c, once):",
        "",
        f"| durability | {' | '.join(f'{name}: a, b, c' for name in SAVERS)} |",
        f"|---|{'---|' * len(SAVERS)}",
    ]
    for mode, by_saver in results.items():
        cells = []
        for counts in by_saver.values():
            means = [sum(column) / len(column) for column in zip(*counts, strict=True)]
            cells.append(", ".join(f"{mean:.2f}".rstrip("0").rstrip(".") for mean in means))
        lines.append(f"| {mode} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
