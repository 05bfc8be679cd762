"""The other process: an agent that reviews what the writer publishes. See examples/topics/writer.py.

    python examples/topics/reviewer.py [SESSION [SECONDS]]

It ends when no draft has come for so many seconds (60). Start as many as you like, each with a session of its own.
"""

import sys

from drafts import DRAFT, REVIEW, Review

from holdfast import SyncClient

session = sys.argv[1] if len(sys.argv) > 1 else "reviewer-1"
patience = float(sys.argv[2]) if len(sys.argv) > 2 else 60.0


def count_words(text: str) -> int:
    """Stands for calls to a model."""
    return len(text.split())


with SyncClient.sqlite() as client, client.run(session, agent_id="reviewer") as run:
    reviewed = run.state.setdefault("reviewed", 0)
    for message in run.receive("drafts", "reviewers", contract=DRAFT, timeout=patience):
        draft = message.value
        words = run.step("count", count_words, draft.text)
        run.publish("reviews", Review(name=draft.name, words=words), contract=REVIEW)
        run.state["reviewed"] += 1
        print(f"reviewed {draft.name}")
