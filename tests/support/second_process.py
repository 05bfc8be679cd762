"""A client in another process, with the interface of a local one.

Each call is sent there, with the time that it is to be there, and its result or error comes back. Of a lease comes back
what its holder has in hand; whoever renews or releases it does so over there.

Run as a program, this file is that process.
"""

from __future__ import annotations

import os
import pickle  # between this process and its child, nothing else
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stores import Clock

from holdfast import SyncClient
from holdfast.coordination.lease import SyncLease
from holdfast.model.lease import LeaseTerms

TESTS = Path(__file__).parent


class SecondProcess:
    """The process. It serves one client after the other, so that not every example has to start one."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-W", "error", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "PATH": "/usr/bin:/bin"},
        )

    def call(self, verb: str, now_us: int, *args: Any, **kwargs: Any) -> Any:
        pickle.dump((verb, now_us, args, kwargs), self._child.stdin)
        self._child.stdin.flush()
        kind, result, told = pickle.load(self._child.stdout)
        if kind is None:
            return result
        error = kind.__new__(kind)
        error.args = (result,)
        error.add_note(told)
        raise error

    def kill(self) -> None:
        self._child.kill()
        self._child.communicate()


class RemoteClient:
    """A client on that store, by that clock, of whichever process `process` gives: a lease that was
    taken by one that has died can be tried by the next one."""

    def __init__(self, process: Callable[[], SecondProcess], url: str, clock: Clock) -> None:
        self._process, self._clock = process, clock
        self._call("open", url)

    def _call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        return self._process().call(verb, self._clock.us, *args, **kwargs)

    def save(self, *args: Any, lease: LeaseTerms | None = None, **kwargs: Any) -> str:
        return self._call("save", *args, lease=terms(lease), **kwargs)

    def handoff(self, *args: Any, lease: LeaseTerms | None = None) -> str:
        return self._call("handoff", *args, lease=terms(lease))

    def rollback(self, *args: Any, lease: LeaseTerms | None = None, **kwargs: Any) -> Any:
        return self._call("rollback", *args, lease=terms(lease), **kwargs)

    def lease(self, *args: Any, **kwargs: Any) -> RemoteLease:
        return RemoteLease(self, self._call("lease", *args, **kwargs))

    def claim(self, *args: Any, **kwargs: Any) -> Any:
        claim = self._call("claim", *args, **kwargs)
        claim.lease = RemoteLease(self, claim.lease)
        return claim

    def events(self, **kwargs: Any) -> RemoteStream:
        return RemoteStream(*self._call("events", **kwargs))

    def __getattr__(self, verb: str) -> Any:
        return lambda *args, **kwargs: self._call(verb, *args, **kwargs)


class RemoteLease(LeaseTerms):
    def __init__(self, client: RemoteClient, held: LeaseTerms) -> None:
        super().__init__(held.session_id, held.holder, held.seconds, held.token, held.expires_at_us)
        self.claimed = held.claimed
        self._client = client

    def renew(self) -> None:
        self.expires_at_us = self._client._call("renew", terms(self))

    def release(self) -> bool:
        return self._client._call("release", terms(self))


class RemoteStream:
    """All that a stream gave, and where it stood in the end."""

    def __init__(self, events: list[Any], cursor: str) -> None:
        self._events, self.cursor = iter(events), cursor

    def __iter__(self) -> RemoteStream:
        return self

    def __next__(self) -> Any:
        return next(self._events)


def terms(lease: LeaseTerms | None) -> LeaseTerms | None:
    """A lease as it can be sent."""
    if lease is None:
        return None
    sent = LeaseTerms(lease.session_id, lease.holder, lease.seconds, lease.token, lease.expires_at_us)
    sent.claimed = lease.claimed
    return sent


# -- over there -------------------------------------------------------------------------------------------------------


class Server:
    def __init__(self) -> None:
        self.clock = Clock()
        self.client: SyncClient | None = None

    def answer(self, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if verb == "open":
            self.client = SyncClient.open(*args, durability="fast")
            self.clock.rules(self.client)
            return None
        assert self.client is not None
        if verb in ("renew", "release"):
            [held] = args
            lease = SyncLease(
                self.client._ctx, held.session_id, held.holder, held.seconds, held.token, held.expires_at_us
            )
            return lease.release() if verb == "release" else (lease.renew(), lease.expires_at_us)[1]
        result = getattr(self.client, verb)(*args, **kwargs)
        if verb == "lease":
            return terms(result)
        if verb == "claim":
            return SimpleNamespace(
                lease=terms(result.lease),
                handoff_id=result.handoff_id,
                moved_from=result.moved_from,
                claim_id=result.claim_id,
            )
        if verb == "events":
            return list(result), result.cursor
        return result

    def serve(self) -> None:
        while True:
            try:
                verb, self.clock.us, args, kwargs = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            try:
                answer = None, self.answer(verb, args, kwargs), ""
            except Exception as error:
                answer = type(error), str(error), traceback.format_exc()
            pickle.dump(answer, sys.stdout.buffer)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    Server().serve()
