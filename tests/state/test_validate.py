"""Checking what callers give: the parameters are known, the reserved names are not parameters."""

from __future__ import annotations

import inspect

import pytest

from holdfast import Client, UsageError
from holdfast.operations import validate


def test_the_known_parameters_are_those_of_save():
    """A near miss is told by comparing with these: none may be forgotten."""
    kinds = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    parameters = inspect.signature(Client.save).parameters.values()
    of_save = {parameter.name for parameter in parameters if parameter.kind in kinds}
    assert of_save - {"self"} == set(validate.PARAMETERS)
    assert not validate.PARAMETERS & validate.RESERVED


def test_a_name_that_is_too_long_is_refused():
    assert validate.name("session_id", "x" * 10_240) == "x" * 10_240
    with pytest.raises(UsageError, match="session_id has 70000 characters"):
        validate.name("session_id", "x" * 70_000)


@pytest.mark.parametrize("call", ["latest", "sessions", "verify", "tree", "timeline"])
def test_names_are_checked_wherever_they_are_given(quick, call):
    keyword = "agent_id" if call == "sessions" else "session_id"
    with pytest.raises(UsageError, match=keyword):
        getattr(quick, call)(**{keyword: 5})


@pytest.mark.parametrize(
    ("given", "paths"),
    [
        ({"m": [1]}, [("m",)]),
        ({"a.b": (1,)}, [("a", "b")]),
        ({("a.b", "c"): []}, [("a.b", "c")]),
        ({"": [1]}, [("",)]),
    ],
)
def test_paths_of_appends(given, paths):
    assert [path[1:] for path in validate.append(given)[0]] == paths
