"""The Claude Agent SDK: entries of a transcript, appended by turns, without the CLI, which takes much longer."""

import json
import uuid
from pathlib import Path
from typing import Any

from benchmarks.frameworks.workload import Take, look, prose

DISTRIBUTION = "claude-agent-sdk"
IS_BLOCKING = False
SESSION = str(uuid.UUID(int=7))
KEY: Any = {"project_key": "-work", "session_id": SESSION}


def make_batches(prompt: str) -> list[list[dict[str, Any]]]:
    """Return what the CLI mirrors of a turn with one tool call, batch by batch, with the fields that it writes."""
    about = {
        "isSidechain": False, "userType": "external", "entrypoint": "sdk-py", "cwd": "/work", "sessionId": SESSION,
        "version": "2.1.327", "gitBranch": "HEAD", "timestamp": "2026-11-18T13:24:09.042Z",
    }  # fmt: skip
    usage = {"input_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 5}
    model = {"type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "usage": usage}
    parent: str | None = None

    def entry(kind: str, **fields: Any) -> dict[str, Any]:
        nonlocal parent
        made = {"parentUuid": parent, "type": kind, "uuid": str(uuid.uuid4()), **fields, **about}
        parent = made["uuid"]
        return made

    call = {
        "type": "tool_use",
        "id": f"toolu_{uuid.uuid4().hex[:24]}",
        "name": "look",
        "input": {"question": prose(60)},
    }
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": look("")}]}
    text = {"type": "text", "text": prose(1500)}
    ids = [f"msg_{uuid.uuid4().hex[:24]}" for _ in range(2)]
    return [
        [
            {"type": "queue-operation", "operation": "enqueue", "sessionId": SESSION, "content": prompt},
            {"type": "queue-operation", "operation": "dequeue", "sessionId": SESSION},
            entry("user", message={"role": "user", "content": prompt}),
            entry("attachment", attachment={"type": "total_tokens_reminder", "text": "14999985 tokens left"}),
            entry("assistant", message={**model, "id": ids[0], "content": [call], "stop_reason": "tool_use"}),
        ],
        [entry("user", message={"role": "user", "content": [result]}, toolUseResult=result["content"])],
        [entry("assistant", message={**model, "id": ids[1], "content": [text], "stop_reason": "end_turn"})],
        [{"type": "last-prompt", "lastPrompt": prompt, "sessionId": SESSION}],
    ]


def run_alone(where: Path | None) -> Take:
    """The CLI's own JSONL file, written here."""
    from claude_agent_sdk import InMemorySessionStore

    store = InMemorySessionStore()

    async def take(prompt: str) -> None:
        for batch in make_batches(prompt):
            if where is None:
                await store.append(KEY, batch)
            else:
                with (where / "transcript.jsonl").open("a") as file:
                    file.writelines(json.dumps(entry) + "\n" for entry in batch)

    return take


def run_resumable(client: Any) -> Take:
    from holdfast.adapters.base.session import ResumableSession, TurnEnd
    from holdfast.adapters.base.turn import FrameworkTurn
    from holdfast.adapters.claude_agent.transcript_mirror import TranscriptMirror
    from holdfast.model.framework import Framework

    session = ResumableSession(Framework.CLAUDE_AGENT, session_id="s", store=client)
    mirror = TranscriptMirror(session)
    result = {"subtype": "success", "duration_ms": 73, "duration_api_ms": 32, "is_error": False, "num_turns": 2}

    async def take(prompt: str) -> None:
        async def body(turn: FrameworkTurn) -> TurnEnd:
            if not mirror.has_transcripts(turn):
                mirror.use_state(turn.state)
            await mirror.set_turn(turn)
            first = len(mirror.entries)
            for batch in make_batches(prompt):
                await mirror.append(KEY, batch)
            await mirror.set_turn(None)
            return mirror.end_turn(turn, {"first": first, "end": len(mirror.entries), "result": result})

        await session.take_turn("query", prompt, None, body, str)

    return take
