"""An agent that goes wrong at a hidden step: docs/tutorial.md finds it, and tries another way from there.

    python examples/expenses.py run report      goes on where the session stands; exits with 1 if it ends badly
    python examples/expenses.py check           reads a state from stdin; exits with 1 if its total can't be right

It reads forty receipts, one after the other, and adds them up. Two checkpoints for each: one when
the receipt has been read, one when it has been added. One of them is misread: which, is not said
here.
"""

import json
import random
import sys

from holdfast import SyncClient

RECEIPTS = 40
LIMIT = 10_000  # what a trip may cost
HIGHEST = 200  # what a single receipt may
AGENT = "accountant"


def read_receipt(number: int) -> str:
    """The tool: what a scanner makes of a receipt."""
    chance = random.Random(number)
    cents = chance.randrange(1_000, 100 * HIGHEST)
    misread = random.Random("which one?").randrange(RECEIPTS // 2, RECEIPTS)
    return f"receipt {number}: {cents if number == misread else cents / 100:.2f} EUR"


def amount(message: dict[str, str]) -> float:
    """The model: what it takes from a message."""
    return float(message["content"].split()[-2])


def run(session: str) -> int:
    with SyncClient.sqlite() as client:
        found = client.latest(session_id=session)
        state = found.execution_state if found else {"messages": [], "total": 0.0, "added": 0, "answer": None}
        while state["added"] < RECEIPTS:
            number = state["added"] + 1
            if len(state["messages"]) < number:
                state["messages"].append({"role": "tool", "content": read_receipt(number)})
                client.save(AGENT, execution_state=state, session_id=session, step_name=f"read-{number}")
            state["total"] = round(state["total"] + amount(state["messages"][-1]), 2)
            state["added"] = number
            client.save(AGENT, execution_state=state, session_id=session, step_name=f"add-{number}")
        if state["answer"] is None:
            state["answer"] = "paid" if state["total"] <= LIMIT else "refused: over the limit"
            client.save(AGENT, execution_state=state, session_id=session, step_name="decide", outcome=state["answer"])
    print(f"{session}: {RECEIPTS} receipts, {state['total']:,.2f} EUR, {state['answer']}")
    return 0 if state["answer"] == "paid" else 1


def check() -> int:
    state = json.load(sys.stdin)
    return 0 if state["total"] <= HIGHEST * state["added"] else 1


if __name__ == "__main__":
    what, *names = sys.argv[1:] or ["run", "report"]
    sys.exit(check() if what == "check" else run(*names))
