"""Questions to people: `InputRequiredEvent`s, which wait until an answer comes.

A program that reads the run's stream answers as the framework says, by an event. Otherwise the
question waits in `holdfast approvals`, and the decision becomes the event that the workflow waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent
from workflows.runtime.types.internal_state import BrokerState
from workflows.runtime.types.results import AddWaiter, DeleteWaiter, StepWorkerResult
from workflows.runtime.types.ticks import TickStepResult

from holdfast.adapters.base.digest import digest
from holdfast.adapters.base.turn import ApprovalAnswer
from holdfast.adapters.llama_index.values import dump_fields
from holdfast.errors import UsageError


class OpenQuestions:
    """The questions of a run, in the order they were asked; those that were answered are remembered."""

    def __init__(self, saved: Mapping[str, Any] | None = None) -> None:
        self._asked: dict[str, dict[str, Any]] = {id_: dict(value) for id_, value in (saved or {}).items()}

    def dump(self) -> dict[str, Any]:
        return {id_: dict(value) for id_, value in self._asked.items()}

    def list_open(self) -> dict[str, dict[str, Any]]:
        """Return the questions without an answer, by their ids."""
        return {id_: value for id_, value in self._asked.items() if not value["is_answered"]}

    def note_asked(self, tick: TickStepResult, work_item: str | None, written: Iterable[Event], dump: Any) -> None:
        """Note the questions of a step that has ended or waits; `written` are those it wrote to the stream."""
        returned = [item.result for item in tick.result if isinstance(item, StepWorkerResult)]
        waiters = [item for item in tick.result if isinstance(item, AddWaiter)]
        is_answered = any(isinstance(item, DeleteWaiter) for item in tick.result)  # its questions were written again
        asked = [("", item) for item in (*(() if is_answered and not waiters else written), *returned)]
        asked += [(item.waiter_id, item.waiter_event) for item in waiters]
        for waiter, event in asked:
            if isinstance(event, InputRequiredEvent):
                tree = dump(event)
                about = {"step": str(tick.step_id), "work_item": work_item, "event": tree, "fields": dump_fields(event)}
                id_ = digest([str(tick.step_id), work_item, waiter, tree])
                self._asked.setdefault(id_, {**about, "is_answered": False})

    def note_answer(self, event: Event) -> None:
        """Note that an event from outside answers a question: the one that most of its fields are about."""
        if not isinstance(event, HumanResponseEvent):
            return
        fields = dump_fields(event).items()
        open_ones = self.list_open().values()
        if open_ones:
            best = max(open_ones, key=lambda item: sum(item["fields"].get(name) == value for name, value in fields))
            best["is_answered"] = True


def question_of(asked: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a question as a call that waits for approval: the name of the step, and its arguments."""
    return asked["step"], {"question": asked["fields"], "answer": None}


def make_response(asked: Mapping[str, Any], answer: ApprovalAnswer, broker: BrokerState) -> Event:
    """Return the event that a person's decision stands for.

    Its fields: `response`, the note, or whether it was approved; `approved` and `by`; what the
    workflow requires of it, and what a declared field shares with the question; and what the person
    gave as the argument `answer` instead, fields or a response.
    """
    given = (answer.arguments or {}).get("answer")
    kind, required = _find_awaited(asked, broker)
    shared = {name: value for name, value in asked["fields"].items() if name in kind.model_fields}
    fields = {"response": answer.to_text(), "approved": answer.is_approved, "by": answer.by}
    instead = given if isinstance(given, Mapping) else {} if given is None else {"response": given}
    try:
        return kind(**{**shared, **fields, **required, **instead})
    except ValidationError as error:
        raise UsageError(
            f"the decision about {asked['step']!r:.60} is no {kind.__name__}: {error}. Give its fields: "
            "holdfast approve ID --modify '{\"answer\": {...}}'. Roll the session back to decide again"
        ) from error


def _find_awaited(asked: Mapping[str, Any], broker: BrokerState) -> tuple[type[Event], dict[str, Any]]:
    """Return the class of the event that a question waits for, and what is required of it."""
    for step, worker in broker.workers.items():
        for waiter in worker.collected_waiters:
            is_own = str(step) == asked["step"] and waiter.work_item_id == asked["work_item"]
            if is_own and waiter.resolved_event is None:
                return waiter.waiting_for_event, dict(waiter.requirements)
    accepted = {event for worker in broker.workers.values() for event in worker.config.accepted_events}
    found = [class_ for class_ in accepted if isinstance(class_, type) and issubclass(class_, HumanResponseEvent)]
    if len(found) > 1:
        raise UsageError(
            f"the question of the step {asked['step']!r:.60} may be answered by {len(found)} kinds of events "
            f"({', '.join(sorted(class_.__name__ for class_ in found))}): `holdfast approve` can't tell which. "
            "Answer it by handler.ctx.send_event(...) while the stream is read"
        )
    return (found or [HumanResponseEvent])[0], {}
