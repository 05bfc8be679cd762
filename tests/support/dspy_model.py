"""A model for DSPy's ReAct that is a function of its messages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from dspy.lm15 import Message, Response, TextPart, Usage


def read_request(messages: Sequence[dict[str, Any]]) -> tuple[list[str], int, bool]:
    """Return the numbers in the question, how many steps are done, and whether the answer is wanted."""
    asked = str(messages[-1]["content"])
    numbers = re.findall(r"\d+", asked.partition("[[ ## trajectory")[0])
    done = len(re.findall(r"\[\[ ## observation_\d+ ## \]\]", asked))
    return numbers, done, "[[ ## next_thought ## ]]" not in asked


def answer_request(messages: Sequence[dict[str, Any]]) -> str:
    """Pay each invoice of the question, then finish, then tell what was observed."""
    numbers, done, is_end = read_request(messages)
    if is_end:
        observed = re.findall(r"## observation_\d+ ## \]\]\n(.*?)\n\n\[\[", str(messages[-1]["content"]), re.DOTALL)
        return format_answer(reasoning="seen", answer="; ".join(observed))
    if done < len(numbers):
        arguments = json.dumps({"invoice_id": int(numbers[done])})
        return format_answer(next_thought="pay", next_tool_name="pay", next_tool_args=arguments)
    return format_answer(next_thought="done", next_tool_name="finish", next_tool_args="{}")


def format_answer(**fields: str) -> str:
    return "".join(f"[[ ## {name} ## ]]\n{value}\n\n" for name, value in fields.items()) + "[[ ## completed ## ]]"


class FunctionEngine:
    """What `dspy.LM(engine=...)` takes: answers with what the function makes of the messages."""

    def __init__(self, answer: Callable[[Sequence[dict[str, Any]]], str]) -> None:
        self._answer = answer

    def complete(self, request: Any) -> Response:
        said = self._answer([{"role": one.role, "content": one.text or ""} for one in request.messages])
        usage = Usage(input_tokens=1, output_tokens=1, total_tokens=2)
        message = Message.assistant([TextPart(said)])
        return Response(id=None, model=request.model, message=message, finish_reason="stop", usage=usage)
