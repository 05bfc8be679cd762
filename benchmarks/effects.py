"""How often an effect is carried out: the same scenarios with holdfast, DBOS and LangGraph. `python
-m benchmarks.effects`.

A program makes a plan, pays bob 500, and tells so. It is killed (SIGKILL) inside of the payment,
right after the bank has it, or comes to its end; then it is resumed, and after that rolled back to
before the payment (with DBOS: forked there), or forked there, and run again: with the same payment,
or with one that a model made up anew. Or it is killed later, when the payment is recorded, and
resumed. Or the bank pays and gives no answer, and the program tries once more, as each of the three
has it: DBOS by a step with retries, LangGraph by a RetryPolicy, holdfast by a loop. The bank is a
file that nothing rolls back. Where the payment needs an approval, a person gives one, once; DBOS
and LangGraph have it as the result of a step before it.
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
# Each scenario is a payment, and a list of lives: what happens to the program.
SCENARIOS = {
    "killed after the effect, resumed": ("same", ["kill", "resume"]),
    "finished, rolled back, run again": ("same", ["run", "back"]),
    "finished, forked before the effect, run there": ("same", ["run", "fork"]),
    "killed, resumed, rolled back, run again": ("same", ["kill", "resume", "back"]),
    "finished, rolled back, another amount": ("other amount", ["run", "back"]),
    "finished, rolled back, a new reference": ("new reference", ["run", "back"]),
    "finished, rolled back, keys in another order": ("other order", ["run", "back"]),
    "a one-time token, killed after the effect, resumed": ("token", ["kill", "resume"]),
    "approved once, finished, rolled back, run again": ("approved", ["run", "back"]),
    "killed later, resumed, another amount": ("other amount", ["kill later", "resume"]),
    "killed later, resumed, a new reference": ("new reference", ["kill later", "resume"]),
    "no answer, tried again": ("no answer", ["run"]),
}
LATER = ("resume", "back", "fork")


def order(payment: str, *, again: bool) -> dict[str, Any]:
    """What the bank is asked for: by the first life, or by a later one."""
    wanted: dict[str, Any] = {"to": "bob", "amount": 500}
    if payment == "other amount" and again:
        wanted["amount"] = 501
    if payment == "new reference":
        wanted["reference"] = str(uuid.uuid4())
    if payment == "other order" and again:
        wanted = dict(reversed(wanted.items()))
    if payment == "token":
        wanted["token"] = "only once"
    return wanted


class Bank:
    """Lines of a file in the working directory. A token is taken once."""

    def __init__(self, life: str, payment: str) -> None:
        self.dies = life == "kill"
        self.dies_later = life == "kill later"
        self.answers = payment != "no answer"

    def pay(self, order: dict[str, Any]) -> str:
        told = json.dumps(order, sort_keys=True)
        book = Path("bank.txt")
        refused = "token" in order and book.exists() and order["token"] in book.read_text()
        with book.open("a") as file:
            file.write(f"{'refused' if refused else 'paid'} {told}\n")
            file.flush()
            os.fsync(file.fileno())
        if refused:
            raise ValueError("the token was used before")
        if self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        if not self.answers:
            self.answers = True
            raise TimeoutError("no answer")
        return "receipt"

    def tell(self) -> str:
        if self.dies_later:
            os.kill(os.getpid(), signal.SIGKILL)
        return "told"


def with_holdfast(bank: Bank, life: str, payment: str) -> str:
    from holdfast import ApprovalPendingError, EffectBlockedError, EffectUnknownError, SyncClient

    session = "other" if life == "fork" else "order"
    who = "finance" if payment == "approved" else None

    def program(client: SyncClient) -> None:
        with client.run(session, agent_id="buyer") as run:
            run.step("plan", lambda: "plan")
            wanted = order(payment, again=life in LATER)
            for _ in range(2):
                try:
                    run.effect("pay", bank.pay, wanted, kind="irreversible", approve=who)
                    break
                except TimeoutError:
                    continue
            run.step("tell", bank.tell)

    with SyncClient.sqlite("store.db") as client:
        if life in ("back", "fork"):
            before = client.timeline(session_id="order", limit=None)[-1].checkpoint_id
            client.rollback("order", before) if life == "back" else client.fork(before, session)
        try:
            program(client)
        except ApprovalPendingError:
            if life != "run":
                return "asked again"
            client.decide(client.approvals()[0].approval_id, "approve", by="ann")
            program(client)
        except EffectUnknownError:
            return "reported in doubt"
        except EffectBlockedError:
            return "blocked"
    return "went on"


def with_dbos(bank: Bank, life: str, payment: str) -> str:
    import logging

    from dbos import DBOS, SetWorkflowID

    from benchmarks.dbos_config import dbos_on_sqlite

    logging.disable(logging.WARNING)
    DBOS(config=dbos_on_sqlite("dbos.sqlite", application_version="1"))

    @DBOS.step()
    def plan() -> str:
        return "plan"

    @DBOS.step()
    def approve() -> str:
        return "approved"

    @DBOS.step(retries_allowed=payment == "no answer", max_attempts=2, interval_seconds=0.1)
    def pay() -> str:
        return bank.pay(order(payment, again=life in LATER))

    @DBOS.step()
    def tell() -> str:
        return bank.tell()

    @DBOS.workflow()
    def program() -> str:
        plan()
        approve()
        pay()
        return tell()

    DBOS.launch()  # takes up what was interrupted
    try:
        if life in ("back", "fork"):
            DBOS.fork_workflow("order", 3).get_result()
        else:
            with SetWorkflowID("order"):
                program()
    except ValueError:
        return "failed"
    finally:
        DBOS.destroy()
    return "went on"


class State(TypedDict):
    done: list[str]


def with_langgraph(bank: Bank, life: str, payment: str) -> str:
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import RetryPolicy

    def pay(state: State) -> Any:
        return {"done": [*state["done"], bank.pay(order(payment, again=life in LATER))]}

    builder = StateGraph(State)
    builder.add_node("plan", lambda state: {"done": [*state["done"], "plan"]})
    builder.add_node("approve", lambda state: {"done": [*state["done"], "approved"]})
    retrying = RetryPolicy(max_attempts=2, initial_interval=0.1, retry_on=TimeoutError)
    builder.add_node("pay", pay, retry_policy=retrying)
    builder.add_node("tell", lambda state: {"done": [*state["done"], bank.tell()]})
    for first, second in ((START, "plan"), ("plan", "approve"), ("approve", "pay"), ("pay", "tell"), ("tell", END)):
        builder.add_edge(first, second)
    with SqliteSaver.from_conn_string("langgraph.sqlite") as saver:
        graph = builder.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "order"}}
        given: Any = {"done": []}
        if life in ("back", "fork"):
            config = next(one.config for one in graph.get_state_history(config) if one.next == ("pay",))
            config = graph.update_state(config, None) if life == "fork" else config
            given = None
        elif graph.get_state(config).next:
            given = None
        try:
            graph.invoke(given, config, durability="sync")
        except ValueError:
            return "failed"
    return "went on"


PROGRAMS: dict[str, Callable[[Bank, str, str], str]] = {
    "holdfast": with_holdfast,
    "DBOS": with_dbos,
    "LangGraph": with_langgraph,
}


def scenario(name: str, payment: str, lives: list[str], stores: Path) -> dict[str, Any]:
    """How often the bank was asked for a payment in the end, and what the lives after the first one
    said, or that one."""
    with tempfile.TemporaryDirectory(dir=stores) as folder:
        said = [_life(name, life, payment, folder) for life in lives]
        asked = len(Path(folder, "bank.txt").read_text().splitlines())
    return {"payments": asked, "said": said[1:] or said}


def _life(name: str, life: str, payment: str, folder: str) -> str:
    environment_ = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(HERE.parent / "src"), str(HERE.parent))),
        "DBOS__CLOUD": "",
    }
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.effects", "--life", name, life, payment],
        cwd=folder, env=environment_, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if life.startswith("kill"):
        if done.returncode != -signal.SIGKILL:
            raise RuntimeError(f"{name} was not killed: {done.stderr[-1500:]}")
        return "killed"
    if done.returncode:
        raise RuntimeError(f"{name}, {life}, {payment}: {done.stderr[-1500:]}")
    return done.stdout.splitlines()[-1]


def markdown(results: dict[str, Any]) -> str:
    names = list(next(iter(results["counts"].values())))
    rows = [
        [told, *(f"{of[name]['payments']} ({', '.join(of[name]['said'])})" for name in names)]
        for told, of in results["counts"].items()
    ]
    about = results["environment"]
    lines = [
        "# How often the bank was asked to pay bob",
        "",
        f"On {about['date']}, commit {about['commit']}, with {about['packages']}.",
        (
            "What is done, and how: `benchmarks/effects.py`. In brackets what the lives after the first "
            "one said, or the only one."
        ),
        "",
        *table(["scenario", *names], rows),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.effects", description="Count effects beside peers.")
    parser.add_argument("--ours", action="store_true", help="without the peers and their packages")
    parser.add_argument("--stores", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--results", type=Path)
    parser.add_argument("--life", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.life:
        name, life, payment = given.life
        print(PROGRAMS[name](Bank(life, payment), life, payment))
        return
    names = NAMES[:1] if given.ours else NAMES
    counts = {
        told: {name: scenario(name, payment, lives, given.stores) for name in names}
        for told, (payment, lives) in SCENARIOS.items()
    }
    packages = ("holdfast", "dbos", "langgraph", "langgraph-checkpoint-sqlite")
    results = {"environment": environment.describe(given.stores, packages), "counts": counts}
    directory = given.results or HERE / "results" / ("partial" if given.ours else "")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "effects.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (directory / "effects.md").write_text(markdown(results), encoding="utf-8")
    print(markdown(results))


if __name__ == "__main__":
    main()
