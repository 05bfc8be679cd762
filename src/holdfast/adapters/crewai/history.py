"""A conversation of another framework as the context of a crew's first task.

A crew has no place for messages: what one task says is text in the prompt of the next. So the
conversation is the output of a task that has been done before the first one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from crewai import Crew, Task
from crewai.tasks.task_output import TaskOutput

from holdfast.adapters.crewai.transcript import HISTORY, messages_of_state
from holdfast.model.transcript_text import write_text

_DESCRIPTION = "The conversation so far, which another agent had."


@contextmanager
def insert_history(crew: Crew, state: Mapping[str, Any]) -> Iterator[None]:
    """Give the first task of a crew the conversation that came from another framework, for one kickoff."""
    text = write_text(messages_of_state({"messages": list(state.get("messages", ()))[: state.get(HISTORY, 0)]}))
    if not text or not crew.tasks:
        yield
        return
    done = Task(description=_DESCRIPTION, expected_output="A conversation.")
    done.output = TaskOutput(description=_DESCRIPTION, raw=text, agent="another agent")
    first = crew.tasks[0]
    own = first.context
    first.context = [done, *(own if isinstance(own, list) else ())]
    try:
        yield
    finally:
        first.context = own
