"""People's answers: CrewAI's questions wait in `holdfast approvals` instead of at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crewai.core.providers.human_input import SyncHumanInputProvider
from crewai.hooks.dispatch import HookAborted

from holdfast.adapters.base.turn import TurnEndedError
from holdfast.backends.bridge.step import run_inline

if TYPE_CHECKING:
    from holdfast.adapters.crewai.journal import CrewJournal

ANSWER = "answer"
"""The argument that a person changes to answer with a text: `holdfast approve ID --modify '{"answer": "..."}'`."""


def ask_person(journal: CrewJournal, question: str, about: dict[str, Any]) -> str:
    """Return a person's answer as a text; end the turn while there is none.

    An approval without a note is the empty text, with which CrewAI goes on. A note, or a changed
    `answer`, is the text.
    """
    asked = {**about, ANSWER: ""}
    given = run_inline(journal.turn.request_approval(question, asked, call_id=str(sorted(about.items()))))
    changed = (given.arguments or {}).get(ANSWER)
    if isinstance(changed, str) and changed:
        return changed
    return given.note or ("" if given.is_approved else "rejected")


class HumanInput(SyncHumanInputProvider):  # type: ignore[misc]  # CrewAI is Any for mypy
    """The person who reviews the result of a task with `human_input=True`."""

    def __init__(self, journal: CrewJournal) -> None:
        self._journal = journal

    def handle_feedback(self, formatted_answer: Any, context: Any) -> Any:
        answer = formatted_answer
        while context.ask_for_human_input:
            feedback = self._ask(answer, context)
            if not feedback.strip():
                context.ask_for_human_input = False
            else:
                context.messages.append(context._format_feedback_message(feedback))
                answer = context._invoke_loop()
        return answer

    async def handle_feedback_async(self, formatted_answer: Any, context: Any) -> Any:
        answer = formatted_answer
        while context.ask_for_human_input:
            feedback = self._ask(answer, context)
            if not feedback.strip():
                context.ask_for_human_input = False
            else:
                context.messages.append(context._format_feedback_message(feedback))
                answer = await context._ainvoke_loop()
        return answer

    def _ask(self, answer: Any, context: Any) -> str:
        task = context.task
        about = {
            "task": "" if task is None else task.name or task.description,
            "result": self._get_output_string(answer),
        }
        try:
            return ask_person(self._journal, "human_input", about)
        except TurnEndedError as error:
            raise HookAborted(str(error), source="holdfast") from error
