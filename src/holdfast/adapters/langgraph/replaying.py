"""Replaying a graph: its nodes once more from a checkpoint of a thread, in a thread of its own.

The graph goes one superstep at a time. Before each, what the nodes wrote in the original thread is put beside the fork's
checkpoint, for those that are to be served: LangGraph takes a node that has written already for done, and does not run it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import WRITES_IDX_MAP

from holdfast.adapters.langgraph import history, writes
from holdfast.adapters.langgraph.keys import Place
from holdfast.adapters.langgraph.threads import Threads, _index_entry, config_of, parent_of, plain
from holdfast.errors import NotRecordedError, StoreError, UsageError
from holdfast.model import ids
from holdfast.model.diff import Edit
from holdfast.model.editing import edited
from holdfast.model.framework import Framework
from holdfast.model.replay import ReplayedStep, ReplayReport
from holdfast.objects.differ import Differ
from holdfast.operations import save as saving
from holdfast.operations.arguments import SaveRequest

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.replays import Request

MAX_SUPERSTEPS = 10_000
START = "__start__"  # LangGraph's own: hands the input on
NO_WRITES = "__no_writes__"
Written = list[tuple[str, Any]]  # what a node wrote: channel and value


@dataclass(slots=True)
class _Node:
    """A task of a superstep, and what the node of its name and path wrote in the original thread, None if nothing."""

    id: str
    name: str
    path: str
    recorded: Written | None
    is_served: bool = False


@dataclass(slots=True)
class GraphReplay:
    graph: Any
    threads: Threads
    asked: Request
    plainly: bool
    place: Place
    originals: Sequence[str]  # the ids of the original thread's checkpoints, from the one that is replayed from
    target: Place
    has_parted: bool = False
    steps: list[ReplayedStep] = field(default_factory=list)

    async def run(self) -> Exception | None:
        """Superstep after superstep until the graph ends; what stopped it, if something did."""
        for number in range(MAX_SUPERSTEPS):
            here = await self.threads.get(self.target, None)
            assert here is not None  # the fork
            nodes = await self._nodes(number, here.checkpoint)
            if not nodes:
                return None
            at = here.checkpoint["id"]
            error: Exception | None = None
            try:
                for node in nodes:
                    node.is_served = node.name != START and self._is_served(node)
                    if node.is_served:
                        assert node.recorded is not None
                        await self.threads.put_writes(self.target, at, node.recorded, node.id, node.path)
                await self._step(at)
            except StoreError:
                raise
            except Exception as raised:
                error = raised
            await self._tell(nodes, at, error)
            if error is not None:
                return error
            after = await self.threads.newest(self.target, None)
            if after is not None and after.id == at:
                return NotRecordedError(
                    f"the graph waits for an answer in {', '.join(node.name for node in nodes)!r:.120}: go on from there with "
                    f"a Command(resume=...) in thread {self.target.thread!r:.60}"
                )
        return UsageError(f"the graph did not end within {MAX_SUPERSTEPS} supersteps")

    async def _step(self, at: str) -> None:
        """One superstep. A graph that was compiled to stop before some nodes stops there first, and goes on when asked again."""
        for _ in range(2):
            await self._ask("invoke", None, self._config(), interrupt_after="*")
            now = await self.threads.newest(self.target, None)
            state = await self._ask("get_state", self._config())
            if (now is not None and now.id != at) or any(task.interrupts for task in state.tasks):
                return

    async def _nodes(self, number: int, here: Mapping[str, Any]) -> list[_Node]:
        """The tasks of the next superstep. Notes whether the state is still that of the original."""
        state = await self._ask("get_state", self._config())
        recorded: dict[tuple[str, str], Written] = {}
        is_same = False
        if number < len(self.originals):
            id_ = self.originals[number]
            original = await self.threads.get(self.place, id_)
            if original is not None:
                then = await self._ask("get_state", config_of(self.place, id_))
                found = _by_task(original.pending_writes or [])
                recorded = {(task.name, repr(task.path)): found[task.id] for task in then.tasks if task.id in found}
                # The values as well: a delta channel has none of its own in a checkpoint.
                encode = self.threads.services.codec.encode
                stood = encode([original.checkpoint["channel_values"], then.values])
                is_same = encode([here["channel_values"], state.values]) == stood
        self.has_parted = self.has_parted or not is_same
        if not state.next:
            return []
        return [
            _Node(task.id, task.name, repr(task.path), recorded.get((task.name, repr(task.path))))
            for task in state.tasks
        ]

    def _is_served(self, node: _Node) -> bool:
        mode = self.asked.steps.get(node.name, self.asked.mode)
        if mode == "mixed":
            return not self.has_parted and node.recorded is not None
        if mode == "recorded" and node.recorded is None:
            raise NotRecordedError(
                f"nothing was recorded of node {node.name!r:.60}, and this replay runs nothing that was not: replay with "
                f"mode='mixed' or 'live', or with steps={{{node.name!r:.60}: 'live'}}"
            )
        return mode == "recorded"

    async def _tell(self, nodes: Sequence[_Node], at: str, error: Exception | None) -> None:
        written = _by_task(await writes.pending(self.threads.services, self.target, at))
        for node in nodes:
            if node.name == START:
                continue
            is_blocked = isinstance(error, NotRecordedError)
            result = written.get(node.id)
            same: bool | None = None
            edits: tuple[Edit, ...] = ()
            if not node.is_served and result is not None and node.recorded is not None:
                codec = self.threads.services.codec
                edits = tuple(Differ(codec).edits(_shown(node.recorded), _shown(result), ("result",)))
                same = not edits
            self.steps.append(
                ReplayedStep(
                    name=node.name,
                    kind="node",
                    place=f"{at}/{node.name}",
                    source="recorded" if node.is_served else "blocked" if is_blocked else "live",
                    failed=error is not None and not is_blocked and result is None,
                    result=_shown(result),
                    was=_shown(node.recorded),
                    same=same,
                    edits=edits,
                    note="nothing was recorded" if is_blocked and not node.is_served else None,
                )
            )

    async def _ask(self, what: str, *args: Any, **options: Any) -> Any:
        if self.plainly:
            return getattr(self.graph, what)(*args, **options)
        return await getattr(self.graph, f"a{what}")(*args, **options)

    def _config(self) -> Any:
        return {"configurable": {"thread_id": self.target.thread}}


async def replay_graph(
    threads: Threads, graph: Any, start: Checkpoint, line: Sequence[Checkpoint], asked: Request, *, plainly: bool
) -> ReplayReport:
    """Replays a graph from one of a thread's checkpoints; `line` are those that lead to where the thread stands, newest first."""
    about = start.metadata
    if "langgraph_id" not in about:
        raise UsageError(f"checkpoint {start.checkpoint_id} was saved by no graph: give the program that saved it")
    place = Place(about["thread_id"], about["checkpoint_ns"])
    if place.ns:
        raise UsageError(
            f"{asked.session_id!r:.80} is of a subgraph: replay the graph that it is part of, by its own session"
        )
    if asked.workspace is not None or asked.on_repeat is not None:
        raise UsageError(
            "workspace and on_repeat are for programs of `client.run`: a graph keeps neither files nor a ledger"
        )
    names = [checkpoint.checkpoint_id for checkpoint in line]
    after = list(line[: names.index(start.checkpoint_id)]) if start.checkpoint_id in names else []
    if after and about["metadata"].get("source") == "input":
        start = after.pop()  # where the input has arrived: handing it on is no node of anybody's
        about = start.metadata
    target = Place(asked.name or f"{place.thread}-{uuid.uuid4().hex[:8]}", "")
    await _fork(threads, place, start, target, asked)
    replay = GraphReplay(
        graph=graph,
        threads=threads,
        asked=asked,
        plainly=plainly,
        place=place,
        originals=[about["langgraph_id"], *(one.metadata["langgraph_id"] for one in reversed(after))],
        target=target,
    )
    error = await replay.run()
    state = await replay._ask("get_state", replay._config())
    stands_at = await threads.newest(target, None)
    return ReplayReport(
        session_id=target.session,
        source_session=asked.session_id,
        from_id=start.checkpoint_id,
        checkpoint_id=ids.to_text(stands_at.checkpoint) if stands_at is not None else None,
        mode=asked.mode,
        steps=tuple(replay.steps),
        result=state.values,
        error=error,
    )


async def _fork(threads: Threads, place: Place, start: Checkpoint, target: Place, asked: Request) -> None:
    """A thread that begins with this checkpoint, under the same id of LangGraph's (so that its tasks have the same ids), and with
    those that its delta channels are made from; in the same tree."""
    if await threads.newest(target, None) is not None:
        raise UsageError(f"there is a thread {target.thread!r:.60} already: choose another name, or leave it out")
    last = start.metadata["langgraph_id"]
    if await threads.newest(place, last) is None:
        raise UsageError(
            f"the graph's saver has no checkpoint {last!r:.60} of thread {place.thread!r:.60}: it is on another store than this "
            "client. Compile the graph with HoldfastSaver(client), or open the store that its saver is on"
        )
    parent = ids.from_text(start.checkpoint_id)
    for id_ in sorted(await history.needed_for(threads, place, [last])):
        loaded = await threads.get(place, id_)
        if loaded is None:
            continue
        state: Any = plain(loaded.checkpoint)
        if id_ == last and asked.edits:
            state, _ = edited(state, {}, asked.edits)
        above = parent_of(loaded)
        stored = await saving.save(
            threads.services,
            SaveRequest(
                agent_id=threads.agent_id,
                session_id=target.session,
                framework=Framework.LANGGRAPH,
                execution_state=state,
                agent_context={},
                parent_id=parent,
                step_name="fork",
                ttl_seconds=threads.ttl_seconds,
                metadata={
                    "thread_id": target.thread,
                    "checkpoint_ns": target.ns,
                    "langgraph_id": id_,
                    "parent": above,
                    "metadata": dict(loaded.metadata),
                },
                beside=_index_entry(target, id_, above, None),
            ),
        )
        parent = stored.id
        threads.recent.put(target, id_, stored.id)
        if id_ != last:
            for task, its in _by_task(loaded.pending_writes or []).items():
                await threads.put_writes(target, id_, its, task, "")


def _by_task(pending: Sequence[tuple[str, str, Any]]) -> dict[str, Written]:
    """What tasks have written at their ends; errors, interrupts and answers to these come before that."""
    found: dict[str, Written] = {}
    for task, channel, value in pending:
        if channel not in WRITES_IDX_MAP:
            found.setdefault(task, []).append((channel, value))
    return found


def _shown(written: Written | None) -> dict[str, Any] | None:
    """What a node wrote to the channels that people know."""
    if written is None:
        return None
    return {channel: value for channel, value in written if channel != NO_WRITES and not channel.startswith("branch:")}
