"""An agent that pays an approved invoice once, although it is killed, and gets the money back.

    python examples/invoice/agent.py                 # reads the invoice, and waits for approval
    python examples/invoice/finance.py 450           # finance approves, with another amount
    python examples/invoice/agent.py                 # pays, and is killed before the bank's answer is written down
    python examples/invoice/agent.py                 # finds out that the bank has it, and goes on
    python examples/invoice/agent.py "it came back broken: get the money back"
    python examples/invoice/finance.py               # that is confirmed, too
    python examples/invoice/agent.py                 # and done

The bank is `bank.txt`, the store `.holdfast/store.db`, both in the current directory. Remove them
to begin again. The model is a script, so that nothing else is needed; `OpenAICompatible(url, name)`
in its place makes it a real one.
"""

import json
import os
import sys
from pathlib import Path

from holdfast import NOT_DONE, ApprovalPendingError, Done, StakesPolicy, SyncClient, agent, tool

BANK = Path("bank.txt")


def find_payment(to: str, amount: int, idempotency_key: str):  # noqa: ARG001 - it is called like `pay`
    """What the bank says of a payment, by its key."""
    lines = BANK.read_text().splitlines() if BANK.exists() else []
    return next((Done(line.split()[0]) for line in lines if idempotency_key in line), NOT_DONE)


@tool(kind="read")
def read_invoice(number: str) -> dict:
    """Reads an invoice."""
    return {"number": number, "from": "bob", "amount": 500}


@tool(kind="irreversible", identity=("to", "amount"), probe=find_payment)
def pay(to: str, amount: int, idempotency_key: str = "") -> str:
    """Pays somebody, and gives the number of the payment."""
    payment = f"P{len(BANK.read_text().splitlines()) + 1 if BANK.exists() else 1}"
    with BANK.open("a") as bank:
        bank.write(f"{payment} {to} {amount} {idempotency_key}\n")
    print(f"the bank has {payment}: {amount} to {to}", flush=True)
    os._exit(9)  # the power fails: nobody is told


@tool(kind="idempotent", identity=("payment",))
def refund(payment: str, idempotency_key: str = "") -> str:
    """Asks for the money of a payment back. The bank does so once for each key."""
    if not BANK.exists() or idempotency_key not in BANK.read_text():
        with BANK.open("a") as bank:
            bank.write(f"refund of {payment} {idempotency_key}\n")
    return f"{payment} is refunded"


def model(messages, _tools):
    """Stands for a model: what it asks for follows from what was said."""
    asked = [message["content"] for message in messages if message["role"] == "user"][-1]
    answers = [message["content"] for message in messages if message["role"] == "tool"]
    if "money back" in asked:
        if not answers[-1].endswith("refunded"):
            return call("refund", payment=answers[-1].split()[0])
        return f"Done: {answers[-1]}."
    if not answers:
        return call("read_invoice", number="INV-7")
    if len(answers) == 1:
        invoice = json.loads(answers[0])
        return call("pay", to=invoice["from"], amount=invoice["amount"])
    return f"The invoice is paid: {answers[-1]}"


def call(name, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "tool_calls": [{"id": f"call_{name}", "type": "function", "function": function}]}


with SyncClient.sqlite() as client:
    bot = agent(
        model=model,
        tools=[read_invoice, pay, refund],
        checkpoints=client,
        session_id="INV-7",
        agent_id="invoices",
        policy=StakesPolicy({"refund": "low"}, approvers="finance"),
    )
    prompt = sys.argv[1] if len(sys.argv) > 1 else None
    if prompt is None and bot.load() is None:
        prompt = "Pay invoice INV-7."
    try:
        print(bot.generate(prompt).text)
    except ApprovalPendingError as waiting:
        print(waiting)
        sys.exit(waiting.exit_code)
