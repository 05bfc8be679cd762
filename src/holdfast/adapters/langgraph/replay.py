"""Replay of a graph: its nodes run again from a checkpoint of a thread, in a thread of its own.

The graph advances one superstep at a time. Before each, the original writes of the nodes to be
served are added to the fork's checkpoint: LangGraph takes a node that has written already for done,
and does not run it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import WRITES_IDX_MAP

from holdfast.adapters.langgraph import listing, pending_writes
from holdfast.adapters.langgraph.row_keys import ThreadNamespace
from holdfast.adapters.langgraph.thread_store import Threads, _index_entry, config_of, copy_as_dicts, parent_of
from holdfast.errors import NotRecordedError, StoreError, UsageError
from holdfast.format.state.diff import Differ
from holdfast.model import ids
from holdfast.model.diff import Edit
from holdfast.model.framework import Framework
from holdfast.model.path_edit import edit
from holdfast.model.replay import ReplayedStep, ReplayReport
from holdfast.operations import save as saving
from holdfast.operations import session_names
from holdfast.operations.validate import SaveRequest

if TYPE_CHECKING:
    from holdfast.backends.port import RowWrite
    from holdfast.client.replay import ReplayRequest
    from holdfast.format.state.record import StoredRecord
    from holdfast.model.checkpoint import Checkpoint

MAX_SUPERSTEPS = 10_000
START = "__start__"  # LangGraph's own: hands the input on
NO_WRITES = "__no_writes__"
ExtraRows = Callable[["StoredRecord"], Sequence["RowWrite"]]
Written = list[tuple[str, Any]]  # the writes of a node: channel and value


@dataclass(slots=True)
class _Node:
    """A task of a superstep, with the original writes of its node (by name and path), or None."""

    id: str
    name: str
    path: str
    recorded: Written | None
    is_served: bool = False


@dataclass(slots=True)
class GraphReplay:
    graph: Any
    threads: Threads
    request: ReplayRequest
    plainly: bool
    place: ThreadNamespace
    originals: Sequence[str]  # the ids of the original thread's checkpoints, from the one that is replayed from
    target: ThreadNamespace
    has_parted: bool = False
    steps: list[ReplayedStep] = field(default_factory=list)

    async def run(self) -> Exception | None:
        """Run supersteps until the graph ends; return the exception that stopped it, if any."""
        for number in range(MAX_SUPERSTEPS):
            fork = await self.threads.get(self.target, None)
            assert fork is not None
            nodes = await self._nodes(number, fork.checkpoint)
            if not nodes:
                return None
            at = fork.checkpoint["id"]
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
            await self._add_steps(nodes, at, error)
            if error is not None:
                return error
            after = await self.threads.newest(self.target, None)
            if after is not None and after.id == at:
                return NotRecordedError(
                    f"the graph waits for an answer in {', '.join(node.name for node in nodes)!r:.120}: go on from "
                    f"there with a Command(resume=...) in thread {self.target.thread!r:.60}"
                )
        return UsageError(f"the graph did not end within {MAX_SUPERSTEPS} supersteps")

    async def _step(self, at: str) -> None:
        """Run one superstep. A graph compiled to stop before some nodes stops there first, and then resumes."""
        for _ in range(2):
            await self._ask("invoke", None, self._config(), interrupt_after="*")
            now = await self.threads.newest(self.target, None)
            state = await self._ask("get_state", self._config())
            if (now is not None and now.id != at) or any(task.interrupts for task in state.tasks):
                return

    async def _nodes(self, number: int, stored: Mapping[str, Any]) -> list[_Node]:
        """Return the tasks of the next superstep; note whether the state is still that of the original."""
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
                encode = self.threads.ctx.codec.encode
                stood = encode([original.checkpoint["channel_values"], then.values])
                is_same = encode([stored["channel_values"], state.values]) == stood
        self.has_parted = self.has_parted or not is_same
        if not state.next:
            return []
        return [
            _Node(task.id, task.name, repr(task.path), recorded.get((task.name, repr(task.path))))
            for task in state.tasks
        ]

    def _is_served(self, node: _Node) -> bool:
        mode = self.request.steps.get(node.name, self.request.mode)
        if mode == "mixed":
            return not self.has_parted and node.recorded is not None
        if mode == "recorded" and node.recorded is None:
            raise NotRecordedError(
                f"nothing was recorded of node {node.name!r:.60}, and this replay runs nothing that was not: replay "
                f"with mode='mixed' or 'live', or with steps={{{node.name!r:.60}: 'live'}}"
            )
        return mode == "recorded"

    async def _add_steps(self, nodes: Sequence[_Node], at: str, error: Exception | None) -> None:
        written = _by_task(await pending_writes.pending(self.threads.ctx, self.target, at))
        for node in nodes:
            if node.name == START:
                continue
            is_blocked = isinstance(error, NotRecordedError)
            result = written.get(node.id)
            same: bool | None = None
            edits: tuple[Edit, ...] = ()
            if not node.is_served and result is not None and node.recorded is not None:
                codec = self.threads.ctx.codec
                edits = tuple(
                    Differ(codec).edits(_select_user_writes(node.recorded), _select_user_writes(result), ("result",))
                )
                same = not edits
            self.steps.append(
                ReplayedStep(
                    name=node.name,
                    kind="node",
                    place=f"{at}/{node.name}",
                    source="recorded" if node.is_served else "blocked" if is_blocked else "live",
                    failed=error is not None and not is_blocked and result is None,
                    result=_select_user_writes(result),
                    was=_select_user_writes(node.recorded),
                    same=same,
                    edits=edits,
                    note="nothing was recorded" if is_blocked and not node.is_served else None,
                )
            )

    async def _ask(self, method: str, *args: Any, **options: Any) -> Any:
        if self.plainly:
            return getattr(self.graph, method)(*args, **options)
        return await getattr(self.graph, f"a{method}")(*args, **options)

    def _config(self) -> Any:
        return {"configurable": {"thread_id": self.target.thread}}


async def replay_graph(
    threads: Threads,
    graph: Any,
    start: Checkpoint,
    branch: Sequence[Checkpoint],
    request: ReplayRequest,
    *,
    plainly: bool,
) -> ReplayReport:
    """Replay a graph from one of a thread's checkpoints.

    `branch` are the checkpoints that lead to the thread's head, newest first.
    """
    about = start.metadata
    if "langgraph_id" not in about:
        raise UsageError(f"checkpoint {start.checkpoint_id} was saved by no graph: give the program that saved it")
    place = ThreadNamespace(about["thread_id"], about["checkpoint_ns"])
    if place.ns:
        raise UsageError(
            f"{request.session_id!r:.80} is of a subgraph: replay the graph that it is part of, by its own session"
        )
    if request.workspace is not None or request.on_repeat is not None:
        raise UsageError(
            "workspace and on_repeat are for programs of `client.run`: a graph keeps neither files nor a ledger"
        )
    names = [checkpoint.checkpoint_id for checkpoint in branch]
    after = list(branch[: names.index(start.checkpoint_id)]) if start.checkpoint_id in names else []
    if after and about["metadata"].get("source") == "input":
        start = after.pop()  # the input has arrived here: passing it on is no node of the graph
        about = start.metadata
    target = await _fork_thread(threads, place, start, request)
    replay = GraphReplay(
        graph=graph,
        threads=threads,
        request=request,
        plainly=plainly,
        place=place,
        originals=[about["langgraph_id"], *(item.metadata["langgraph_id"] for item in reversed(after))],
        target=target,
    )
    error = await replay.run()
    state = await replay._ask("get_state", replay._config())
    stands_at = await threads.newest(target, None)
    return ReplayReport(
        session_id=target.session,
        source_session=request.session_id,
        from_id=start.checkpoint_id,
        checkpoint_id=ids.to_text(stands_at.checkpoint) if stands_at is not None else None,
        mode=request.mode,
        steps=tuple(replay.steps),
        result=state.values,
        error=error,
    )


class _TakenError(Exception):
    """Another replay has begun a thread of this name at the same moment."""


async def _fork_thread(
    threads: Threads, place: ThreadNamespace, start: Checkpoint, request: ReplayRequest
) -> ThreadNamespace:
    """Return the thread of the replay: the named one, else a numbered one.

    The save of its first checkpoint decides which process has the number.
    """

    async def is_used(name: str) -> bool:
        return await threads.newest(ThreadNamespace(name, ""), None) is not None

    while True:
        like = f"{session_names.find_stem(place.thread)}-replay-"
        target = ThreadNamespace(request.name or await session_names.free_number(like, is_used), "")
        try:
            await _fork(threads, place, start, target, request)
        except _TakenError:
            if request.name:
                raise _name_taken(target) from None
        else:
            return target


def _name_taken(target: ThreadNamespace) -> UsageError:
    return UsageError(f"there is a thread {target.thread!r:.60} already: choose another name, or leave it out")


def _begin_session(extra_rows: ExtraRows) -> ExtraRows:
    """Return the same rows, for a save that must begin its session."""

    def rows_of_first(stored: StoredRecord) -> Sequence[RowWrite]:
        if stored.sequence != 1:
            raise _TakenError
        return extra_rows(stored)

    return rows_of_first


async def _fork(
    threads: Threads, place: ThreadNamespace, start: Checkpoint, target: ThreadNamespace, request: ReplayRequest
) -> None:
    """Make a thread, in the same tree, that begins with this checkpoint.

    The checkpoint keeps LangGraph's id, so that its tasks have the same ids. The ancestors that its
    delta channels need are copied, too.
    """
    if await threads.newest(target, None) is not None:
        raise _TakenError
    last = start.metadata["langgraph_id"]
    if await threads.newest(place, last) is None:
        raise UsageError(
            f"the graph's saver has no checkpoint {last!r:.60} of thread {place.thread!r:.60}: it is on another store "
            "than this client. Compile the graph with HoldfastSaver(client), or open the store that its saver is on"
        )
    parent = ids.from_text(start.checkpoint_id)
    is_first = True
    for id_ in sorted(await listing.needed_for(threads, place, [last])):
        loaded = await threads.get(place, id_)
        if loaded is None:
            continue
        state: Any = copy_as_dicts(loaded.checkpoint)
        if id_ == last and request.edits:
            state, _ = edit(state, {}, request.edits)
        above = parent_of(loaded)
        entry = _index_entry(target, id_, above, None)
        stored = await saving.save(
            threads.ctx,
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
                extra_rows=_begin_session(entry) if is_first else entry,
            ),
        )
        parent, is_first = stored.id, False
        threads.recent.put(target, id_, stored.id)
        if id_ != last:
            for task, writes in _by_task(loaded.pending_writes or []).items():
                await threads.put_writes(target, id_, writes, task, "")


def _by_task(pending: Sequence[tuple[str, str, Any]]) -> dict[str, Written]:
    """Return the final writes of tasks; errors, interrupts and answers to these come before them."""
    found: dict[str, Written] = {}
    for task, channel, value in pending:
        if channel not in WRITES_IDX_MAP:
            found.setdefault(task, []).append((channel, value))
    return found


def _select_user_writes(written: Written | None) -> dict[str, Any] | None:
    """Return a node's writes to the channels that users know."""
    if written is None:
        return None
    return {channel: value for channel, value in written if channel != NO_WRITES and not channel.startswith("branch:")}
