"""A plain agent loop that goes on where it stopped.

    python examples/plain_loop.py        # does three steps, then stops, as if it had been killed
    python examples/plain_loop.py        # goes on from there

The store is `.holdfast/store.db` in the current directory. Remove `.holdfast/` to begin again.
"""

from holdfast import SyncClient

CHAPTERS = ["roots", "stem", "blade", "spores", "drift", "shore"]
STEPS_PER_RUN = 3


def write(chapter: str) -> str:
    """Stands for a call to a model."""
    return f"About the {chapter}: it holds."


with SyncClient.sqlite() as client:
    checkpoint = client.latest(session_id="kelp-book")
    state = checkpoint.execution_state if checkpoint else {"done": 0, "messages": []}
    print(f"going on after {state['done']} chapters" if checkpoint else "beginning")

    for chapter in CHAPTERS[state["done"] :][:STEPS_PER_RUN]:
        state["messages"].append({"role": "assistant", "content": write(chapter)})
        state["done"] += 1
        client.save(agent_id="writer", session_id="kelp-book", execution_state=state, step_name=chapter)
        print(f"  wrote {chapter}")

    if state["done"] == len(CHAPTERS):
        print(f"finished: {len(state['messages'])} chapters")
    else:
        print("stopped; run me again")
