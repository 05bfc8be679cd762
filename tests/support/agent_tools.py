"""Tools for the tests of the agent loop, what they did, and the steps that were saved."""

from __future__ import annotations

from agent_models import calls

from holdfast import tool

LOOK = calls(("c1", "look", {"what": "x"}))


@tool(kind="read")
def look(what: str) -> str:
    """Looks something up."""
    return f"{what} is 7"


class Bank:
    """Counts what is really done."""

    def __init__(self, **options):
        self.paid = []
        self.fails_with = None

        @tool(**{"kind": "irreversible", "identity": ("to", "amount"), **options})
        def pay(to: str, amount: int, note: str = "") -> dict:
            """Pays somebody."""
            self.paid.append((to, amount))
            if self.fails_with is not None:
                raise self.fails_with
            return {"paid": amount}

        self.pay = pay


def steps(client, session_id="s"):
    return [entry.step_name for entry in reversed(client.timeline(session_id=session_id, limit=None))]
