"""The other process: an agent that reviews what the writer hands over. See examples/handoff/writer.py.

    python examples/handoff/reviewer.py

Start as many at the same time as you like: each draft is reviewed by exactly one. Kill one while it works: what it had
claimed is offered again.
"""

import time

from holdfast import ConflictError, SyncClient


def review(text: str) -> str | None:
    """Stands for a call to a model: a remark, or None if all is well."""
    time.sleep(0.2)
    return None if "sea" in text else "say something about the sea"


with SyncClient.sqlite() as client:
    for offer in client.inbox("reviewer"):
        try:
            # The lease is renewed while the block runs, however long the review takes.
            with client.claim(offer.handoff_id, "reviewer") as claim:
                state = claim.checkpoint.execution_state
                remark = review(state["text"])
                state["approved"] = remark is None
                if remark:
                    state["remarks"].append(remark)
                saved = client.save("reviewer", execution_state=state, step_name="review", lease=claim.lease)
                if remark:
                    client.handoff(saved, target_agent_id="writer", lease=claim.lease)
                print(f"reviewed the {state['topic']}: {remark or 'approved'}")
        except ConflictError:
            print(f"somebody else has {offer.session_id}")
