"""People's answers: CrewAI's questions wait in `holdfast approvals` instead of at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crewai.core.providers.human_input import SyncHumanInputProvider
from crewai.flow.async_feedback import HumanFeedbackPending
from crewai.hooks.dispatch import HookAborted

from holdfast.adapters.base.turn import TurnEndedError
from holdfast.adapters.crewai.answer import is_plain
from holdfast.backends.bridge.step import run_inline

if TYPE_CHECKING:
    from holdfast.adapters.crewai.journal import CrewJournal

ANSWER = "answer"
"""The argument that a person changes to answer with a text: `holdfast approve ID --modify '{"answer": "..."}'`."""


def ask_person(journal: CrewJournal, question: str, about: dict[str, Any]) -> str:
    """Return a person's answer as a text; end the turn while there is none.

    An approval without a note is the empty text, with which CrewAI continues. A note, or a changed
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
                # Private: this is how CrewAI's own provider lets the agent work on.
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


class FlowPeople:
    """The person who reviews what a method returned (`@human_feedback`), or is asked by `flow.ask(...)`.

    `own` is the provider that the flow has. Its answer counts; if it pauses the flow instead, the
    question waits in `holdfast approvals`.
    """

    def __init__(self, journal: CrewJournal, own: Any) -> None:
        self._journal = journal
        self._own = own

    def request_feedback(self, context: Any, flow: Any) -> str:
        def ask_own() -> str | None:
            try:
                return str(self._own.request_feedback(context, flow))
            except HumanFeedbackPending:
                return None

        if self._own is not None:
            feedback = run_inline(self._journal.turn.call_part(f"{context.method_name} feedback", ask_own))
            if feedback is not None:
                return str(feedback)
        output = context.method_output if is_plain(context.method_output) else str(context.method_output)
        about = {"message": context.message, "output": output, "choices": list(context.emit or ())}
        return ask_person(self._journal, f"{context.method_name} feedback", about)

    def request_input(self, message: str, flow: Any, metadata: Any = None) -> Any:
        if self._own is not None:
            return run_inline(
                self._journal.turn.call_part("ask", lambda: self._own.request_input(message, flow, metadata=metadata))
            )
        return ask_person(self._journal, "ask", {"message": message})
