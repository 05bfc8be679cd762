"""An agent without a framework, on `SyncClient.run`: the program that the crash kit tests itself with.

    python plain_agent.py STORE DIRECTORY

It pays three invoices, one a turn, and reads the balance before each. The model is a function of the turn.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from call_log import log_call

from holdfast import NOT_DONE, Done, SyncClient

INVOICES = ("a", "b", "c")


class Office:
    """The model and the tools, and the outside world that they change."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.paid = directory / "paid"

    def ask_model(self, turn: int) -> dict[str, Any]:
        log_call(self.directory, "model", turn)
        return {"tool": "pay", "invoice": INVOICES[turn]} if turn < len(INVOICES) else {"answer": "all paid"}

    def read_balance(self, turn: int) -> int:
        log_call(self.directory, "balance", turn)
        return 100 - 10 * turn

    def pay(self, invoice: str) -> str:
        log_call(self.directory, "pay", invoice)
        with self.paid.open("a") as file:
            file.write(f"{invoice}\n")
        return f"receipt {invoice}"

    def find_payment(self, invoice: str) -> Any:
        """What the bank says of a payment whose outcome is unknown."""
        paid = self.paid.read_text().split() if self.paid.exists() else []
        return Done(f"receipt {invoice}") if invoice in paid else NOT_DONE


def main(store: str, directory: Path) -> None:
    office, receipts = Office(directory), []
    with SyncClient.open(store) as client, client.run("invoices", agent_id="payer") as run:
        for turn in range(len(INVOICES) + 1):
            decision = run.step(f"model {turn}", office.ask_model, turn)
            if "answer" in decision:
                break
            balance = run.step(f"balance {turn}", office.read_balance, turn)
            receipt = run.effect("pay", office.pay, decision["invoice"], key=turn, probe=office.find_payment)
            receipts.append([balance, receipt])
    print(json.dumps({"answer": decision["answer"], "receipts": receipts}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
