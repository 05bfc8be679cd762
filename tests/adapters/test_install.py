"""The check that a framework is installed, in a version that was tested."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import metadata

import pytest
from framework_environments import DISTRIBUTIONS, GRAPHS
from packaging.requirements import Requirement
from paths import ROOT

from holdfast.adapters.base import install
from holdfast.errors import HoldfastWarning

FRAMEWORKS = sorted(DISTRIBUTIONS.keys() - GRAPHS)
ADAPTERS = ROOT / "src" / "holdfast" / "adapters"


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_without_the_framework_the_error_says_what_to_install(framework, tmp_path):
    hidden = {"openai_agents": "agents", "google_adk": "google.adk", "claude_agent": "claude_agent_sdk"}
    hidden |= {"llama_index": "workflows", "autogen": "autogen_core"}
    name = hidden.get(framework, framework)
    program = f"""
import importlib.abc, sys
class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.startswith({name!r}):
            raise ModuleNotFoundError("No module named " + repr(name), name=name)
sys.meta_path.insert(0, Hide())
import holdfast.{framework}
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert f"pip install 'holdfast[{framework.replace('_', '-')}]'" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_adapter_warns_outside_the_bounds_of_its_extra(framework):
    call = next(
        node
        for node in ast.walk(ast.parse((ADAPTERS / framework / "resumable.py").read_text("utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "warn_if_untested"
    )
    distribution, at_least, below = map(ast.literal_eval, call.args)
    extra = framework.replace("_", "-")
    wanted = [Requirement(one) for one in metadata.requires("holdfast") or []]
    [specifier] = [
        one.specifier
        for one in wanted
        if one.name == distribution and one.marker and one.marker.evaluate({"extra": extra})
    ]
    assert {str(one) for one in specifier} == {f">={at_least}", f"<{below}"}


@pytest.mark.parametrize(("version", "is_tested"), [
    ("1.2.0", False), ("1.2.1", True), ("1.2.1.post1", True), ("1.10", True), ("1.99.dev1", True), ("2.0", False),
    ("2.0rc1", False),
])  # fmt: skip
def test_a_version_outside_the_bounds_is_named_with_them(monkeypatch, recwarn, version, is_tested):
    monkeypatch.setattr(metadata, "version", lambda _: version)
    install.warn_if_untested("some-framework", "1.2.1", "2")
    told = [str(one.message) for one in recwarn if one.category is HoldfastWarning]
    assert bool(told) is not is_tested
    assert is_tested or f"some-framework {version} is installed" in told[0]
    assert is_tested or "1.2.1 up to, not including, 2" in told[0]
