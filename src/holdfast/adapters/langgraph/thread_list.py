"""LangGraph's threads, as the sessions of a store show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.model.listing import Session


@dataclass(slots=True)
class LangGraphThread:
    """One of LangGraph's threads, as the store knows it."""

    thread_id: str
    graph_id: str | None
    assistant_id: str | None
    saves: int
    namespaces: int
    step: str | None
    saved: datetime


def threads_of(sessions: Iterable[Session]) -> list[LangGraphThread]:
    """Return the threads that these sessions hold.

    A session holds one namespace of a thread. Those of subgraphs are counted with the thread's own.
    """
    threads: dict[str, LangGraphThread] = {}
    for session in sessions:
        about = session.head.metadata
        thread_id, ns = about.get("thread_id"), about.get("checkpoint_ns")
        if not session.session_id.startswith("lg/") or not isinstance(thread_id, str) or not isinstance(ns, str):
            continue
        given = about.get("metadata")
        metadata: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        thread = threads.get(thread_id)
        if thread is None:
            thread = LangGraphThread(thread_id, None, None, 0, 0, None, session.head.created_at)
            threads[thread_id] = thread
        thread.saves += session.saves
        thread.namespaces += 1
        thread.graph_id = thread.graph_id or _text(metadata.get("graph_id"))
        thread.assistant_id = thread.assistant_id or _text(metadata.get("assistant_id"))
        if ns == "":
            thread.step = session.head.step_name
    return list(threads.values())


def _text(value: Any) -> str | None:
    return str(value) if value else None
