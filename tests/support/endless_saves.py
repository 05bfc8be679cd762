"""Writer process that saves to a SQLite store until a save fails or standard input is closed.

    python endless_saves.py PATH SESSION

Each line is `NUMBER MONOTONIC_NS`; the last one `error TEXT` or `end`.
"""

import select
import sys
import time

from holdfast import HoldfastError, SyncClient

with SyncClient.sqlite(sys.argv[1]) as client:
    number = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        begun = time.monotonic_ns()
        try:
            client.save("a", session_id=sys.argv[2], execution_state={"number": number})
        except HoldfastError as error:
            print("error", str(error), flush=True)
            break
        print(number, begun, flush=True)
        number += 1
    else:
        print("end", flush=True)
