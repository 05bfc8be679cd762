"""Calls of scripts: to the node of the shard, together where possible, retried where that is safe."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import resources
from itertools import count
from typing import Any, NamedTuple

from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    NoScriptError,
    ResponseError,
    TryAgainError,
)

from holdfast.backends.redis import connection, keys
from holdfast.backends.redis import errors as failures
from holdfast.backends.redis.msgpack import pack
from holdfast.backends.redis.pool import Command, LostError, Node, RedisPool
from holdfast.backends.redis.sync_connection import BlockingPool
from holdfast.errors import StoreError


class Script(NamedTuple):
    name: str
    source: bytes
    sha1: bytes  # the server's name for it


# These begin with the guard against a half-made change.
_GUARDED = (
    "about", "audit", "audit_logs", "audit_records", "audit_sessions", "bar", "claim", "commit", "draw", "mark",
)  # fmt: skip


def script(name: str) -> Script:
    return read_all()[name]


@cache
def read_all() -> dict[str, Script]:
    """Read all scripts by name, each with the common part before it.

    This happens when a store is opened, before there is an event loop that reading files would
    block.
    """
    folder = resources.files("holdfast.backends.redis") / "scripts"
    sources = {entry.name.removesuffix(".lua"): entry.read_bytes() for entry in folder.iterdir()}
    shared, guard = sources.pop("common"), sources.pop("guard")
    scripts = {}
    for name, source in sources.items():
        whole = shared + guard + source if name in _GUARDED else shared + source
        scripts[name] = Script(name, whole, hashlib.sha1(whole, usedforsecurity=False).hexdigest().encode())
    return scripts


MOST_AT_ONCE = 256
MOVING_SECONDS = 30.0  # to wait for a slot that is being moved
LONGEST_PAUSE = 0.1
MOVED_SLOT = (MovedError, AskError, TryAgainError)  # a slot has moved, or is being moved: nothing was carried out


LOST_NODE = (LostError, StoreError, ClusterDownError)  # another node may have taken over


class ScriptCall(NamedTuple):
    shard: int
    script: Script
    asked: Sequence[Any]


class Durability(NamedTuple):
    """The number of replicas that must confirm, and the milliseconds to wait for them."""

    replicas: int = 0
    wait_ms: int = 0


class Calls:
    """Calls scripts in the shards of one store."""

    def __init__(
        self, connections: RedisPool | BlockingPool, prefix: str, seeds: Sequence[Node], where: str, *, is_cluster: bool
    ) -> None:
        self.connections = connections
        self._prefix = prefix
        self._seeds = seeds
        self._where = where
        self._is_cluster = is_cluster
        self._may_listen = True  # until the server has refused it
        self.mark = b""  # of the store that was opened: scripts that write compare it (scripts/guard.lua)
        self._slots: dict[int, Node] = {}  # the node of each slot, as far as known
        self._known_nodes: dict[Node, None] = {}  # all known nodes of the cluster

    def without_loop(self) -> Calls | None:
        """Return calls from threads without an event loop; None on a cluster: its nodes work at once."""
        if self._is_cluster or not connection.USE_PIPELINE or not isinstance(self.connections, RedisPool):
            return None
        return Calls(self.connections.without_loop(), self._prefix, self._seeds, self._where, is_cluster=False)

    @property
    def base(self) -> str:
        """Return the prefix of the first shard's keys."""
        return keys.base(self._prefix, keys.FIRST_SHARD).decode()

    async def read(self, name: str, asked: Sequence[Any], shard: int = keys.FIRST_SHARD) -> Any:
        """Return the answer of a script that is safe to repeat: read-only or idempotent."""
        [answer] = await self.read_all([ScriptCall(shard, script(name), asked)])
        return answer

    async def read_all(self, calls: Sequence[ScriptCall], durability: Durability | None = None) -> list[Any]:
        """Call several scripts as `read` does. With `durability`, replicas have what they wrote."""
        until = time.monotonic() + self.connections.timeout
        answers = await self.carry_out(calls, durability)
        lost = [at for at, answer in enumerate(answers) if isinstance(answer, (LostError, StoreError))]
        seconds = until - time.monotonic()
        if lost and seconds > 0:  # a server that was silent all the time is not asked again
            with suppress(TimeoutError):
                async with self.connections.limited_to(seconds):
                    again = await self.carry_out([calls[at] for at in lost], durability)
                for at, answer in zip(lost, again, strict=True):
                    answers[at] = answer
        for answer in answers:
            if isinstance(answer, StoreError):
                raise answer
            if isinstance(answer, LostError):
                raise StoreError(f"the store {self._where} does not answer: {answer}") from answer
            if isinstance(answer, ResponseError):
                raise failures.make_read_error(answer, self._where) from answer
            if isinstance(answer, NotReplicatedError):
                raise StoreError(
                    f"the store {self._where}: {answer.confirmed} of {answer.wanted} replicas answer in time. No "
                    "checkpoint was saved; try again when they do"
                ) from answer
        return answers

    async def carry_out(self, calls: Sequence[ScriptCall], durability: Durability | None = None) -> list[Any]:
        """Return one answer per call, in order, or the error of a call.

        It is a `ResponseError`, a `LostError` or a `StoreError` (not sent). Calls to one shard are
        carried out in their order. With `durability`, an answer that too few replicas confirmed is
        a `NotReplicatedError`.
        """
        answers: list[Any] = [None] * len(calls)
        left = list(range(len(calls)))
        deadline = time.monotonic() + MOVING_SECONDS
        for attempt in count():
            by_node: dict[Node, list[int]] = {}
            try:
                for at in left:
                    by_node.setdefault(await self._node_of(calls[at].shard), []).append(at)
            except StoreError as error:
                if attempt == 0:
                    raise
                for at in left:  # earlier answers count
                    answers[at] = error
                break
            again: list[int] = []

            async def on_node(node: Node, these: list[int], again: list[int] = again) -> None:
                for start in range(0, len(these), MOST_AT_ONCE):
                    part = these[start : start + MOST_AT_ONCE]
                    try:
                        replies = await self._call_on_node(node, [calls[at] for at in part], durability)
                    except StoreError as error:  # could not be sent; answers of other nodes count
                        replies = [error] * len(part)
                    for at, reply in zip(part, replies, strict=True):
                        answers[at] = reply
                        if isinstance(reply, MOVED_SLOT):
                            again.append(at)

            if len(by_node) > 1:
                await asyncio.gather(*(on_node(node, these) for node, these in by_node.items()))
            for node, these in by_node.items() if len(by_node) == 1 else ():  # without a task in between
                await on_node(node, these)
            if again or any(isinstance(answer, LOST_NODE) for answer in answers):
                self._slots.clear()
            if not again:
                break
            if time.monotonic() > deadline:
                for at in again:
                    answers[at] = StoreError(
                        f"the store {self._where}: a slot is being moved from node to node, and has not arrived in "
                        f"{MOVING_SECONDS:g} s. Nothing was changed; try again when it has"
                    )
                break
            left = sorted(again)
            await self.sleep(min(0.01 * attempt, LONGEST_PAUSE))
        return answers

    async def sleep(self, seconds: float) -> None:
        await self.connections.sleep(seconds)

    async def wait_for_notify(self) -> None:
        """Return when another client may have made a record visible; never, if we may not listen."""
        assert isinstance(self.connections, RedisPool), "an event loop listens"
        while self._may_listen:
            node = await self._node_of(keys.FIRST_SHARD)
            ear = await self.connections.get_listener(node, keys.base(self._prefix, keys.FIRST_SHARD) + b":news")
            try:
                await ear.wait_for_notify()
            except LostError as error:
                if ear.refusal is None or isinstance(ear.refusal, MOVED_SLOT):
                    self._slots.clear()
                    raise StoreError(f"the store {self._where} can't be listened to: {error}") from error
                self._may_listen = False
            else:
                return
        await asyncio.get_running_loop().create_future()

    async def _call_on_node(self, node: Node, calls: Sequence[ScriptCall], durability: Durability | None) -> list[Any]:
        """Call scripts over one connection. A script that the server does not know is sent with its source."""
        commands = [self._command(call, with_source=False) for call in calls]
        replies = await self._talk(node, commands, durability)
        unknown = [at for at, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:
            sent: set[bytes] = set()
            commands = []
            for at in unknown:
                commands.append(self._command(calls[at], with_source=calls[at].script.sha1 not in sent))
                sent.add(calls[at].script.sha1)
            for at, reply in zip(unknown, await self._talk(node, commands, durability), strict=True):
                replies[at] = reply
        return replies

    async def _talk(self, node: Node, commands: list[Command], durability: Durability | None) -> list[Any]:
        if durability is None or not durability.replicas:
            return await self.connections.exchange(node, commands)
        # WAIT covers the writes of its own connection, so it uses the same one; inside a script it would
        # not wait.
        wait: Command = ("WAIT", durability.replicas, durability.wait_ms)
        *replies, confirmed = await self.connections.exchange(node, [*commands, wait])
        if isinstance(confirmed, int) and confirmed >= durability.replicas:
            return replies
        by = confirmed if isinstance(confirmed, int) else 0
        return [
            reply if isinstance(reply, Exception) else NotReplicatedError(by, durability.replicas, reply)
            for reply in replies
        ]

    def _command(self, call: ScriptCall, *, with_source: bool) -> Command:
        how = ("EVAL", call.script.source) if with_source else ("EVALSHA", call.script.sha1)
        base = keys.base(self._prefix, call.shard)
        # Two keys that never exist. While a slot moves from one node to another, with its keys here and
        # there, both nodes refuse a command on several keys if one is missing (ASK, TRYAGAIN): no
        # script ever sees half a shard. With one key, the new node would run it on the part that
        # has arrived.
        return (*how, 2, base, base + b":-", pack(call.asked), self.mark)

    async def _node_of(self, shard: int) -> Node:
        if not self._is_cluster:
            return self._seeds[0]
        slot = key_slot(keys.base(self._prefix, shard))
        if slot not in self._slots:
            self._slots = await self._find_slots()
        if slot not in self._slots:
            raise StoreError(
                f"the store {self._where}: no node of the cluster serves slot {slot}. Try again, or mend it"
            )
        return self._slots[slot]

    async def _find_slots(self) -> dict[int, Node]:
        """Return the node of every slot, from the first node that answers and reaches most others.

        A node that is cut off from the others still believes that it is the master.
        """
        failures: list[Exception] = []
        for node in [*self._seeds, *self._known_nodes]:
            try:
                info, slots = await self.connections.exchange(node, [("CLUSTER", "INFO"), ("CLUSTER", "SLOTS")])
            except StoreError as error:
                if self.connections.is_closed:
                    raise
                failures.append(error)
                continue
            refused = next((reply for reply in (info, slots) if isinstance(reply, Exception)), None)
            if refused is None and b"cluster_state:ok" not in info:
                refused = ClusterDownError("it is cut off from the other nodes of its cluster")
            if refused is not None:
                failures.append(refused)
                continue
            found: dict[int, Node] = {}
            for first, last, *nodes in slots:
                places = [(host.decode() if host else node[0], port) for host, port, *_ in nodes]
                found |= dict.fromkeys(range(first, last + 1), places[0])
                self._known_nodes |= dict.fromkeys(places)
            return found
        raise StoreError(f"the store {self._where} can't be reached: {failures[0]}") from failures[0]


class NotReplicatedError(Exception):
    """Carried out, but fewer replicas than required have confirmed it."""

    def __init__(self, confirmed: int, wanted: int, answer: Any) -> None:
        super().__init__(confirmed, wanted, answer)
        self.confirmed = confirmed
        self.wanted = wanted
        self.answer = answer
