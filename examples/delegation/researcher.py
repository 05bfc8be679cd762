"""The other process: an agent that researches what the boss delegates. See examples/delegation/boss.py.

    python examples/delegation/researcher.py [SECONDS]

It ends when nothing has waited for so many seconds (60). Start as many as you like.
"""

import sys
import time

from questions import QUESTION, Finding

from holdfast import ConflictError, SyncClient

PATIENCE = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0


def research(topic: str) -> str:
    """Stands for calls to a model."""
    time.sleep(0.2)
    return f"it holds fast by its {topic}"


with SyncClient.sqlite() as client:
    idle_since = time.monotonic()
    while time.monotonic() - idle_since < PATIENCE:
        for offer in client.inbox("researcher"):
            try:
                with client.claim(offer.handoff_id, "researcher", contract=QUESTION) as claim:
                    topic = claim.value.topic
                    if topic == "stem":
                        claim.fail("stipe is the word")
                        continue
                    # Steps and effects of the work, in its own session: another researcher resumes here.
                    with client.run(claim.session_id, "researcher", lease=claim.lease) as run:
                        text = run.step("research", research, topic)
                    claim.complete(Finding(text=text))
                    print(f"researched {topic}")
            except ConflictError:
                continue  # another researcher has it
            idle_since = time.monotonic()
        time.sleep(0.1)
