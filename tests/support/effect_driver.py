"""Driver that kills programs with effects at random moments and restarts them until they end.

    python effect_driver.py <fulfilment | payments> <store url> <directory> <kills> <seed> [--control]

Each life is a process of its own and ends by SIGKILL, or by itself. A scripted person resolves what
is truly in doubt, by looking at the outside world, and only between two lives: while a program
runs, what it does can't be known. Prints a JSON line for each session. With `--control` the same
program does without the ledger, and must be found out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from effect_world import World, judge, receipt

from holdfast import ConflictError, SyncClient

KILLS_OF_A_SESSION = 10
LIVES = 40  # that end by themselves, until a session must have finished
# What a life says when it holds its session: on a busy machine, opening a store takes longer than
# all the rest.
BEGUN = b"\0"


class Campaign(Protocol):
    """A kind of program to kill."""

    LONGEST: float  # seconds: kills are spread over this time

    @staticmethod
    def live(
        begun: Callable[[], object], url: str, session: str, world: World, number: int, *, is_control: bool
    ) -> str:
        """One life, until it has nothing to do: "done", or what it waits for. Calls `begun` once it is at work."""

    @staticmethod
    def wanted(number: int) -> Any:
        """What the world must have of each kind in the end."""


def in_a_process(work: Callable[..., str], *given: Any, **options: Any) -> str:
    """What the work came to; "killed" if it was killed, so many seconds after it has begun (`killed_after`)."""
    moment: float | None = options.pop("killed_after", None)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        try:
            os.write(writing, work(lambda: os.write(writing, BEGUN), *given, **options).encode())
            os._exit(0)
        except BaseException:
            os.write(writing, traceback.format_exc().encode()[-3000:])
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        first = pipe.read(1)
        if moment is not None:
            time.sleep(moment)
            os.kill(child, signal.SIGKILL)
        told = (first + pipe.read()).lstrip(BEGUN).decode()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "killed"
    if os.WEXITSTATUS(status):
        raise RuntimeError(f"a life failed:\n{told}")
    return told


def resolve_doubts(begun: Callable[[], object], url: str, session: str, world: World) -> str:
    """What a person does about effects in doubt: looks at the outside world, and says what became of them."""
    begun()
    resolved = 0
    with SyncClient.open(url) as client:
        for effect in client.effects(session, in_doubt=True) if has_begun(client, session) else []:
            found = world.find(effect.provider_key)
            outcome, result = (
                ("not_done", None) if found is None else ("done", receipt(found["what"], found["decision"]))
            )
            client.resolve_effect(effect.effect_id, outcome, result=result, by="ann")
            resolved += 1
    return str(resolved)


def has_begun(client: SyncClient, session: str) -> bool:
    return any(one.session_id == session for one in client.sessions(limit=None))


def approve_everything(url: str, session: str) -> None:
    """Another person, at work all the time: approves what is asked for. Ends with the driver."""
    parent = os.getppid()
    with SyncClient.open(url) as client:
        while os.getppid() == parent:
            for asked in client.approvals():
                if asked.session_id == session:
                    try:
                        client.decide(asked.approval_id, "approve", by="bea")
                    except ConflictError:
                        continue  # it is over, or another life has asked again
            time.sleep(0.01)


def begin_approver(url: str, session: str) -> int:
    child = os.fork()
    if not child:
        try:
            approve_everything(url, session)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def run_session(
    campaign: Campaign, url: str, where: Path, number: int, kills: int, chance: random.Random, *, is_control: bool
) -> dict[str, Any]:
    """One session, from its beginning until it says that it is done; what it came to."""
    session, world = f"session-{number}", World(where / f"world-{number}")
    given = (url, session, world, number)
    approver = begin_approver(url, session)
    killed = doubts = ended = 0
    try:
        while ended < LIVES:
            moment = chance.uniform(0, campaign.LONGEST) if killed < kills else None
            came_to = in_a_process(campaign.live, *given, is_control=is_control, killed_after=moment)
            killed += came_to == "killed"
            ended += came_to != "killed"
            if came_to == "done":
                break
            if came_to != "killed" or chance.random() < 0.5:  # or the next life meets the doubt
                doubts += int(in_a_process(resolve_doubts, url, session, world))
    finally:
        end(approver)
    return {
        "kills": killed,
        "doubts": doubts,
        "done": came_to == "done",
        "came_to": came_to,
        **judge(world, campaign.wanted(number)),
    }


def import_driver(url: str) -> None:
    """Once for all lives: it takes longer than they do."""
    if url.startswith("postgres"):
        import psycopg  # noqa: F401 - forked processes have it
    if url.startswith("redis"):
        import redis.asyncio  # noqa: F401 - as above


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaign", choices=["fulfilment", "payments"])
    parser.add_argument("url")
    parser.add_argument("where", type=Path)
    parser.add_argument("kills", type=int)
    parser.add_argument("seed")
    parser.add_argument("--control", action="store_true")
    options = parser.parse_args()
    campaign = __import__(options.campaign)
    import_driver(options.url)
    chance, left, number = random.Random(options.seed), options.kills, 0
    while left:
        number += 1
        came_to = run_session(
            campaign,
            options.url,
            options.where,
            number,
            min(left, KILLS_OF_A_SESSION),
            chance,
            is_control=options.control,
        )
        left -= came_to["kills"]
        print(json.dumps(came_to), flush=True)


if __name__ == "__main__":
    sys.exit(main())
