"""The control: the work of `plain_agent.py` without holdfast. After a kill it begins again, and pays twice.

python forgetful_agent.py STORE DIRECTORY
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from call_log import log_call

INVOICES = ("a", "b", "c")


def main(directory: Path) -> None:
    receipts = []
    for turn, invoice in enumerate(INVOICES):
        log_call(directory, "model", turn)
        log_call(directory, "balance", turn)
        log_call(directory, "pay", invoice)
        receipts.append([100 - 10 * turn, f"receipt {invoice}"])
    log_call(directory, "model", len(INVOICES))
    print(json.dumps({"answer": "all paid", "receipts": receipts}))


if __name__ == "__main__":
    main(Path(sys.argv[2]))
