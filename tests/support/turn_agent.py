"""An agent with a fixed plan of tool calls, for tests of turns."""

from __future__ import annotations

from typing import Any

from holdfast.adapters.base import session as sessions
from holdfast.adapters.base.session import TurnEnd
from holdfast.adapters.base.turn import FrameworkTurn


class Killed(BaseException):
    """Stands for the end of the process."""


class Agent:
    """A loop that calls the tools of a plan, one after the other, and counts what is really called."""

    def __init__(self, plan: list[tuple[str, dict[str, Any]]]) -> None:
        self.plan = plan
        self.called: list[str] = []
        self.killed_in: str | None = None

    def call(self, name: str) -> str:
        self.called.append(name)
        if self.killed_in == name:
            raise Killed
        return f"{name} ok"

    async def body(self, turn: FrameworkTurn) -> TurnEnd:
        messages = [*turn.state.get("messages", []), {"role": "user", "content": "go"}]
        start = len(messages)
        for number, (tool, arguments) in enumerate(self.plan):

            async def ask(number: int = number, tool: str = tool, arguments: dict[str, Any] = arguments) -> Any:
                self.call(f"model {number}")
                call = {"id": f"call-{number}", "name": tool, "args": arguments}
                return {"role": "assistant", "content": "", "tool_calls": [call]}

            messages.append(await turn.call_model("agent", messages, ask))

            async def use(tool: str = tool, **_: Any) -> str:
                return self.call(tool)

            result = await turn.call_tool(tool, arguments, use, call_id=f"call-{number}")
            messages.append({"role": "tool", "tool_call_id": f"call-{number}", "content": result})
        text = messages[-1]["content"] if len(messages) > start else ""
        return TurnEnd(text, text, {"messages": messages})


def restart() -> None:
    sessions._finished.clear()
