"""Agent process that claims handoffs to `reviewer` and saves on top of each, until none is left.

    python claimer.py URL NAME [naive|after-you]

Says a line for each claim that it got, before it saves, and when the save has returned. With
`naive` its claims are committed without their conditions, as by a program that looks first and
writes then: the tests must find that out. With `after-you` it waits for a line after the first
handoff that it got.
"""

import sys
import time
from collections.abc import Sequence
from typing import Any

from acknowledged import say

from holdfast import ConflictError, HandoffStatus, StoreBusyError, SyncClient
from holdfast.backends.bridge.blocking import blocking
from holdfast.backends.port import ANY_VERSION, BlockingBackend, Commit
from holdfast.backends.url import open_backend

AGENT = "reviewer"
BETWEEN_LOOK_AND_COMMIT = 0.002  # time for the others to come in between
WORK = 0.01  # for which a handoff is in hand


class Hesitant:
    """A backend on which a moment passes before each claim; a naive one drops the claim's conditions, too."""

    def __init__(self, inner: BlockingBackend, *, is_naive: bool) -> None:
        self._inner = inner
        self._is_naive = is_naive

    def commit_all(self, commits: Sequence[Commit]) -> list[BaseException | None]:
        for commit in commits:
            if commit.record is None and any(write.key.space == "inbox" for write in commit.rows):
                time.sleep(BETWEEN_LOOK_AND_COMMIT)
                if self._is_naive:
                    commit.rows = [write._replace(expect=ANY_VERSION, was=None) for write in commit.rows]
        return self._inner.commit_all(commits)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def main() -> None:
    url, name, *how = sys.argv[1:]
    options: dict[str, Any] = {} if url.startswith("redis") else {"durability": "fast"}
    if "naive" in how:  # what it overwrites may keep a session from being saved to for good
        options["timeout"] = 2.0
    opened = open_backend(url, **options)
    backend = blocking(opened) if opened.capabilities.awaitable else opened
    client = SyncClient(Hesitant(backend, is_naive="naive" in how))
    say(ready=name)
    sys.stdin.readline()
    has_to_wait = "after-you" in how
    while True:
        offers = client.inbox(AGENT)
        for offer in offers:
            if go_on(client, offer.handoff_id, name) and has_to_wait:
                has_to_wait = False
                sys.stdin.readline()
        if "naive" in how:
            return  # overwrites what others did: it may never come to an end
        if not offers:
            if all(one.status is not HandoffStatus.CLAIMED for one in client.inbox(AGENT, include_claimed=True)):
                return
            time.sleep(0.01)


def go_on(client: SyncClient, handoff_id: str, name: str) -> bool:
    """Whether it was ours."""
    try:
        claim = client.claim(handoff_id, AGENT, seconds=60, holder=name)
    except ConflictError:
        return False
    say(claimed=handoff_id, by=name)
    time.sleep(WORK)
    say(saving=handoff_id)
    state = {**claim.checkpoint.execution_state, "reviewed_by": name}
    try:
        say(saved=client.save(AGENT, execution_state=state, lease=claim.lease), follows=handoff_id)
    except (ConflictError, StoreBusyError) as error:
        say(refused=str(error), follows=handoff_id)
    claim.release()
    return True


if __name__ == "__main__":
    main()
