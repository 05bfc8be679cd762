"""Finance decides about what the agents ask for: the other half of agent.py.

    python examples/invoice/finance.py          # approves what waits
    python examples/invoice/finance.py 450      # approves it with another amount
    python examples/invoice/finance.py no       # rejects it

`holdfast approvals`, `holdfast approve ID` and `holdfast reject ID` do the same.
"""

import sys

from holdfast import SyncClient

answer = sys.argv[1] if len(sys.argv) > 1 else "yes"

with SyncClient.sqlite() as client:
    for waiting in client.approvals():
        call = dict(waiting.call.arguments)
        if answer == "no":
            decided = client.decide(waiting.approval_id, "reject", by="fay", note="we don't know them")
        elif answer == "yes" or "amount" not in call:
            decided = client.decide(waiting.approval_id, "approve", by="fay")
        else:
            call["amount"] = int(answer)
            decided = client.decide(waiting.approval_id, "modify", by="fay", note="less the discount", arguments=call)
        print(f"{decided.call.tool} {dict(decided.call.arguments)}: {decided.status}, as {dict(decided.arguments)}")
