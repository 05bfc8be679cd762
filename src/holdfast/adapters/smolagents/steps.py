"""Steps of an agent's memory, and variables of its interpreter, as plain data and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from smolagents import utils
from smolagents.agents import MultiStepAgent
from smolagents.local_python_executor import LocalPythonExecutor
from smolagents.memory import ActionStep, PlanningStep, TaskStep, ToolCall
from smolagents.monitoring import AgentLogger, LogLevel, Timing

from holdfast.adapters.base.shared_target import FirstStates
from holdfast.adapters.smolagents.values import (
    dump_answer,
    dump_value,
    encode_image,
    is_lost,
    load_answer,
    load_image,
    load_usage,
    load_value,
)
from holdfast.errors import UsageError

_CODE = "python_interpreter"  # the name that smolagents gives to the code of a step
_REQUEST = "model_input_messages"
_ANSWER_FIELDS = ("content", "calls", "usage")
_silent = AgentLogger(level=LogLevel.OFF)  # an error of smolagents logs itself when it is made


def dump_step(step: Any, observed: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return a step as plain data; `observed` has the observation of each tool call, by its id.

    The messages that were sent to the model are left out: each step would repeat all before it.
    """
    if type(step) is TaskStep:
        dumped = {"step": "task", "task": step.task, "images": _dump_images(step.task_images)}
    elif type(step) is PlanningStep:
        message = step.model_output_message
        dumped = {"step": "plan", "plan": step.plan, "said": message.content, **_dump_numbers(step)}
    elif type(step) is ActionStep:
        dumped = _dump_action(step, observed or {})
    else:
        raise UsageError(
            f"the memory of the agent has a {type(step).__name__}: resumable() stores the steps of smolagents only "
            "(TaskStep, PlanningStep, ActionStep). Keep others outside of agent.memory"
        )
    return {name: value for name, value in dumped.items() if value is not None}


def load_step(dumped: Mapping[str, Any]) -> TaskStep | PlanningStep | ActionStep:
    images = None if dumped.get("images") is None else [load_image(image) for image in dumped["images"]]
    if dumped["step"] == "task":
        return TaskStep(task=dumped["task"], task_images=images)
    timing = Timing(start_time=dumped["timing"][0], end_time=dumped["timing"][1])
    usage = load_usage(dumped.get("usage"))
    if dumped["step"] == "plan":
        message = load_answer({"content": dumped.get("said")})
        return PlanningStep(
            model_input_messages=[], model_output_message=message, plan=dumped["plan"], timing=timing, token_usage=usage
        )
    calls = dumped.get("calls")
    code = dumped.get("code")
    error = dumped.get("error")
    own = {"content": dumped.get("output"), "calls": calls, "usage": dumped.get("usage")}
    return ActionStep(
        step_number=dumped["number"],
        timing=timing,
        tool_calls=None if calls is None else [ToolCall(**call) for call in calls],
        error=None if error is None else _load_error(error),
        model_output_message=load_answer({**own, **dumped["said"]}) if "said" in dumped else None,
        model_output=dumped.get("output"),
        code_action=calls[0]["arguments"] if code is True and calls else code,
        observations=_join(dumped["observations"]) if "observations" in dumped else None,
        observations_images=images,
        action_output=load_value(dumped.get("result")),
        token_usage=usage,
        is_final_answer=dumped.get("is_final", False),
    )


class KnownSteps:
    """The steps of a memory whose stored form is known: a turn dumps what is new or was changed."""

    def __init__(self) -> None:
        self._known: list[tuple[Any, list[Any]]] = []
        self._dumped: list[tuple[Any, list[Any]]] = []

    def note(self, steps: Sequence[Any]) -> None:
        """Note that these steps are stored as they are now."""
        self._known = [(step, _fields_of(step)) for step in steps]

    def match(self, steps: Sequence[Any]) -> bool:
        """Return whether these are the known steps, unchanged: no other session has used the agent since."""
        return len(steps) == len(self._known) and all(self._is_unchanged(at, item) for at, item in enumerate(steps))

    def dump(
        self, steps: Sequence[Any], stored: Sequence[dict[str, Any]], observed: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        """Return the steps as plain data; those that are known and unchanged as they were `stored`."""
        same = min(len(self._known), len(stored))
        is_same = [at < same and self._is_unchanged(at, step) for at, step in enumerate(steps)]
        self._dumped = [self._known[at] if is_same[at] else (step, _fields_of(step)) for at, step in enumerate(steps)]
        return [stored[at] if is_same[at] else dump_step(step, observed) for at, step in enumerate(steps)]

    def note_dumped(self) -> None:
        """Note that the steps of the last `dump` are stored."""
        self._known = self._dumped

    def _is_unchanged(self, at: int, step: Any) -> bool:
        known, values = self._known[at]
        try:
            return known is step and values == [*vars(step).values()]  # quick: equal values are the same objects
        except ValueError:  # another array of NumPy: it does not say whether it is equal
            return False


def _fields_of(step: Any) -> list[Any]:
    """Return the values of a step, as they are after `drop_requests`."""
    dropped: Any = [] if isinstance(step, PlanningStep) else None
    return [dropped if name == _REQUEST else value for name, value in vars(step).items()]


def drop_requests(steps: Sequence[Any]) -> None:
    """Drop the requests of earlier turns, as a restart does: each repeats all messages before it.

    In a long conversation they are hundreds of times as large as the memory itself.
    """
    for step in steps:
        if isinstance(step, ActionStep):
            step.model_input_messages = None
        elif isinstance(step, PlanningStep):
            step.model_input_messages = []


def _dump_action(step: ActionStep, observed: Mapping[str, str]) -> dict[str, Any]:
    calls = step.tool_calls
    dumped = {
        "step": "action",
        "number": step.step_number,
        "output": step.model_output,
        "calls": calls
        and [{"id": call.id, "name": call.name, "arguments": dump_value(call.arguments)} for call in calls],
        "code": step.code_action,
        "observations": step.observations,
        "images": _dump_images(step.observations_images),
        "error": None if step.error is None else step.error.dict(),
        "result": None if step.action_output is None else dump_value(step.action_output),
        "is_final": step.is_final_answer or None,
        **_dump_numbers(step),
    }
    parts = [observed.get(call.id) for call in calls or ()]
    if len(parts) > 1 and all(part is not None for part in parts) and _join(parts) == step.observations:
        dumped["observations"] = parts
    if calls and calls[0].name == _CODE and calls[0].arguments == step.code_action:
        dumped["code"] = True
    if step.model_output_message is not None:
        own = {"content": dumped["output"], "calls": dumped["calls"], "usage": dumped["usage"]}
        answer = dump_answer(step.model_output_message)
        dumped["said"] = {name: answer[name] for name in _ANSWER_FIELDS if answer[name] != own[name]}
    return dumped


def _dump_numbers(step: ActionStep | PlanningStep) -> dict[str, Any]:
    usage = step.token_usage
    return {
        "timing": [step.timing.start_time, step.timing.end_time],
        "usage": None if usage is None else [usage.input_tokens, usage.output_tokens],
    }


def _dump_images(images: Sequence[Any] | None) -> list[bytes] | None:
    return [encode_image(image) for image in images] if images else None


def _load_error(error: Mapping[str, str]) -> utils.AgentError:
    kind: Any = getattr(utils, error["type"], None)
    is_agent_error = isinstance(kind, type) and issubclass(kind, utils.AgentError)
    return (kind if is_agent_error else utils.AgentError)(error["message"], _silent)


def _join(observations: Any) -> Any:
    """Return the observations of several calls as smolagents joins them."""
    return (
        "".join(f"{observation}\n" for observation in observations).rstrip("\n")
        if type(observations) is list
        else observations
    )


# -- an agent's state --------------------------------------------------------------------------------------------------


def managed_agents(agent: MultiStepAgent) -> dict[str, MultiStepAgent]:
    """Return the agents that an agent manages, by their names; raise if one is of another framework."""
    for name, value in agent.managed_agents.items():
        if not isinstance(value, MultiStepAgent):
            raise UsageError(
                f"the managed agent {name!r:.60} is a {type(value).__name__}: its calls can't be recorded. Give an "
                "agent of smolagents, or a tool that calls it"
            )
    return dict(agent.managed_agents)


def dump_variables(agent: MultiStepAgent) -> dict[str, Any]:
    """Return what the agent keeps beside its memory: `agent.state`, and the interpreter's variables.

    The same of the agents that it manages. Functions, classes, modules and objects that can't be
    stored are left out.
    """
    managed = {name: dump_variables(value) for name, value in managed_agents(agent).items()}
    found = {
        "agent_state": _dump_all(agent.state),
        "managed": {name: values for name, values in managed.items() if values},
    }
    executor = getattr(agent, "python_executor", None)
    if isinstance(executor, LocalPythonExecutor):
        found["variables"] = _dump_all(executor.state)
    return {name: values for name, values in found.items() if values}


def _dump_all(values: Mapping[str, Any]) -> dict[str, Any]:
    dumped = {name: dump_value(value) for name, value in values.items() if not name.startswith("_")}
    return {name: value for name, value in dumped.items() if not is_lost(value)}


class AgentStartState:
    """What an agent has before its first turn: memory, state and variables of its own program.

    All sessions of the agent share it. So a session never begins with what another one has left.
    """

    def __init__(self, agent: MultiStepAgent) -> None:
        self._managed = {name: AgentStartState(value) for name, value in managed_agents(agent).items()}
        self._steps = list(agent.memory.steps)
        self._state = dict(agent.state)
        executor: Any = getattr(agent, "python_executor", None)
        self._executor = executor if isinstance(executor, LocalPythonExecutor) else None
        self._variables = {} if self._executor is None else dict(self._executor.state)

    @classmethod
    def of(cls, agent: MultiStepAgent) -> AgentStartState:
        """Return the state that the agent had when it was first made resumable."""
        return _states.take(agent, lambda: cls(agent))

    def restore(self, agent: MultiStepAgent, state: Mapping[str, Any]) -> None:
        """Put the state of a session into the agent; of a session without turns, the agent's own."""
        if "messages" in state:
            agent.memory.steps = [load_step(message) for message in state["messages"][state.get("first", 0) :]]
        else:
            agent.memory.steps = list(self._steps)
        self._restore_variables(agent, state)

    def _restore_variables(self, agent: MultiStepAgent, state: Mapping[str, Any]) -> None:
        agent.state = {**self._state, **_load_all(state.get("agent_state"))}
        if self._executor is not None:
            self._executor.state = dict(self._variables)
            self._executor.send_variables(_load_all(state.get("variables")))
        for name, value in self._managed.items():
            if name in agent.managed_agents:
                value._restore_variables(agent.managed_agents[name], state.get("managed", {}).get(name, {}))


_states: FirstStates[AgentStartState] = FirstStates()


def _load_all(values: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: load_value(value) for name, value in (values or {}).items()}
