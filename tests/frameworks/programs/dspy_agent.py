"""A program of DSPy that pays three invoices, over the wrappers of `docs/frameworks/dspy.md`.

python dspy_agent.py STORE DIRECTORY
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import dspy
from call_log import log_call, read_calls
from dspy_model import FunctionEngine, answer_request, read_request
from paths import ROOT
from snippets import snippets

from holdfast import NOT_DONE, Done, SyncClient

API_KEY = "sk-dspy-0123456789"
PAGE = ROOT / "docs" / "frameworks" / "dspy.md"
recipe: dict[str, Any] = {"__name__": "recipe"}
code = next(iter(snippets(PAGE, "python"))).code  # the code of the page is what is tested
exec(compile(code, PAGE, "exec", dont_inherit=True), recipe)


def run_program(
    client: SyncClient, directory: Path, question: str, session: str = "invoices", answer: Any = None, **effect: Any
) -> Any:
    def pay(invoice_id: int) -> str:
        """Pay an invoice."""
        log_call(directory, "pay", invoice_id)
        return f"receipt {invoice_id}"

    def find_payment(invoice_id: int) -> Any:
        paid = json.dumps([invoice_id]) in read_calls(directory).get("pay", [])
        return Done(f"receipt {invoice_id}") if paid else NOT_DONE

    def ask(messages: Any) -> str:
        log_call(directory, "model", *read_request(messages))
        return answer_request(messages)

    effect = {"kind": "irreversible", "probe": find_payment} | effect
    with client.run(session, agent_id="payer") as run:
        lm = recipe["RecordedLM"]("scripted", run=run, engine=FunctionEngine(answer or ask), cache=False)
        lm.kwargs["api_key"] = API_KEY  # as `dspy.LM(api_key=...)` keeps it; one with an engine refuses it there
        with dspy.context(lm=lm):
            program = dspy.ReAct("question -> answer", tools=[recipe["recorded"](run, pay, key="invoice_id", **effect)])
            return program(question=question)


def main(store: str, directory: Path) -> None:
    with SyncClient.open(store) as client:
        said = run_program(client, directory, "Pay the invoices 7, 8 and 9.")
    print(json.dumps({"answer": said.answer, "trajectory": said.trajectory}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
