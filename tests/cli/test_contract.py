"""`holdfast contract check`: a program's contracts beside those that are in use."""

from __future__ import annotations

import json
import sys

import pytest

from holdfast.coordination import contract as contracts

PROGRAM = """
import holdfast

holdfast.contract("draft", {version}, {{"type": "object", "properties": {properties}, "required": {required}}})
"""
TEXT, NUMBER = {"type": "string"}, {"type": "integer"}


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Write a program that declares the contract, in place of the one before; return what checks it."""
    monkeypatch.chdir(tmp_path)

    def write(version: int, properties: dict, required: list[str]) -> None:
        monkeypatch.setattr(contracts.DECLARED, "_declared", {})
        sys.modules.pop("app_contracts", None)
        text = PROGRAM.format(version=version, properties=properties, required=required)
        (tmp_path / "app_contracts.py").write_text(text)
        for cached in tmp_path.glob("__pycache__/app_contracts*"):
            cached.unlink()

    yield write
    sys.modules.pop("app_contracts", None)


CHECK = ("contract", "check", "--import", "app_contracts")


def test_a_new_version_that_can_t_read_an_old_one_fails_the_check(run, program):
    program(1, {"text": TEXT}, ["text"])
    assert run(*CHECK, "--update").exit_code == 0
    program(2, {"text": TEXT, "title": TEXT}, ["text", "title"])
    result = run(*CHECK, "--json")
    assert result.exit_code == 1
    [problem] = json.loads(result.stdout)["problems"]
    assert problem["contract"] == "draft@2"
    assert "{'text': ''} is sent and refused" in problem["message"]
    assert run(*CHECK, "--mode", "forward").exit_code == 0


def test_a_version_that_is_locked_does_not_change(run, program):
    program(1, {"text": TEXT}, [])
    run(*CHECK, "--update")
    program(1, {"text": NUMBER}, [])
    result = run(*CHECK)
    assert result.exit_code == 1
    assert "declare version 2" in result.stdout


def test_the_lock_file_grows_only_if_nothing_breaks(run, program, tmp_path):
    program(1, {"text": TEXT}, [])
    run(*CHECK, "--update")
    before = (tmp_path / "contracts.lock").read_text()
    program(2, {"text": NUMBER}, [])
    assert run(*CHECK, "--update").exit_code == 1
    assert (tmp_path / "contracts.lock").read_text() == before
    program(2, {"text": TEXT, "title": TEXT}, [])
    assert run(*CHECK, "--update").exit_code == 0
    assert set(json.loads((tmp_path / "contracts.lock").read_text())) == {"draft@1", "draft@2"}


DEEP = "[" * 100_000 + "]" * 100_000
REMOTE = '{"draft@1": {"$ref": "https://x.example"}}'


@pytest.mark.parametrize("lock", ["{", "[]", '{"draft": {}}', REMOTE, DEEP], ids=range(5))
def test_a_lock_file_that_is_damaged_is_refused(run, program, tmp_path, lock):
    program(1, {"text": TEXT}, [])
    (tmp_path / "contracts.lock").write_text(lock)
    assert run(*CHECK).exit_code == 2


def test_a_program_without_contracts_and_a_module_that_is_not_there(run, program, tmp_path):
    program(1, {}, [])
    (tmp_path / "app_contracts.py").write_text("")
    assert "declares no contract" in run(*CHECK).stderr
    assert run("contract", "check", "--import", "not_there").exit_code == 2
