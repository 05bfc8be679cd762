"""Saves with one message each, for tests that kill the process at a system call.

    python topic_saves.py sqlite|files PATH together|apart

`together` publishes in the commit of the save; `apart` after it, as one must not.
"""

from __future__ import annotations

import sys

from acknowledged import open_client

from holdfast import Message

SAVES = 3


def main() -> None:
    kind, path, how = sys.argv[1:]
    with open_client(kind, path) as client:
        for n in range(SAVES):
            if how == "together":
                client.save("a", session_id="s", execution_state={"n": n}, publish=[Message("t", n)])
            else:
                client.save("a", session_id="s", execution_state={"n": n})
                client.publish("t", n)


if __name__ == "__main__":
    main()
