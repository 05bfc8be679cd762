"""The environment has the frameworks that it is meant to have, in versions that our extras allow."""

from __future__ import annotations

from importlib import metadata

import pytest
from framework_environments import DISTRIBUTIONS, EXPECTED, GRAPHS, require
from packaging.requirements import Requirement


@pytest.mark.parametrize("framework", [name for name in EXPECTED if name not in GRAPHS])
def test_the_framework_is_installed_in_a_version_that_its_extra_allows(framework: str):
    require(framework)
    extra = framework.replace("_", "-")
    wanted = [Requirement(one) for one in metadata.requires("holdfast") or []]
    bounds = {one.name: one.specifier for one in wanted if one.marker and one.marker.evaluate({"extra": extra})}
    assert DISTRIBUTIONS[framework] in bounds
    for name, specifier in bounds.items():
        assert metadata.version(name) in specifier


def test_the_extra_all_brings_no_framework():
    wanted = [Requirement(one) for one in metadata.requires("holdfast") or []]
    everything = {one.name for one in wanted if one.marker and one.marker.evaluate({"extra": "all"})}
    extras = {extra for one in wanted if one.name == "holdfast" for extra in one.extras}
    assert not everything & set(DISTRIBUTIONS.values())
    assert not {name.replace("_", "-") for name in DISTRIBUTIONS} & extras
