"""The names in `tools=`: one that the agent does not have is refused, where its tools can be known."""

from __future__ import annotations

import warnings

import pytest

from holdfast import Effect, UsageError
from holdfast.adapters.base.known_tools import KnownTools, check_declared
from holdfast.errors import HoldfastWarning
from holdfast.model.tool_effect import declared_effects


def test_names_that_the_agent_has_pass():
    check_declared(declared_effects({"pay": "irreversible"}), KnownTools({"pay", "search"}))


def test_a_misspelt_name_is_refused_with_the_likely_one_and_all_others():
    declared = declared_effects({"pya": "irreversible", "search": "read"})
    with pytest.raises(UsageError, match=r"'pya'.*Did you mean 'pay'\? It has 'archive', 'pay', 'search'\."):
        check_declared(declared, KnownTools({"pay", "search", "archive"}))


def test_a_name_that_resembles_none_is_refused_without_a_guess():
    with pytest.raises(UsageError, match=r"'pay', and the agent has no such tool\. It has none"):
        check_declared(declared_effects({"pay": "irreversible"}), KnownTools())
    with pytest.raises(UsageError, match=r"'tool 19' and 5 more") as refused:
        check_declared(declared_effects({"pay": "read"}), KnownTools({f"tool {one:02}" for one in range(25)}))
    assert "Did you mean" not in str(refused.value)


def test_a_declared_tool_is_no_guess_for_another_one():
    with pytest.raises(UsageError) as refused:
        check_declared(declared_effects({"search": "read", "searches": "read"}), KnownTools({"search"}))
    assert "Did you mean" not in str(refused.value)


def test_where_tools_may_appear_later_only_a_likely_mistake_is_warned_of():
    known = KnownTools({"pay", "search"}, is_complete=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_declared(declared_effects({"archive": "irreversible", "pay": "irreversible"}), known)
    with pytest.warns(HoldfastWarning, match=r"'serch'.*Did you mean 'search'\? 'search' has no declaration"):
        check_declared(declared_effects({"serch": "read"}), known)


def test_a_tool_that_runs_an_agent_may_bring_further_ones():
    check_declared({"ask": Effect("agent"), "archive": Effect("read")}, KnownTools({"ask"}))
