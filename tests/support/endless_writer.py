"""Writer process that saves until it is killed, on a store shared with other writers.

    python endless_writer.py sqlite|files PATH NAME full|fast [HOW IT IS BROKEN]

It appends tokens to a list that all writers share: each save follows the head it finds, so the head's list must have
every acknowledged token, once. In sessions of its own it saves whole states, forks, expires and collects.
"""

import itertools
import os
import random
import sys
import time

from acknowledged import digest, open_client, say
from broken import EARLY, break_

from holdfast import SyncClient
from holdfast.coordination.id_generator import IdSource
from holdfast.model import ids

SHARED = "shared"
TURNS = 40  # of a session of its own; then it begins another


def add_token(client: SyncClient, token: str, *, early: bool) -> None:
    id_ = ids.to_text(IdSource().new(None)) if early else None
    if early:
        say(token=token, checkpoint=id_)
        time.sleep(0.01)
    id_ = client.save("crowd", session_id=SHARED, append={"+tokens": [token]}, checkpoint_id=id_, digest="", name=token)
    if not early:
        say(token=token, checkpoint=id_)


def take_turn(client: SyncClient, session: str, turn: int, messages: list[str], mine: list[str]) -> None:
    """One save to a session of its own, and now and then something else."""
    messages += [f"{session} {turn} {number} " + "y" * (turn * 37 % 900) for number in range(3)]
    state, context = (
        {"deep": {"messages": messages}, "turn": turn},
        {"page": f"{turn} " * 1500} if turn % 5 == 0 else {},
    )
    of_state = digest(state, context)
    id_ = client.save("crowd", execution_state=state, context=context, session_id=session, digest=of_state)
    say(saved=id_, digest=of_state, session=session)
    mine.append(id_)
    if turn % 7 == 3:
        forked = client.fork(id_, f"{session} fork {turn}")
        say(saved=forked.checkpoint_id, digest=of_state, session=forked.session_id)
    if turn % 9 == 5:
        old = mine.pop(0)
        say(expiring=old)
        client.expire(old)
        say(expired=old)
    if turn % 20 == 11:
        client.gc()


def main() -> None:
    parent = os.getppid()
    kind, path, name, durability, *how_broken = sys.argv[1:]
    break_(*how_broken or [""])
    client = open_client(kind, path, durability=durability)
    rng = random.Random(name)
    for number in itertools.count():
        session, messages, mine = f"{name} {number}", list[str](), list[str]()
        for turn in range(TURNS):
            if os.getppid() != parent:  # nobody is left to kill it
                return
            for _ in range(rng.randrange(4)):
                add_token(client, f"{name} {number} {turn} {rng.random()} {'-' * 150}", early=EARLY in how_broken)
            take_turn(client, session, turn, messages, mine)


if __name__ == "__main__":
    main()
