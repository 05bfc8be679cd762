"""How often an effect is carried out: the same scenarios with holdfast, DBOS and LangGraph. `python -m benchmarks.effects`.

A program makes a plan, pays bob 500, and tells so. It is killed (SIGKILL) inside of the payment, right after the bank has it,
or comes to its end; then it is resumed, and after that rolled back to before the payment (with DBOS: forked there) and run
again, with the same payment or with one that a model made up anew. The bank is a file that nothing rolls back.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

from benchmarks import environment
from benchmarks.tables import table

HERE = Path(__file__).resolve().parent
NAMES = ("holdfast", "DBOS", "LangGraph")
# Each scenario is a list of lives: what happens before, and how the payment is asked for.
SCENARIOS = {
    "killed after the effect, resumed": ["kill", "resume"],
    "finished, rolled back, run again": ["run", "back"],
    "killed, resumed, rolled back, run again": ["kill", "resume", "back"],
    "finished, rolled back, another amount": ["run", "back other"],
}


class Bank:
    """Lines of a file in the working directory."""

    def __init__(self, dies: bool) -> None:
        self.dies = dies

    def pay(self, to: str, amount: int) -> str:
        with Path("bank.txt").open("a") as file:
            file.write(f"{to} {amount} {uuid.uuid4()}\n")
            file.flush()
            os.fsync(file.fileno())
        if self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return "receipt"


def with_holdfast(bank: Bank, back: bool, amount: int) -> str:
    from holdfast import EffectBlockedError, EffectUnknownError, SyncClient

    with SyncClient.sqlite("store.db") as client:
        if back:
            client.rollback("order", client.timeline(session_id="order", limit=None)[-1].checkpoint_id)
        try:
            with client.run("order", agent_id="buyer") as run:
                run.step("plan", lambda: "plan")
                run.effect("pay", bank.pay, "bob", amount, kind="irreversible")
                run.step("tell", lambda: "told")
        except EffectUnknownError:
            return "reported in doubt"
        except EffectBlockedError:
            return "blocked"
    return "went on"


def with_dbos(bank: Bank, back: bool, amount: int) -> str:
    import logging

    from dbos import DBOS, SetWorkflowID

    logging.disable(logging.WARNING)
    DBOS(config={"name": "bench", "system_database_url": "sqlite:///dbos.sqlite", "application_version": "1"})

    @DBOS.step()
    def plan() -> str:
        return "plan"

    @DBOS.step()
    def pay() -> str:
        return bank.pay("bob", amount)

    @DBOS.step()
    def tell() -> str:
        return "told"

    @DBOS.workflow()
    def order() -> str:
        plan()
        pay()
        return tell()

    DBOS.launch()  # takes up what was interrupted
    if back:
        DBOS.fork_workflow("order", 2).get_result()
    else:
        with SetWorkflowID("order"):
            order()
    DBOS.destroy()
    return "went on"


class State(TypedDict):
    done: list[str]


def with_langgraph(bank: Bank, back: bool, amount: int) -> str:
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph

    builder = StateGraph(State)
    builder.add_node("plan", lambda state: {"done": [*state["done"], "plan"]})
    builder.add_node("pay", lambda state: {"done": [*state["done"], bank.pay("bob", amount)]})
    builder.add_node("tell", lambda state: {"done": [*state["done"], "told"]})
    for first, second in ((START, "plan"), ("plan", "pay"), ("pay", "tell"), ("tell", END)):
        builder.add_edge(first, second)
    with SqliteSaver.from_conn_string("langgraph.sqlite") as saver:
        graph = builder.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "order"}}
        given: Any = {"done": []}
        if back:
            config = next(one.config for one in graph.get_state_history(config) if one.next == ("pay",))
            given = None
        elif graph.get_state(config).next:
            given = None
        graph.invoke(given, config, durability="sync")
    return "went on"


PROGRAMS: dict[str, Callable[[Bank, bool, int], str]] = {
    "holdfast": with_holdfast,
    "DBOS": with_dbos,
    "LangGraph": with_langgraph,
}


def scenario(name: str, lives: list[str], stores: Path) -> dict[str, Any]:
    """How often the bank has a payment in the end, and what the lives after the first one said."""
    with tempfile.TemporaryDirectory(dir=stores) as folder:
        said = [_life(name, life, folder) for life in lives]
        paid = len(Path(folder, "bank.txt").read_text().splitlines())
    return {"payments": paid, "said": said[1:]}


def _life(name: str, life: str, folder: str) -> str:
    environment_ = os.environ | {"PYTHONPATH": str(HERE.parent), "DBOS__CLOUD": ""}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.effects", "--life", name, life],
        cwd=folder, env=environment_, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if life == "kill":
        if done.returncode != -signal.SIGKILL:
            raise RuntimeError(f"{name} was not killed: {done.stderr[-1500:]}")
        return "killed"
    if done.returncode:
        raise RuntimeError(f"{name}, {life}: {done.stderr[-1500:]}")
    return done.stdout.splitlines()[-1]


def markdown(results: dict[str, Any]) -> str:
    names = list(next(iter(results["counts"].values())))
    rows = [
        [told, *(f"{of[name]['payments']} ({', '.join(of[name]['said'])})" for name in names)]
        for told, of in results["counts"].items()
    ]
    about = results["environment"]
    lines = [
        "# How often bob was paid",
        "",
        f"On {about['date']}, commit {about['commit']}, with {about['packages']}.",
        "What is done, and how: `benchmarks/effects.py`. In brackets what the lives after the first one said.",
        "",
        *table(["scenario", *names], rows),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.effects", description="Count effects beside peers.")
    parser.add_argument("--ours", action="store_true", help="without the peers and their packages")
    parser.add_argument("--stores", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--results", type=Path)
    parser.add_argument("--life", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.life:
        name, life = given.life
        bank = Bank(dies=life == "kill")
        print(PROGRAMS[name](bank, life.startswith("back"), 501 if "other" in life else 500))
        return
    names = NAMES[:1] if given.ours else NAMES
    counts = {told: {name: scenario(name, lives, given.stores) for name in names} for told, lives in SCENARIOS.items()}
    packages = ("holdfast", "dbos", "langgraph", "langgraph-checkpoint-sqlite")
    results = {"environment": environment.describe(given.stores, packages), "counts": counts}
    directory = given.results or HERE / "results" / ("partial" if given.ours else "")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "effects.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (directory / "effects.md").write_text(markdown(results), encoding="utf-8")
    print(markdown(results))


if __name__ == "__main__":
    main()
