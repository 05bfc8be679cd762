"""Migrations of user states: the registered steps, and the shortest path to the newest version.

A *state version* is a number that the user's program gives its own states; `schema_version` is
holdfast's, of the envelope around them. A stored state is never rewritten: it is migrated to the
newest version each time it is restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from holdfast.errors import MigrationError, MissingMigrationError, NewerStateError, UsageError

EVERY_AGENT = "*"
FIRST_VERSION = 1  # the version of a state that was saved without one
LAST_VERSION = 2**63 - 1

_Function = TypeVar("_Function", bound=Callable[..., Any])
Edge = tuple[int, int]


class MigrationStep(NamedTuple):
    """One registered migration."""

    agent_id: str
    from_version: int
    to_version: int
    function: Callable[..., Any]
    takes_context: bool

    def __str__(self) -> str:
        name = getattr(self.function, "__qualname__", None) or repr(self.function)
        return f"{name} (agent {self.agent_id!r:.60}, {self.from_version} to {self.to_version})"

    def apply(self, state: Any, context: Any) -> tuple[Any, Any]:
        """Return the next version of a state and its context.

        Raises `MigrationError`, whatever the function raises.
        """
        try:
            made = self.function(state, context) if self.takes_context else self.function(state)
        except Exception as error:
            raise MigrationError(
                f"the migration {self} failed: {error!r:.300}. What is stored is unchanged: correct the function and "
                "restore again; restore(..., migrate=False) gives the state as it is stored"
            ) from error
        if not self.takes_context:
            made = (made, context)
        elif type(made) is not tuple or len(made) != 2:
            raise MigrationError(
                f"the migration {self} takes state and context, so it must return both, `return state, context`; it "
                f"returned a {type(made).__name__}. What is stored is unchanged"
            )
        if made[0] is None:
            raise MigrationError(f"the migration {self} returned no state: end it with `return state`")
        return made


class Migrations:
    """A set of registered migrations.

    `holdfast.migration` fills the process-wide one; `Client(..., migrations=…)` takes one of its
    own.
    """

    def __init__(self) -> None:
        self._steps: dict[str, dict[Edge, MigrationStep]] = {}
        self._newest: dict[str, int] = {}

    def register(self, agent_id: str, from_version: int, to_version: int) -> Callable[[_Function], _Function]:
        """Decorate a function that takes a state of `from_version` and returns it as one of `to_version`.

        A function with one parameter gets the `execution_state` and returns the new one. With two
        it gets `execution_state` and `agent_context`, and returns both. It may change its
        arguments. `agent_id="*"` is for the states of all agents; an agent's own migration for the
        same step takes precedence.
        """
        if not isinstance(agent_id, str):
            raise UsageError(
                f"agent_id is {agent_id!r:.60}: migrations are registered for an agent, or for "
                f"{EVERY_AGENT!r}, all agents"
            )
        edge = check_version("from_version", from_version), check_version("to_version", to_version)
        if from_version >= to_version:
            raise UsageError(f"a migration leads to a higher version, not from {from_version} to {to_version}")

        def add(function: _Function) -> _Function:
            step = MigrationStep(agent_id, *edge, function, _takes_context(function))
            steps = self._steps.setdefault(agent_id, {})
            known = steps.get(edge)
            if known is not None and known.function is not function:
                raise UsageError(
                    f"there is a migration for this step already, {known}: one of the two must go, or "
                    "be for other versions"
                )
            steps[edge] = step
            self._newest[agent_id] = max(to_version, self._newest.get(agent_id, 0))
            return function

        return add

    def __len__(self) -> int:
        return sum(map(len, self._steps.values()))

    def newest(self, agent_id: str) -> int | None:
        """Return the newest version of this agent's states; None if it has no migrations."""
        newest = self._newest
        return max(newest.get(agent_id, 0), newest.get(EVERY_AGENT, 0)) or None if newest else None

    def steps(self, agent_id: str, version: int, subject: str = "the state") -> tuple[MigrationStep, ...]:
        """Return the migrations from that version to the newest one, in order.

        Empty if it is the newest, or if no migration is registered for the agent.
        """
        newest = self.newest(agent_id)
        if newest is None or version == newest:
            return ()
        if version > newest:
            raise NewerStateError(
                f"{subject} has state version {version}, and this program knows version {newest} of agent "
                f"{agent_id!r:.60}: a newer program has saved it. Run that one (or import its "
                "migrations); nothing was changed"
            )
        steps = self._steps.get(EVERY_AGENT, {}) | self._steps.get(agent_id, {})
        way = find_path(steps, version, newest)
        if way is None:
            last, first = find_gap(steps, version, newest)
            raise MissingMigrationError(
                f"{subject} has state version {version}, and no migration leads from version {last} on to {newest}, "
                f"the newest that this program knows of agent {agent_id!r:.60}. Import the module that has "
                "it, or write it: "
                f"@holdfast.migration({agent_id!r:.60}, from_version={last}, to_version={first}). Nothing was changed"
            )
        return tuple(steps[edge] for edge in way)


def find_path(edges: Iterable[Edge], start: int, goal: int) -> tuple[Edge, ...] | None:
    """Return the fewest edges from start to goal, each of which leads upward; None if there is no path.

    Of several such paths, the one whose first edge leads furthest.
    """
    onward: dict[int, list[int]] = {}
    for before, after in edges:
        onward.setdefault(before, []).append(after)
    left = _steps_left(onward, goal)
    if start not in left:
        return None
    way = []
    while start != goal:
        after = max(version for version in onward[start] if left.get(version) == left[start] - 1)
        way.append((start, after))
        start = after
    return tuple(way)


def _steps_left(onward: dict[int, list[int]], goal: int) -> dict[int, int]:
    """Return how many steps each version is away from the goal, for those that lead there."""
    left = {goal: 0}
    for version in sorted(onward, reverse=True):  # edges lead upward: the successors of a version are known before it
        lengths = [left[after] for after in onward[version] if after in left]
        if lengths:
            left[version] = 1 + min(lengths)
    return left


def find_gap(edges: Iterable[Edge], start: int, goal: int) -> Edge:
    """Return the missing edge between start and goal, if there is no path.

    It leads from the highest version that start leads to, to the next one that leads to the goal.
    """
    onward: dict[int, list[int]] = {}
    for before, after in edges:
        onward.setdefault(before, []).append(after)
    reached = {start}
    for version in sorted(onward):
        if version in reached:
            reached.update(after for after in onward[version] if after < goal)
    last = max(reached)
    return last, min(version for version in _steps_left(onward, goal) if version > last)


def check_version(parameter: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not FIRST_VERSION <= value <= LAST_VERSION:
        raise UsageError(f"{parameter} is {value!r:.60}: versions of states are whole numbers from {FIRST_VERSION} on")
    return value


def _takes_context(function: Any) -> bool:
    import inspect

    if not callable(function):
        raise UsageError(f"a migration is a function, not a {type(function).__name__}")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise UsageError(f"what {function!r:.100} takes can't be found out: wrap it in a function") from error
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if len(parameters) not in (1, 2) or any(
        parameter.kind not in plain or parameter.default is not inspect.Parameter.empty for parameter in parameters
    ):
        raise UsageError(
            f"a migration takes (state) or (state, context), and nothing else: {function!r:.100} takes "
            f"{inspect.signature(function)!s:.100}"
        )
    if inspect.iscoroutinefunction(function):
        raise UsageError(f"a migration is a plain function: {function!r:.100} is async")
    return len(parameters) == 2


default_migrations = Migrations()
"""The process-wide registry, which `holdfast.migration` fills."""

migration = default_migrations.register
