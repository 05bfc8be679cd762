"""A loop of one's own that pays, moves to another framework, and ends there.

    python moved_agent.py STORE DIRECTORY

The target is the beginning of the directory's name: `crewai--at-3`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from framework_environments import is_installed
from moved_agents import CONTINUE, Office, make_source

from holdfast import SyncClient

if is_installed("crewai"):  # imported before a life begins: each life is a fork of this process
    import crewai_model  # noqa: F401 - as below

    import holdfast.crewai
else:
    import holdfast.pydantic_ai  # noqa: F401 - as above


def main(store: str, directory: Path) -> None:
    target = directory.name.partition("--")[0]
    office = Office(directory)
    with SyncClient.open(store) as client:
        if client.session("moved") is None:
            head = client.session("source")
            if head is None or head.head.step_name != "paid":
                make_source(client, office)
            client.resume_as("source", target).save("clerk", session_id="moved")
        moved = len(client.timeline("moved"))
    print(json.dumps({"answer": CONTINUE[target](store, "moved", office), "was_moved": moved > 0}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
