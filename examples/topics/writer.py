"""One of two processes: an agent that publishes drafts, and waits for their reviews.

    python examples/topics/writer.py

Start one reviewer, or several, in other terminals:

    python examples/topics/reviewer.py reviewer-1

Kill any of them at any moment and start it again: each draft is published once, and reviewed once. The store is
`.holdfast/store.db` in the current directory.
"""

from drafts import DRAFT, REVIEW, Draft

from holdfast import SyncClient

NAMES = ["roots", "stem", "blade"]


def write(name: str) -> str:
    """Stands for calls to a model."""
    return f"A holdfast keeps the {name} where it is."


with SyncClient.sqlite() as client, client.run("writer-1", agent_id="writer") as run:
    for name in NAMES:
        text = run.step("write", write, name)
        run.publish("drafts", Draft(name=name, text=text), contract=DRAFT)
    for name in NAMES:
        review = run.wait_for(
            "reviews", where=lambda one, name=name: one.value.name == name, contract=REVIEW, after="start", timeout=300
        )
        print(f"{name}: {review.value.words} words" if review is not None else f"{name}: no review")
