"""One of two processes: an agent that writes, and hands each draft to the reviewer.

    python examples/handoff/writer.py

It writes three drafts, each in a session of its own, and ends. Then start one reviewer, or several at the same time:

    python examples/handoff/reviewer.py

Run the writer again to take up what came back. The store is `.holdfast/store.db` in the current directory.
"""

from holdfast import ConflictError, SyncClient

TOPICS = ["roots", "stem", "blade"]


def write(topic: str, remarks: list[str]) -> str:
    """Stands for a call to a model."""
    return f"About the {topic}: it holds." + (" Whatever the sea does." if remarks else "")


with SyncClient.sqlite() as client:
    for topic in TOPICS:
        session = f"draft-{topic}"
        if client.session(session) is None:
            state = {"topic": topic, "text": write(topic, []), "remarks": [], "approved": False}
            saved = client.save(agent_id="writer", session_id=session, execution_state=state, step_name="draft")
            client.handoff(saved, target_agent_id="reviewer")
            print(f"wrote about the {topic}, handed to the reviewer")

    for offer in client.inbox("writer"):  # what the reviewer sent back
        try:
            with client.claim(offer.handoff_id, "writer") as claim:
                state = claim.checkpoint.execution_state
                state["text"] = write(state["topic"], state["remarks"])
                saved = client.save("writer", execution_state=state, step_name="rewrite", lease=claim.lease)
                client.handoff(saved, target_agent_id="reviewer", lease=claim.lease)
                print(f"rewrote the {state['topic']}, handed to the reviewer again")
        except ConflictError as conflict:
            print(f"another writer has it: {conflict}")
