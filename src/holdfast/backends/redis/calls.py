"""Calls of scripts: to the node that has the shard, together where they go together, again where that is safe."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from redis.crc import key_slot
from redis.exceptions import AskError, MovedError, NoScriptError, ResponseError

from holdfast.backends.redis import layout
from holdfast.backends.redis.connections import Command, Connections, LostError, Node
from holdfast.backends.redis.packing import pack
from holdfast.backends.redis.scripts import Script, script
from holdfast.errors import StoreError

MOST_AT_ONCE = 256
ATTEMPTS = 8


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
        self._slots: dict[int, Node] = {}  # where a slot is, as far as known

    async def read(self, name: str, asked: Sequence[Any], shard: int = layout.FIRST_SHARD) -> Any:
        """What a script says that changes nothing, or nothing that would be another when it is done twice."""
        [answer] = await self.read_all([Call(shard, script(name), asked)])
        return answer

    async def read_all(self, calls: Sequence[Call]) -> list[Any]:
        """As `read`, for several at once."""
        answers = await self.carry_out(calls)
        lost = [at for at, answer in enumerate(answers) if isinstance(answer, (LostError, StoreError))]
        if lost:
            for at, answer in zip(lost, await self.carry_out([calls[at] for at in lost]), strict=True):
                answers[at] = answer
        for answer in answers:
            if isinstance(answer, StoreError):
                raise answer
            if isinstance(answer, LostError):
                raise StoreError(f"the store {self._where} does not answer: {answer}") from answer
            if isinstance(answer, ResponseError):
                raise StoreError(f"the store {self._where} can't be read: {answer}") from answer
        return answers

    async def carry_out(self, calls: Sequence[Call], durability: Durability | None = None) -> list[Any]:
        """One answer each, in order; a `ResponseError`, a `LostError` or a `StoreError` (not sent) where there is none. Calls to one shard are
        carried out in their order. With `durability`, an answer that too few replicas confirmed is a
        `NotReplicatedError`."""
        answers: list[Any] = [None] * len(calls)
        left = list(range(len(calls)))
        for attempt in range(ATTEMPTS):
            by_node: dict[Node, list[int]] = {}
            for at in left:
                by_node.setdefault(await self._node_of(calls[at].shard), []).append(at)
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
                        if isinstance(reply, (MovedError, AskError)):
                            again.append(at)

            if len(by_node) == 1:  # without a task in between
                await on_node(*next(iter(by_node.items())))
            else:
                await asyncio.gather(*(on_node(node, these) for node, these in by_node.items()))
            if any(isinstance(answer, (LostError, StoreError)) for answer in answers):
                self._slots.clear()
            if not again or attempt == ATTEMPTS - 1:
                break
            for at in again:
                if isinstance(answers[at], AskError):  # being moved: asked there, once
                    answers[at] = await self._ask(answers[at], calls[at], durability)
            self._slots.clear()
            left = sorted(at for at in again if isinstance(answers[at], MovedError))
            if not left:
                break
            await asyncio.sleep(0.01 * attempt)
        return answers

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

    async def _ask(self, answer: AskError, call: Call, durability: Durability | None) -> Any:
        commands = [("ASKING",), self._command(call, with_source=True)]
        return (await self._talk((answer.host, answer.port), commands, durability))[1]

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
        return (*how, 1, layout.base(self._prefix, call.shard), pack(call.asked))

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
        """Where all slots are, as the first node says that answers."""
        failures: list[Exception] = []
        for node in dict.fromkeys([*self._slots.values(), *self._seeds]):
            try:
                [answer] = await self._connections.talk(node, [("CLUSTER", "SLOTS")])
            except StoreError as error:
                if self._connections.is_closed:
                    raise
                failures.append(error)
                continue
            if isinstance(answer, Exception):
                failures.append(answer)
                continue
            found: dict[int, Node] = {}
            for first, last, (host, port, *_), *_ in answer:
                found |= dict.fromkeys(range(first, last + 1), (host.decode() if host else node[0], port))
            return found
        raise StoreError(f"the store {self._where} can't be reached: {failures[0]}") from failures[0]


class NotReplicatedError(Exception):
    """Carried out, but fewer replicas than asked for have confirmed it."""

    def __init__(self, confirmed: int, wanted: int, answer: Any) -> None:
        super().__init__(confirmed, wanted, answer)
        self.confirmed = confirmed
        self.wanted = wanted
        self.answer = answer
