"""Every example runs as its docstring says, in a directory of its own, with warnings as errors."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

# What each prints, run by run.
EXPECTED = {
    "plain_loop": [
        ["beginning", "wrote blade", "run me again"],
        ["after 3", "finished: 6"],
        ["after 6", "finished: 6"],
    ],
    "declared_appends": [["append=", "the same 150 messages"]],
    "fork_and_compare": [["trip-by-air", "plane", "they part after step 1, 'search'"]],
    "async_agent": [["250 durable saves", "50 conversations, of 5 to 5"], ["50 conversations, of 10 to 10"]],
    "migrate_state": [
        [
            "user-8 would not resume: migration_failed",
            "version 1 is restored as version 2:",
            "{'role': 'user', 'text': 'hello'}",
            "stored: [2, 1]",
            "refused: session 'user-7' stands at",
        ]
    ]
    * 2,
    "own_types": [["Decimal('199.90')", "refused, with nothing stored: execution_state.tools.db"]],
}


def test_every_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_example(name, tmp_path):
    for expected in EXPECTED[name]:
        result = subprocess.run(
            [sys.executable, "-W", "error", EXAMPLES / f"{name}.py"],
            capture_output=True,
            text=True,
            encoding="utf-8",
            cwd=tmp_path,
            timeout=60,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        assert result.stderr == ""
        for words in expected:
            assert words in result.stdout


@pytest.mark.parametrize("name", EXPECTED)
def test_example_says_how_to_run_it(name):
    docstring = ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text()))
    assert docstring is not None
    assert f"python examples/{name}.py" in docstring
