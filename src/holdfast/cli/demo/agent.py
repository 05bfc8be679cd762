"""The agent of the demo: it buys pumps in twelve steps, without a network or a model.

It runs as a process of its own:

    python -m holdfast.cli.demo.agent STORE SESSION POLICY PAUSE

It reports its progress on stdout, a line at a time, so that its parent process knows when to kill
it: `begins NAME`, `saving NAME`, `saved NAME ID`, and `resumes INDEX` at its start.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

State = dict[str, Any]

AGENT = "buyer"
ORDERED_ON = date(2026, 3, 2)
QUANTITY = 40
OFFERS = {
    "Aalto Pumps": {"price": Decimal("212.50"), "days": 19},
    "Brook & Sons": {"price": Decimal("234.00"), "days": 11},
    "Cascade": {"price": Decimal("268.90"), "days": 4},
}
FREIGHT_PER_PIECE = Decimal("3.75")
VAT = Decimal("0.20")
POLICIES: dict[str, Callable[[str], Any]] = {
    "cheapest": lambda supplier: OFFERS[supplier]["price"],
    "fastest": lambda supplier: OFFERS[supplier]["days"],
}


def make_state() -> State:
    return {"steps_done": 0, "messages": [], "quotes": {}, "policy": None}


def read_request(state: State, _policy: str) -> str:
    state["quantity"] = QUANTITY
    return f"The plant needs {QUANTITY} pumps."


def search_suppliers(state: State, _policy: str) -> str:
    state["suppliers"] = list(OFFERS)
    return f"Found {len(OFFERS)} suppliers: {', '.join(OFFERS)}."


def read_norms(state: State, _policy: str) -> str:
    state["norms"] = ["EN 809", "ISO 9906"]
    return "The pumps must conform to EN 809 and ISO 9906."


def _quote(supplier: str) -> Callable[[State, str], str]:
    def ask(state: State, _policy: str) -> str:
        offer = OFFERS[supplier]
        state["quotes"][supplier] = dict(offer)
        terms = f"{supplier} asks {offer['price']} for a piece, and delivers in {offer['days']} days."
        return f"{terms}\n{_catalogue(len(supplier))}"

    return ask


def _catalogue(seed: int) -> str:
    """Return a long tool result: the part that a store without sharing writes again with every step."""
    return "\n".join(
        f"P-{1000 + number}: {(number * 7919 * seed) % 997} l/min, {(number * 104729 * seed) % 89} bar"
        for number in range(400)
    )


def compare_quotes(state: State, _policy: str) -> str:
    state["cheapest"] = min(state["quotes"], key=POLICIES["cheapest"])
    state["fastest"] = min(state["quotes"], key=POLICIES["fastest"])
    return f"Cheapest: {state['cheapest']}. Fastest: {state['fastest']}."


def decide(state: State, policy: str) -> str:
    state["policy"] = policy
    state["supplier"] = state[policy]
    return f"We take the {policy}: {state['supplier']}."


def book_freight(state: State, _policy: str) -> str:
    state["freight"] = FREIGHT_PER_PIECE * state["quantity"]
    return f"Freight is {state['freight']}."


def plan_arrival(state: State, _policy: str) -> str:
    state["arrives"] = ORDERED_ON + timedelta(days=state["quotes"][state["supplier"]]["days"])
    return f"The pumps arrive on {state['arrives']}."


def compute_total(state: State, _policy: str) -> str:
    goods = state["quotes"][state["supplier"]]["price"] * state["quantity"]
    state["total"] = ((goods + state["freight"]) * (1 + VAT)).quantize(Decimal("0.01"))
    return f"The total is {state['total']}."


def write_summary(state: State, _policy: str) -> str:
    return f"{state['quantity']} pumps from {state['supplier']}, {state['total']}, on {state['arrives']}."


STEPS: dict[str, Callable[[State, str], str]] = {
    "read_request": read_request,
    "search_suppliers": search_suppliers,
    "read_norms": read_norms,
    "quote_aalto": _quote("Aalto Pumps"),
    "quote_brook": _quote("Brook & Sons"),
    "quote_cascade": _quote("Cascade"),
    "compare_quotes": compare_quotes,
    "decide": decide,
    "book_freight": book_freight,
    "plan_arrival": plan_arrival,
    "compute_total": compute_total,
    "write_summary": write_summary,
}
NAMES = tuple(STEPS)


def take_step(state: State, name: str, policy: str) -> None:
    result = STEPS[name](state, policy)
    state["messages"] += [{"role": "assistant", "content": f"Next: {name}."}, {"role": "tool", "content": result}]
    state["steps_done"] += 1


def run_uninterrupted(policy: str) -> State:
    """Return the agent's final state without interruptions: a resumed run must equal it."""
    state = make_state()
    for name in NAMES:
        take_step(state, name, policy)
    return state


def main(path: str, session: str, policy: str, pause: float) -> None:
    from holdfast import SyncClient

    with SyncClient.sqlite(path) as client:
        checkpoint = client.latest(session_id=session)
        state = checkpoint.execution_state if checkpoint else make_state()
        _print("resumes", state["steps_done"])
        for name in NAMES[state["steps_done"] :]:
            _print("begins", name)
            time.sleep(pause)  # the time of a model or a tool
            take_step(state, name, policy)
            _print("saving", name)
            id_ = client.save(agent_id=AGENT, session_id=session, execution_state=state, step_name=name)
            _print("saved", name, id_)


def _print(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201 - this process speaks by printing


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
