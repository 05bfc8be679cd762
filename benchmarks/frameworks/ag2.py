"""AG2: an agent that looks things up, alone, with a storage of its own, and with `resumable`."""

import json
from pathlib import Path
from typing import Any

from benchmarks.frameworks.workload import TOOLS, Take, look, prose

DISTRIBUTION = "ag2"
IS_BLOCKING = False


def ag2_agent() -> Any:
    from ag2 import Agent
    from ag2.events import ModelRequest
    from ag2_model import FunctionConfig, call

    def answer(events: Any) -> Any:
        if isinstance(events[-1], ModelRequest):
            return [call("look", f"call-{len(events)}", question=prose(60))]
        return prose(1500)

    return Agent("a", config=FunctionConfig(answer), tools=[look])


def run_alone(where: Path | None) -> Take:
    """Events as lines of JSON: AG2 brings a storage for Redis only."""
    from ag2 import MemoryStream
    from ag2.history import MemoryStorage

    class LineStorage(MemoryStorage):
        async def save_event(self, event: Any, context: Any) -> None:
            await super().save_event(event, context)
            if where is not None:
                with (where / "events.jsonl").open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"type": type(event).__name__, **event.to_dict()}) + "\n")

    agent, stream = ag2_agent(), MemoryStream(LineStorage())
    return lambda prompt: agent.ask(prompt, stream=stream)


def run_resumable(client: Any) -> Take:
    from holdfast.ag2 import resumable

    return resumable(ag2_agent(), session_id="s", store=client, tools=TOOLS).ask
