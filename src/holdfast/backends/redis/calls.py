"""Calls of scripts: to the node that has the shard, together where they go together, again where that is safe."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
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

from holdfast.backends.redis import layout
from holdfast.backends.redis.connections import Command, Connections, LostError, Node
from holdfast.backends.redis.packing import pack
from holdfast.backends.redis.scripts import Script, script
from holdfast.errors import StoreError

MOST_AT_ONCE = 256
MOVING_SECONDS = 30.0  # for which a slot that is being moved is waited for
LONGEST_PAUSE = 0.1
NOT_HERE_NOW = (MovedError, AskError, TryAgainError)  # a slot has moved, or is being moved: nothing was carried out


LOOK_AGAIN = (LostError, StoreError, ClusterDownError)  # perhaps another node has taken over


class Call(NamedTuple):
    shard: int
    script: Script
    asked: Sequence[Any]


class Durability(NamedTuple):
    """How many replicas must have confirmed, within how many milliseconds."""

    replicas: int = 0
    wait_ms: int = 0


class Calls:
    """Calls scripts in the shards of one store."""

    def __init__(
        self, connections: Connections, prefix: str, seeds: Sequence[Node], where: str, *, is_cluster: bool
    ) -> None:
        self._connections = connections
        self._prefix = prefix
        self._seeds = seeds
        self._where = where
        self._is_cluster = is_cluster
        self._may_listen = True  # until the server has refused it
        self._slots: dict[int, Node] = {}  # where a slot is, as far as known
        self._met: dict[Node, None] = {}  # all nodes of the cluster that were heard of

    async def read(self, name: str, asked: Sequence[Any], shard: int = layout.FIRST_SHARD) -> Any:
        """What a script says that changes nothing, or nothing that would be another when it is done twice."""
        [answer] = await self.read_all([Call(shard, script(name), asked)])
        return answer

    async def read_all(self, calls: Sequence[Call], durability: Durability | None = None) -> list[Any]:
        """As `read`, for several at once. With `durability` what they wrote down is on replicas."""
        answers = await self.carry_out(calls, durability)
        lost = [at for at, answer in enumerate(answers) if isinstance(answer, (LostError, StoreError))]
        if lost:
            for at, answer in zip(lost, await self.carry_out([calls[at] for at in lost], durability), strict=True):
                answers[at] = answer
        for answer in answers:
            if isinstance(answer, StoreError):
                raise answer
            if isinstance(answer, LostError):
                raise StoreError(f"the store {self._where} does not answer: {answer}") from answer
            if isinstance(answer, ResponseError):
                raise StoreError(f"the store {self._where} can't be read: {answer}") from answer
            if isinstance(answer, NotReplicatedError):
                raise StoreError(
                    f"the store {self._where}: {answer.confirmed} of {answer.wanted} replicas answer in time. Nothing was "
                    "changed; try again when they do"
                ) from answer
        return answers

    async def carry_out(self, calls: Sequence[Call], durability: Durability | None = None) -> list[Any]:
        """One answer each, in order; a `ResponseError`, a `LostError` or a `StoreError` (not sent) where there is none. Calls to one shard are
        carried out in their order. With `durability`, an answer that too few replicas confirmed is a
        `NotReplicatedError`."""
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
                for at in left:  # what was carried out before counts
                    answers[at] = error
                break
            again: list[int] = []

            async def on_node(node: Node, these: list[int], again: list[int] = again) -> None:
                for start in range(0, len(these), MOST_AT_ONCE):
                    part = these[start : start + MOST_AT_ONCE]
                    try:
                        replies = await self._on_node(node, [calls[at] for at in part], durability)
                    except StoreError as error:  # could not be sent; what other nodes say counts
                        replies = [error] * len(part)
                    for at, reply in zip(part, replies, strict=True):
                        answers[at] = reply
                        if isinstance(reply, NOT_HERE_NOW):
                            again.append(at)

            if len(by_node) == 1:  # without a task in between
                await on_node(*next(iter(by_node.items())))
            else:
                await asyncio.gather(*(on_node(node, these) for node, these in by_node.items()))
            if again or any(isinstance(answer, LOOK_AGAIN) for answer in answers):
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
            await asyncio.sleep(min(0.01 * attempt, LONGEST_PAUSE))
        return answers

    async def news(self) -> None:
        """Returns when somebody may have made a record visible; never, where the server does not let us listen."""
        while self._may_listen:
            node = await self._node_of(layout.FIRST_SHARD)
            ear = await self._connections.ear(node, layout.base(self._prefix, layout.FIRST_SHARD) + b":news")
            try:
                await ear.news()
            except LostError as error:
                if ear.refusal is None or isinstance(ear.refusal, NOT_HERE_NOW):
                    self._slots.clear()
                    raise StoreError(f"the store {self._where} can't be listened to: {error}") from error
                self._may_listen = False
            else:
                return
        await asyncio.get_running_loop().create_future()

    async def _on_node(self, node: Node, calls: Sequence[Call], durability: Durability | None) -> list[Any]:
        """All of them over one connection. A script that the server does not know goes with its source, once."""
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
            return await self._connections.talk(node, commands)
        # WAIT speaks of what this connection wrote, so it goes over the same one; inside a script it would not wait.
        wait: Command = ("WAIT", durability.replicas, durability.wait_ms)
        *replies, confirmed = await self._connections.talk(node, [*commands, wait])
        if isinstance(confirmed, int) and confirmed >= durability.replicas:
            return replies
        by = confirmed if isinstance(confirmed, int) else 0
        return [
            reply if isinstance(reply, Exception) else NotReplicatedError(by, durability.replicas, reply)
            for reply in replies
        ]

    def _command(self, call: Call, *, with_source: bool) -> Command:
        how = ("EVAL", call.script.source) if with_source else ("EVALSHA", call.script.sha1)
        base = layout.base(self._prefix, call.shard)
        # Two keys, neither of which ever exists. While a slot moves from one node to another, with its keys here and there,
        # both nodes refuse what is about several keys of which one is missing (ASK, TRYAGAIN): no script ever sees
        # half a shard. With one key, the new node would carry it out on what has arrived already.
        words = call.asked if call.script.takes_words else (pack(call.asked),)
        return (*how, 2, base, base + b":-", *words)

    async def _node_of(self, shard: int) -> Node:
        if not self._is_cluster:
            return self._seeds[0]
        slot = key_slot(layout.base(self._prefix, shard))
        if slot not in self._slots:
            self._slots = await self._find_slots()
        if slot not in self._slots:
            raise StoreError(
                f"the store {self._where}: no node of the cluster serves slot {slot}. Try again, or mend it"
            )
        return self._slots[slot]

    async def _find_slots(self) -> dict[int, Node]:
        """Where all slots are, as the first node says that answers and is in touch with most of the others. One that is cut
        off from them still takes itself for the master that it was."""
        failures: list[Exception] = []
        for node in [*self._seeds, *self._met]:
            try:
                info, slots = await self._connections.talk(node, [("CLUSTER", "INFO"), ("CLUSTER", "SLOTS")])
            except StoreError as error:
                if self._connections.is_closed:
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
                self._met |= dict.fromkeys(places)
            return found
        raise StoreError(f"the store {self._where} can't be reached: {failures[0]}") from failures[0]


class NotReplicatedError(Exception):
    """Carried out, but fewer replicas than asked for have confirmed it."""

    def __init__(self, confirmed: int, wanted: int, answer: Any) -> None:
        super().__init__(confirmed, wanted, answer)
        self.confirmed = confirmed
        self.wanted = wanted
        self.answer = answer
