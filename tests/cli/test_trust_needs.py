"""What a configuration may decide without trust: the decision alone, over made-up directories."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.config_file import KNOWN, LIMITS, TAKING_IN, ConfigFile
from holdfast.cli.directory_config import _named_store
from holdfast.cli.trust_needs import WORKSPACE_RULES, ConfigSource, Facts, NeedScope, find_wants
from holdfast.workspace.limits import WorkspaceLimits

HERE = Path("/srv/ann/clone")
FACTS = Facts(directory=HERE, own_ids=frozenset({1000, 0}))
DEFAULTS = WorkspaceLimits()
LOOSER_WHEN_SMALLER = {"min_free_bytes"}
names = st.sampled_from(["a", "b", ".holdfast", "store.db", "..", ".", "clone", "clone2"])


def settings_of(wants) -> list[str]:
    return [want.setting for want in wants]


def test_every_setting_has_a_rule():
    """A new setting must be classified: `store` by its place, `keys` always, those of `[workspace]` by their rules."""
    assert KNOWN == ("store", "keys", "workspace")
    assert set(WORKSPACE_RULES) == {*TAKING_IN, *LIMITS}


def test_a_setting_without_a_rule_needs_trust():
    assert settings_of(find_wants({"run_on_resume": "rm -rf ~"}, FACTS)) == ["workspace.run_on_resume"]


def test_nothing_said_is_nothing_wanted():
    assert find_wants({}, FACTS) == ()


@pytest.mark.parametrize(
    ("name", "value", "needs_trust"),
    [
        ("include_git", True, True),
        ("include_git", False, False),
        ("gitignore", False, True),
        ("gitignore", True, False),
        ("default_excludes", False, True),
        ("default_excludes", True, False),
        ("secrets", "keep", True),
        ("secrets", "skip", False),
        ("secrets", "refuse", False),
    ],
)
def test_rules_that_take_in_more_need_trust(name, value, needs_trust):
    assert settings_of(find_wants({name: value}, FACTS)) == ([f"workspace.{name}"] if needs_trust else [])


@given(st.sampled_from(sorted(LIMITS)), st.integers(-(2**70), 2**70))
def test_a_limit_needs_trust_exactly_if_it_allows_more_than_the_default(name, value):
    default = getattr(DEFAULTS, name)
    loosened = value < default if name in LOOSER_WHEN_SMALLER else value > default
    assert bool(find_wants({name: value}, FACTS)) == loosened


@pytest.mark.parametrize(
    "url",
    ["redis://h", "postgresql://h/d", "rediss+cluster://h", "memory://", "s3://bucket", "x://", "sqlite://h/x.db"],
)
def test_what_is_no_path_needs_trust(url):
    file = ConfigFile(HERE / "holdfast.toml", {"store": url}, b"")
    store, path = _named_store(file, HERE)
    assert (store, path) == (url, None)
    [want] = find_wants({}, replace(FACTS, url=store))
    assert (want.scope, want.value) == (NeedScope.STORE, url)


@given(st.lists(names, min_size=1, max_size=6), st.sampled_from(["{}", "sqlite:///{}", "file://{root}/{}"]))
def test_a_path_needs_trust_exactly_if_it_leads_out(parts, form):
    text = form.format("/".join(parts), root=HERE)
    _, path = _named_store(ConfigFile(HERE / "holdfast.toml", {"store": text}, b""), HERE)
    real = Path(os.path.normpath(path))
    is_inside = real == HERE or HERE in real.parents
    assert bool(find_wants({}, replace(FACTS, places=(real,)))) == (not is_inside)


def test_a_key_file_needs_trust_wherever_it_is():
    for place in (HERE / "keys.toml", Path("/srv/ann/keys.toml")):
        [want] = find_wants({}, replace(FACTS, keys=place))
        assert (want.scope, want.setting, want.value) == (NeedScope.KEYS, "keys", str(place))


def test_a_sibling_whose_name_begins_the_same_is_outside():
    assert find_wants({}, replace(FACTS, places=(Path("/srv/ann/clone2/x.db"),)))


@given(st.frozensets(st.integers(0, 3000), max_size=2))
def test_files_of_other_users_need_trust(owners):
    facts = replace(FACTS, files=(ConfigSource("holdfast.toml", HERE / "holdfast.toml", owners),))
    assert len(find_wants({}, facts)) == len(owners - {1000, 0})
    assert find_wants({}, replace(facts, own_ids=None)) == ()


def test_a_link_out_of_the_directory_needs_trust():
    file = ConfigSource("holdfast.toml", Path("/srv/ann/other.toml"), frozenset({1000}))
    assert [want.scope for want in find_wants({}, replace(FACTS, files=(file,)))] == [NeedScope.FILE]
    found = ConfigSource(".holdfast", Path("/opt"), frozenset({1000}))
    facts = replace(FACTS, found=found, found_places=(Path("/opt"), Path("/opt/store.db")))
    assert [(want.scope, want.value) for want in find_wants({}, facts)] == [(NeedScope.FOUND, "/opt")]
