"""Writer process with its own host name, until it is killed: `python writer.py URL HOST NAME`.

Says a line for each save that returned, in one `write`, and another one for each that failed. What
fails is repeated with its id until it is done. It writes to sessions of its own and to one that all
writers share.
"""

import asyncio
import functools
import json
import os
import sys

from holdfast import Client, StoreError

SESSIONS = 3


def say(*what: object) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


async def write(client: Client, session: str, name: str) -> None:
    step, parent = 0, os.getppid()
    while os.getppid() == parent:  # else nobody is left to kill it
        id_ = None
        while True:
            try:
                id_ = await client.save(
                    name, session_id=session, execution_state={"n": step, "by": name}, checkpoint_id=id_
                )
                break
            except StoreError as error:
                say(None, session, str(error))
                id_ = error.checkpoint_id or id_  # without one, nothing can have been stored
                await asyncio.sleep(0.05)
        say(id_, session, step)
        step += 1


async def main(url: str, name: str) -> None:
    async with Client.open(url, timeout=2) as client:
        sessions = [f"{name} {number}" for number in range(SESSIONS)]
        await asyncio.gather(*(write(client, session, name) for session in [*sessions, "shared"]))


if __name__ == "__main__":
    url, host, name = sys.argv[1:]
    asyncio.open_connection = functools.partial(asyncio.open_connection, local_addr=(host, 0))
    asyncio.run(main(url, name))
