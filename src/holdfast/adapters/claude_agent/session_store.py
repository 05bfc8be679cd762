"""`HoldfastSessionStore`: transcripts of the CLI in a store of holdfast.

A session of the CLI is the holdfast session `claude/<project>/<session>`. Its state has one long
list for the main transcript, and one for each sub-agent. The SDK's summary is in the checkpoint's
metadata, so that listing sessions reads no transcript.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from claude_agent_sdk import SessionKey, SessionStore, SessionStoreEntry, fold_session_summary

from holdfast.adapters.base.message_log import MESSAGES
from holdfast.adapters.base.step_function import step_name
from holdfast.adapters.base.store_access import SeamStore
from holdfast.adapters.claude_agent.entries import name_step
from holdfast.errors import ConflictError, UsageError
from holdfast.model.framework import Framework

PREFIX = "claude"
ABOUT = "claude_session"
"""The key of a checkpoint's metadata that has the summary, and the names of the lists."""
WAIT = 10.0  # seconds for another writer that begins the same session
_REMEMBERED = 100  # sessions whose ids of entries are remembered


class HoldfastSessionStore(SessionStore):
    """Transcripts for `ClaudeAgentOptions(session_store=HoldfastSessionStore())`.

    `store` is a `Client`, a URL, or None for `.holdfast/store.db`. Entries are stored as they are, each
    once: one whose `uuid` is stored already is skipped. `delete` expires the checkpoints of a session;
    `holdfast gc` removes what they alone refer to. `await store.aclose()` closes a store that was opened here.
    """

    def __init__(self, store: Any = None, *, agent_id: str = "claude") -> None:
        self._store = SeamStore(store)
        self._agent_id = agent_id
        self._stored: dict[str, tuple[str, dict[str, set[str]]]] = {}  # by session: its head, and the ids of each list

    async def aclose(self) -> None:
        await self._store.aclose()

    # -- entries -------------------------------------------------------------------------------------------------------

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Append entries. They are durable when it returns."""
        if not entries:
            return
        name, path = _name_of(key), _path_of(key)
        client = self._store.client
        while True:
            session = await client.session(name)
            try:
                if session is None:
                    async with client.lease(name, wait=WAIT) as lease:  # there is no head to compare with
                        if await client.session(name) is None:
                            await self._append(key, name, path, entries, None, lease=lease)
                            return
                else:
                    head = session.head.checkpoint_id
                    await self._append(key, name, path, entries, session.head, expect_head=head)
                    return
            except ConflictError:
                continue  # another writer was faster

    async def _append(
        self, key: SessionKey, name: str, path: str, entries: Sequence[Any], head: Any, **expected: Any
    ) -> None:
        about = {} if head is None else _read_about(head)
        stored = await self._load_ids(name, head)
        new = select_new(entries, stored.setdefault(path, set()))
        if not new and head is not None:
            return
        known = about.get("lists", [])
        summary = about.get("summary")
        if path == MESSAGES:
            folded = {"session_id": key["session_id"], "mtime": 0, "data": summary} if summary is not None else None
            summary = fold_session_summary(folded, key, new)["data"]
        record = {ABOUT: {"lists": [*known, *([] if path in known else [path])], "summary": summary}}
        saved = await self._store.client.save(
            self._agent_id,
            Framework.CLAUDE_AGENT,
            {} if path in known else {path: new},
            session_id=name,
            step_name=step_name(name_step(new)),
            append={(item,): new if item == path else [] for item in known},
            **expected,
            **record,
        )
        stored[path].update(ids_of(new))
        self._remember(name, saved, stored)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        head = await self._store.client.latest(_name_of(key))
        entries = None if head is None else _lists_of(head.execution_state).get(_path_of(key))
        return None if entries is None else list(entries)

    async def list_subkeys(self, key: Any) -> list[str]:
        session = await self._store.client.session(_name_of(key))
        lists = [] if session is None else _read_about(session.head).get("lists", [])
        return [path for path in lists if path != MESSAGES]

    async def delete(self, key: SessionKey) -> None:
        """Expire the session, or drop the transcript of one sub-agent."""
        client, name, path = self._store.client, _name_of(key), _path_of(key)
        self._stored.pop(name, None)
        if path == MESSAGES:
            for checkpoint in await client.timeline(name, limit=None):
                if checkpoint.session_id == name:  # not what a fork shares with its origin
                    await client.expire(checkpoint.checkpoint_id)
            return
        while (head := await client.latest(name)) is not None:
            state = {item: entries for item, entries in _lists_of(head.execution_state).items() if item != path}
            about = {ABOUT: {**_read_about(head), "lists": list(state)}}
            try:
                await client.save(
                    self._agent_id, Framework.CLAUDE_AGENT, state, session_id=name, step_name="delete",
                    expect_head=head.checkpoint_id, **about,
                )  # fmt: skip
            except ConflictError:
                continue
            return

    # -- lists of sessions ---------------------------------------------------------------------------------------------

    async def list_sessions(self, project_key: str) -> list[Any]:
        return [{"session_id": id_, "mtime": _mtime(head)} for id_, head in await self._heads(project_key)]

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        return [
            {"session_id": id_, "mtime": _mtime(head), "data": summary}
            for id_, head in await self._heads(project_key)
            if (summary := _read_about(head).get("summary")) is not None
        ]

    async def _heads(self, project_key: str) -> list[tuple[str, Any]]:
        """Return the main transcripts of a project: the session's id, and its head."""
        prefix = f"{PREFIX}/{quote(project_key, safe='')}/"
        found = []
        for name in await self._store.client.session_ids(prefix):
            session = await self._store.client.session(name)
            if session is not None and MESSAGES in _read_about(session.head).get("lists", []):
                found.append((unquote(name.removeprefix(prefix)), session.head))
        return found

    # -- ids of entries ------------------------------------------------------------------------------------------------

    async def _load_ids(self, name: str, head: Any) -> dict[str, set[str]]:
        """Return the ids that are stored, by list; they are read only if another writer has changed them."""
        if head is None:
            return {}
        known, ids = self._stored.get(name, ("", {}))
        if known != head.checkpoint_id:
            loaded = await self._store.client.restore(head.checkpoint_id)
            ids = {path: set(ids_of(entries)) for path, entries in _lists_of(loaded.execution_state).items()}
        return ids

    def _remember(self, name: str, head: str, ids: dict[str, set[str]]) -> None:
        self._stored.pop(name, None)
        self._stored[name] = (head, ids)
        while len(self._stored) > _REMEMBERED:
            self._stored.pop(next(iter(self._stored)))


def ids_of(entries: Iterable[Any]) -> list[str]:
    return [id_ for entry in entries if isinstance(entry, Mapping) and isinstance(id_ := entry.get("uuid"), str)]


def select_new(entries: Iterable[Any], stored: set[str]) -> list[Any]:
    """Return the entries that are not stored yet, each once; those without an id are all new."""
    seen = set(stored)
    new = []
    for entry in entries:
        ids = ids_of([entry])
        if not seen.issuperset(ids) or not ids:
            new.append(entry)
        seen.update(ids)
    return new


def _name_of(key: Mapping[str, Any]) -> str:
    project, session = key["project_key"], key["session_id"]
    return f"{PREFIX}/{quote(project, safe='')}/{quote(session, safe='')}"


def _path_of(key: Mapping[str, Any]) -> str:
    path = key.get("subpath")
    if path in ("", MESSAGES):
        raise UsageError(f"subpath is {path!r}: leave it out for the main transcript")
    return MESSAGES if path is None else str(path)


def _read_about(head: Any) -> dict[str, Any]:
    found = head.metadata.get(ABOUT)
    return found if isinstance(found, dict) else {}


def _lists_of(state: Any) -> dict[str, list[Any]]:
    return (
        {name: value for name, value in state.items() if isinstance(value, list)} if isinstance(state, Mapping) else {}
    )


def _mtime(head: Any) -> int:
    return int(head.created_at.timestamp() * 1000)
