"""Registering migrations: what is refused, and what a migration may do."""

import functools

import pytest

from holdfast import MigrationError, Migrations, MissingMigrationError, NewerStateError, NewerVersionError, UsageError
from holdfast.errors import HoldfastError


@pytest.fixture
def migrations():
    return Migrations()


@pytest.mark.parametrize(
    "steps", [(2, 2), (3, 2), (0, 1), (-1, 1), (True, 2), (1, 2.0), ("1", 2), (1, None), (1, 2**63)]
)
def test_steps_that_lead_nowhere_are_refused(migrations, steps):
    with pytest.raises(UsageError):
        migrations.register("a", *steps)
    assert migrations.newest("a") is None


def test_an_agent_is_named_by_text(migrations):
    with pytest.raises(UsageError, match="all agents"):
        migrations.register(None, 1, 2)


async def _async(state):
    return state


@pytest.mark.parametrize(
    "function",
    [
        5,
        None,
        "f",
        lambda: {"n": 1},
        lambda a, b, c: a,
        lambda *states: states,
        lambda state, context=None: state,
        lambda state, *, context: state,
        lambda **state: state,
        _async,
    ],
)
def test_what_is_no_migration_is_refused(migrations, function):
    with pytest.raises(UsageError, match="migration"):
        migrations.register("a", 1, 2)(function)
    assert migrations.newest("a") is None
    assert migrations.steps("a", 1) == ()


def test_a_step_has_one_migration(migrations):
    def first(state):
        return state

    assert migrations.register("a", 1, 2)(first) is first
    assert migrations.register("a", 1, 2)(first) is first
    with pytest.raises(UsageError, match=r"already, .*first \(agent 'a', 1 to 2\)"):
        migrations.register("a", 1, 2)(lambda state: state)
    migrations.register("b", 1, 2)(lambda state: state)
    migrations.register("*", 1, 2)(lambda state: state)
    [step] = migrations.steps("a", 1)
    assert step.function is first


def test_anything_callable_will_do(migrations):
    def with_more(how, state):
        return [how, state]

    migrations.register("a", 1, 2)(functools.partial(with_more, "how"))
    [step] = migrations.steps("a", 1)
    assert step.apply("state", "context") == (["how", "state"], "context")


def test_one_parameter_is_the_state_two_are_state_and_context(migrations):
    migrations.register("a", 1, 2)(lambda state: {**state, "n": 2})
    migrations.register("a", 2, 3)(lambda state, context: ({**state, "n": 3}, {**context, "moved": state["n"]}))
    one, two = migrations.steps("a", 1)
    assert one.apply({"n": 1}, {"c": 1}) == ({"n": 2}, {"c": 1})
    assert two.apply({"n": 2}, {"c": 1}) == ({"n": 3}, {"c": 1, "moved": 2})


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (lambda state: None, "returned no state"),
        (lambda state, context: None, "must return both"),
        (lambda state, context: {"state": state, "context": context}, "must return both"),
        (lambda state, context: (None, context), "returned no state"),
    ],
)
def test_a_migration_that_returns_something_else_is_told_so(migrations, function, complaint):
    migrations.register("a", 1, 2)(function)
    [step] = migrations.steps("a", 1)
    with pytest.raises(MigrationError, match=complaint):
        step.apply({}, {})


def test_errors_say_what_to_write(migrations):
    migrations.register("billing", 1, 2)(lambda state: state)
    migrations.register("billing", 4, 5)(lambda state: state)
    with pytest.raises(MissingMigrationError, match=r"migration\('billing', from_version=2, to_version=4\)"):
        migrations.steps("billing", 1)
    with pytest.raises(MissingMigrationError, match=r"migration\('billing', from_version=3, to_version=4\)"):
        migrations.steps("billing", 3)
    with pytest.raises(NewerStateError, match="version 6, and this program knows version 5") as caught:
        migrations.steps("billing", 6)
    assert isinstance(caught.value, NewerVersionError)
    assert isinstance(caught.value, HoldfastError)
    assert caught.value.exit_code == 1
