"""The state of the servers: eviction, persistence, replication, and the rights of the user."""

from __future__ import annotations

import logging
import time
from typing import NamedTuple

from holdfast.backends.port import Finding
from holdfast.backends.redis.queries import StoreQueries
from holdfast.backends.redis.script_calls import Calls
from holdfast.errors import StoreError

CHECK_SECONDS = 15.0
# Commands that the scripts use, with arguments for a rights check; {} is the name of the shard.
_WRITES = (
    ("ZADD", "{}:ids", "0", "x"), ("ZREM", "{}:ids", "x"), ("ZREMRANGEBYSCORE", "{}:ids", "0", "0"),
    ("HSET", "{}:record", "x", "x"), ("HSETNX", "{}:record", "x", "x"), ("HDEL", "{}:record", "x"),
    ("INCRBY", "{}:last", "1"), ("SET", "{}:confirmed", "1"), ("SADD", "{}:spaces", "x"),
)  # fmt: skip
_READS = (
    ("GET", "{}:last"), ("EXISTS", "{}:last"), ("SMEMBERS", "{}:spaces"), ("HGET", "{}:record", "x"),
    ("HEXISTS", "{}:record", "x"), ("HKEYS", "{}:record"), ("HMGET", "{}:record", "x"), ("HSTRLEN", "{}:record", "x"),
    ("ZCOUNT", "{}:ids", "0", "0"), ("ZRANGE", "{}:ids", "0", "0"), ("ZRANGEBYLEX", "{}:ids", "-", "+"),
    ("ZRANGEBYSCORE", "{}:ids", "0", "0"), ("ZREVRANGE", "{}:ids", "0", "0"), ("ZREVRANGEBYSCORE", "{}:ids", "0", "0"),
    ("TIME",),
)  # fmt: skip
_log = logging.getLogger("holdfast")


class ServerState(NamedTuple):
    """A node's report on itself; None where this user may not ask."""

    policy: str | None
    evicted: int | None
    role: str | None
    keeps_file: bool | None

    @property
    def drops_keys(self) -> bool:
        return self.policy is not None and self.policy.startswith("allkeys")


async def ask_servers(reading: StoreQueries) -> list[ServerState]:
    """Return the state of each shard's node."""
    states = []
    for policy, evicted, role, file in await reading.call_everywhere("server", []):
        states.append(
            ServerState(
                None if policy is None else policy.decode(),
                None if evicted is None else int(evicted),
                None if role is None else role.decode(),
                None if file is None else file == b"1",
            )
        )
    return states


class EvictionWatch:
    """A guard against servers that evict keys: before the first commit, then every 15 seconds of commits."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._next_check = 0.0
        self._has_warned = False

    async def check(self, reading: StoreQueries) -> None:
        """Raise `StoreError` if a server evicts keys when its memory is full.

        Where that can't be asked, a warning is logged once.
        """
        if time.monotonic() < self._next_check:
            return
        states = await ask_servers(reading)
        dropping = next((state for state in states if state.drops_keys), None)
        if dropping is not None:
            self._next_check = 0.0  # until it is corrected, every commit checks
            lost = f"; it has evicted {dropping.evicted} keys since its start" if dropping.evicted else ""
            raise StoreError(
                f"the server {self._location} drops keys when its memory is full (maxmemory-policy "
                f"{dropping.policy}{lost}): it would "
                "lose checkpoints without a word. Set maxmemory-policy to noeviction, then run `holdfast verify`. "
                "Nothing was changed"
            )
        if not self._has_warned and any(state.policy is None for state in states):
            self._has_warned = True
            _log.warning("%s: %s", self._location, CANT_CHECK)
        self._next_check = time.monotonic() + CHECK_SECONDS


CANT_CHECK = (
    "whether the server drops keys when its memory is full can't be checked: this user lacks the right to `info` "
    "(ACL SETUSER NAME +info). Make sure that maxmemory-policy is noeviction"
)


async def examine(calls: Calls, reading: StoreQueries) -> list[Finding]:
    """Return the findings of `holdfast doctor`."""
    findings = [
        _rights("rights to read", "reading", await _find_missing(calls, _READS)),
        _rights("rights to save", "saving", await _find_missing(calls, _WRITES)),
    ]
    states = await ask_servers(reading)
    policies = sorted({state.policy or "" for state in states})
    if "" in policies:
        findings.append(Finding("eviction", "warn", "unknown", CANT_CHECK))
    else:
        drops = any(state.drops_keys for state in states)
        advice = "the server drops checkpoints when its memory is full: set maxmemory-policy to noeviction"
        findings.append(Finding("eviction", "fail" if drops else "ok", ", ".join(policies), advice if drops else ""))
        evicted = sum(state.evicted or 0 for state in states)
        if evicted:
            advice = "keys were evicted since the server's start, perhaps of this store: run `holdfast verify`"
            findings.append(Finding("evicted keys", "warn", str(evicted), advice))
    if any(state.role == "slave" for state in states):
        findings.append(
            Finding("role", "fail", "replica", "this server follows another one and takes no saves: name the master")
        )
    if any(state.keeps_file is False for state in states):
        advice = "a restart of the server goes back to its last snapshot, or to nothing: set appendonly to yes"
        findings.append(Finding("appendonly", "warn", "no", advice))
    return findings


async def _find_missing(calls: Calls, commands: tuple[tuple[str, ...], ...]) -> list[str]:
    asked = [[[word.replace("{}", calls.base) for word in command] for command in commands]]
    return sorted({name.decode() for name in await calls.read("rights", asked)})


def _rights(name: str, doing: str, missing: list[str]) -> Finding:
    if not missing:
        return Finding(name, "ok", "all")
    grant = " ".join(f"+{right}" for right in missing)
    return Finding(name, "fail", f"missing: {', '.join(missing)}", f"{doing} fails: ACL SETUSER NAME {grant}")
