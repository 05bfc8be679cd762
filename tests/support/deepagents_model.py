"""A model for deep agents, a function of its messages: it writes a file in each turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class WriterModel(BaseChatModel):
    """Writes two files in one step, whose content is the message of the user."""

    on_request: Callable[[int, int], None] = lambda *_: None  # is called with the turn, and the step of it

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        asked = [one for one in messages if isinstance(one, HumanMessage)]
        turn = len(asked)
        done = sum(isinstance(one, ToolMessage) for one in messages[messages.index(asked[-1]) :])
        self.on_request(turn, done)
        if done:
            answer = AIMessage(f"written {turn}", id=f"answer-{turn}")
        else:
            files = {"/notes.md": f"{asked[-1].content}\n", f"/turn-{turn}.md": f"{turn}\n"}
            calls = [
                {"name": "write_file", "args": {"file_path": path, "content": text}, "id": f"call-{turn}{path}"}
                for path, text in files.items()
            ]
            answer = AIMessage("", tool_calls=calls, id=f"calls-{turn}")
        return ChatResult(generations=[ChatGeneration(message=answer)])
