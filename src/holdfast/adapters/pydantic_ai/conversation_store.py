"""`HoldfastConversationStore`: conversations of Pydantic AI as sessions.

A conversation is the session of the same name. Its state has the messages of the current history
with their entries' ids, and the entries of histories that it has left. The record of the
conversation is the checkpoint's metadata, so that listing conversations reads no message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)

from holdfast.adapters.base.store_access import SeamStore
from holdfast.adapters.pydantic_ai.messages import dump_messages, load_messages
from holdfast.errors import ConflictError, UsageError
from holdfast.model.framework import Framework

RECORD = "conversation"
"""The key of a checkpoint's metadata that has the record."""
DELETED = {"deleted": True}
WAIT = 10.0  # seconds for another writer that creates the same conversation
_KNOWN = 1000  # entries whose conversation is remembered
Line = list[tuple[str, Any]]


class HoldfastConversationStore(ConversationStore):
    """Conversations of Pydantic AI in a holdfast store, each message stored once.

    `store` is a `Client`, a URL, or None for `.holdfast/store.db`. A fork shares what is stored of
    the conversation that it was forked from. `delete` expires the conversation's checkpoints; `gc`
    then removes the messages that no other one needs. `await store.aclose()` closes a store that was opened here.
    """

    def __init__(self, store: Any = None, *, agent_id: str = "conversations") -> None:
        self._store = SeamStore(store)
        self._agent_id = agent_id
        self._where: dict[str, str] = {}  # by entry: a conversation that has it

    async def aclose(self) -> None:
        await self._store.aclose()

    # -- reading -------------------------------------------------------------------------------------------------------

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        return self._record_of(await self._store.client.session(conversation_id))

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        found = [self._record_of(session) for session in await self._store.client.sessions(agent_id=self._agent_id)]
        records = [item for item in found if item is not None and scope in (None, item.scope)]
        return sorted(records, key=lambda record: record.updated_at, reverse=True)[:limit]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        if head_id is None:
            return []
        state = await self._find_state(head_id)
        branch = _branch_to(state, head_id)
        parents = [None, *(id_ for id_, _ in branch)]
        first = 0 if limit is None else max(0, len(branch) - limit)
        messages = load_messages([message for _, message in branch[first:]])
        return [
            ConversationEntry(id=branch[number][0], parent_id=parents[number], message=message)
            for number, message in enumerate(messages, first)
        ]

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        return (await self.read_history(entry_id, limit=1))[0]

    def _record_of(self, session: Any) -> ConversationRecord | None:
        """Return the record of a session; that of a session which `holdfast fork` made names its origin."""
        stored = None if session is None else session.head.metadata.get(RECORD)
        if stored is None or stored == DELETED:
            return None
        record: ConversationRecord = _records().validate_python(stored)
        origin = record.conversation_id
        if origin != session.session_id:
            record = replace(
                record, conversation_id=session.session_id, forked_from=origin, forked_at=record.head_id, branches=[]
            )
        self._note(record)
        return record

    def _note(self, record: ConversationRecord) -> None:
        for id_ in (record.head_id, *record.branches):
            if id_ is not None:
                self._where.pop(id_, None)
                self._where[id_] = record.conversation_id
        while len(self._where) > _KNOWN:
            self._where.pop(next(iter(self._where)))

    async def _find_state(self, entry_id: str) -> Mapping[str, Any]:
        """Return the state of a conversation that has an entry: the one it was read with, or else any."""
        client = self._store.client
        known = self._where.get(entry_id)
        if known is not None and (state := await self._state_with(known, entry_id)) is not None:
            return state
        for session in await client.sessions(agent_id=self._agent_id):
            if (state := await self._state_with(session.session_id, entry_id)) is not None:
                return state
        raise KeyError(entry_id)

    async def _state_with(self, conversation_id: str, entry_id: str) -> Mapping[str, Any] | None:
        checkpoint = await self._store.client.latest(conversation_id)
        state = None if checkpoint is None else checkpoint.execution_state
        return state if _has_entry(state, entry_id) else None

    # -- writing -------------------------------------------------------------------------------------------------------

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        client, id_ = self._store.client, record.conversation_id
        session = await client.session(id_)
        if session is not None:
            await self._write(record, new_entries, expected_revision, session, expect_head=session.head.checkpoint_id)
        elif expected_revision is not None:
            raise ConversationConflict(id_)
        elif not await self._fork(record, new_entries):
            async with client.lease(id_, wait=WAIT) as lease:  # there is no head to compare with
                await self._write(record, new_entries, None, await client.session(id_), lease=lease)
        self._note(record)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        client = self._store.client
        session = await client.session(conversation_id)
        record = self._record_of(session)
        if record is None or record.revision != expected_revision:
            raise ConversationConflict(conversation_id)
        saved = await client.timeline(conversation_id, limit=None)
        await self._save(conversation_id, DELETED, execution_state={}, expect_head=session.head.checkpoint_id)
        for entry in saved:
            if entry.session_id == conversation_id:  # not what a fork shares with its origin
                await client.expire(entry.checkpoint_id)

    async def _write(
        self,
        record: ConversationRecord,
        new: Sequence[ConversationEntry],
        expected: str | None,
        session: Any,
        **head: Any,
    ) -> None:
        client, id_ = self._store.client, record.conversation_id
        stored = self._record_of(session)
        if session is not None and RECORD not in session.head.metadata:
            raise UsageError(
                f"session {id_!r:.60} was not saved by HoldfastConversationStore: its state would be lost. Choose "
                "another conversation_id"
            )
        if (stored.revision if stored is not None else None) != expected:
            raise ConversationConflict(id_)
        if stored is not None and _is_extension(stored, record, new):
            ids, messages = [item.id for item in new], dump_messages(item.message for item in new)
            await self._save(id_, _dump(record), **head, append={"messages": messages, "ids": ids, "left": []})
            return
        origin = record.forked_from if stored is None else id_
        base = None if origin is None else await client.latest(origin)
        known = {} if base is None else base.execution_state
        await self._save(id_, _dump(record), **head, execution_state=_move(known, record, new, is_fork=stored is None))

    async def _fork(self, record: ConversationRecord, new: Sequence[ConversationEntry]) -> bool:
        """Save a fork as a fork of the session, which shares what is stored; return whether that was possible."""
        client, id_ = self._store.client, record.conversation_id
        base = None if record.forked_from is None else await client.latest(record.forked_from)
        if base is None:
            return False
        state = _move(base.execution_state, record, new, is_fork=True)
        try:
            await client.fork(base.checkpoint_id, session_id=id_)
        except ConflictError:
            return False  # the name is in use, or was
        session = await client.session(id_)
        await self._save(id_, _dump(record), execution_state=state, expect_head=session.head.checkpoint_id)
        return True

    async def _save(self, conversation_id: str, record: Mapping[str, Any], **options: Any) -> None:
        about = {RECORD: record}
        try:
            await self._store.client.save(
                self._agent_id,
                Framework.PYDANTIC_AI,
                session_id=conversation_id,
                step_name="conversation",
                **options,
                **about,
            )
        except ConflictError:
            raise ConversationConflict(conversation_id) from None


def _dump(record: ConversationRecord) -> dict[str, Any]:
    dumped: dict[str, Any] = _records().dump_python(record, mode="json")
    return dumped


def _is_extension(stored: ConversationRecord, record: ConversationRecord, new: Sequence[ConversationEntry]) -> bool:
    """Return whether a record adds entries to the history as it is stored."""
    parents = [stored.head_id, *(item.id for item in new)]
    return [*(item.parent_id for item in new), record.head_id] == parents


def _move(
    state: Mapping[str, Any], record: ConversationRecord, new: Sequence[ConversationEntry], *, is_fork: bool
) -> dict[str, Any]:
    """Return the state whose history ends at the record's head; the entries that it leaves stay beside it."""
    messages = dump_messages(item.message for item in new)
    added = [
        {"id": item.id, "parent_id": item.parent_id, "message": message}
        for item, message in zip(new, messages, strict=True)
    ]
    known = {**state, "left": [*state.get("left", []), *added]}
    try:
        branch = [] if record.head_id is None else _branch_to(known, record.head_id)
    except KeyError:
        raise ConversationConflict(record.conversation_id) from None
    kept = {id_ for id_, _ in branch}
    left = [] if is_fork else [entry for entry in _entries(known) if entry["id"] not in kept]
    return {"messages": [message for _, message in branch], "ids": [id_ for id_, _ in branch], "left": left}


def _branch_to(state: Mapping[str, Any], head_id: str) -> Line:
    """Return the entries up to one, in order, each as its id and its message."""
    ids = state.get("ids", [])
    left = {item["id"]: item for item in state.get("left", [])}
    branch: Line = []
    id_: str | None = head_id
    while id_ is not None and id_ in left:
        branch.append((id_, left[id_]["message"]))
        id_ = left[id_]["parent_id"]
    branch.reverse()
    if id_ is None:
        return branch
    if id_ not in ids:
        raise KeyError(id_)
    end = len(ids) if ids[-1] == id_ else ids.index(id_) + 1
    return [*zip(ids[:end], state["messages"][:end], strict=True), *branch]


def _entries(state: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all entries of a state: those of its history, then those that it has left."""
    parent = None
    for id_, message in zip(state.get("ids", []), state.get("messages", []), strict=True):
        yield {"id": id_, "parent_id": parent, "message": message}
        parent = id_
    yield from state.get("left", [])


def _has_entry(state: Any, entry_id: str) -> bool:
    if not isinstance(state, Mapping) or "ids" not in state:
        return False
    return entry_id in state["ids"] or any(item["id"] == entry_id for item in state["left"])


@cache
def _records() -> TypeAdapter[Any]:
    return TypeAdapter(ConversationRecord)
