"""One of two processes: an agent that delegates questions, and joins the answers.

    python examples/delegation/boss.py

Start one researcher, or several, in other terminals:

    python examples/delegation/researcher.py

Kill any of them at any moment and start it again: no question is researched twice, and the answer is the same. The
store is `.holdfast/store.db` in the current directory.
"""

from questions import FINDING, QUESTION, Question

from holdfast import SyncClient

TOPICS = ["roots", "stem", "blade"]

with SyncClient.sqlite() as client, client.run("kelp", agent_id="boss") as run:
    asked = run.delegate("researcher", [Question(topic=topic) for topic in TOPICS], contract=QUESTION, returns=FINDING)
    got = run.join(asked, timeout=300)
    for result in got.results:
        print(f"{result.delegation.item.topic}: {result.value.text}")
    for failure in got.failed:
        print(f"{failure.delegation.item.topic}: {failure.message}")
    for missing in got.missing:
        print(f"{missing.item.topic}: no researcher has answered")
