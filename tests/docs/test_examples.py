"""Every example runs as its docstring says, in a directory of its own, with warnings as errors."""

import ast
import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from snippets import ROOT, snippets

EXAMPLES = Path(__file__).parents[2] / "examples"

# What each prints, run by run.
EXPECTED = {
    "workers": [["draft by bob", "after ann: interrupted", "after bob: completed", "progress 4/4"]],
    "plain_loop": [
        ["beginning", "wrote blade", "run me again"],
        ["after 3", "finished: 6"],
        ["after 6", "finished: 6"],
    ],
    "declared_appends": [["append=", "the same 150 messages"]],
    "replay": [
        [
            "3 recorded; ended",
            "recorded step search",
            "live     step choose: another result",
            "~ result: 'plane' → 'train'",
            "live     effect book",
            "1 recorded, 2 live; ended",
        ]
    ],
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
    "coding_agent": [
        [
            "Done. missing: index.html",
            "{'style.css': 'h1 { color: red }'}",
            "back at 'check', step 6",
            "{'index.html': '<h1>Kelp</h1>', 'style.css': 'h1 { color: green }'}",
            "Done. all is well",
            "{'about.html': '<h1>About kelp</h1>', 'index.html': '<h1>Kelp</h1>', 'style.css': 'h1 { color: green }'}",
        ]
    ],
    "sealed_store": [
        [
            "Ada Lovelace | <redacted str>",
            "in the file: []",
            "without a key: refused",
            "with another key: refused",
            "a plain store in its place: refused",
            "the old key: refused",
            "the new key: Ada Lovelace",
        ]
    ]
    * 2,
    "own_types": [["Decimal('199.90')", "refused, with nothing stored: execution_state.tools.db"]],
}


def test_every_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {
        *EXPECTED,
        "batch",
        "expenses",
    }  # test_tutorial.py has the last
    tested_below = {"delegation", "handoff", "invoice", "langgraph", "topics"}
    tested_beside_their_frameworks = {"frameworks"}  # tests/frameworks/test_examples.py
    folders = {path.parent.name for path in EXAMPLES.glob("*/*.py")}
    assert folders <= tested_below | tested_beside_their_frameworks
    assert tested_below <= folders


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_example(name, tmp_path):
    for expected in EXPECTED[name]:
        result = subprocess.run(
            [sys.executable, "-W", "error", EXAMPLES / f"{name}.py"],
            capture_output=True,
            text=True,
            encoding="utf-8",
            cwd=tmp_path,
            timeout=240,
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


def _start(name, where, *arguments):
    return subprocess.Popen(
        [sys.executable, "-W", "error", EXAMPLES / name, *arguments], cwd=where,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, encoding="utf-8",
    )  # fmt: skip


def _lines(*processes):
    """What they printed, sorted; none of them complained."""
    lines = []
    for process in processes:
        said, complained = process.communicate(timeout=240)
        assert (process.returncode, complained) == (0, ""), complained
        lines += said.splitlines()
    return sorted(lines)


@pytest.mark.slow
def test_the_writer_and_two_reviewers_at_once(tmp_path):
    topics = ("blade", "roots", "stem")
    wrote = _lines(_start("handoff/writer.py", tmp_path))
    assert wrote == sorted(f"wrote about the {topic}, handed to the reviewer" for topic in topics)
    for verdict, then in (("say something about the sea", "rewrote"), ("approved", "")):
        said = _lines(*(_start("handoff/reviewer.py", tmp_path) for _ in range(2)))
        reviewed = [line for line in said if line.startswith("reviewed")]
        assert reviewed == [f"reviewed the {topic}: {verdict}" for topic in topics]  # each by exactly one
        again = _lines(_start("handoff/writer.py", tmp_path))
        assert again == ([f"{then} the {topic}, handed to the reviewer again" for topic in topics] if then else [])


@pytest.mark.slow
def test_the_boss_and_two_researchers_at_once(tmp_path):
    answer = [
        "blade: it holds fast by its blade",
        "roots: it holds fast by its roots",
        "stem: stipe is the word",
    ]
    researchers = [_start("delegation/researcher.py", tmp_path, "20") for _ in range(2)]
    assert _lines(_start("delegation/boss.py", tmp_path)) == answer
    assert _lines(*researchers) == ["researched blade", "researched roots"]  # each by exactly one
    assert _lines(_start("delegation/boss.py", tmp_path)) == answer


@pytest.mark.slow
def test_the_two_processes_of_the_page_work_together(tmp_path):
    boss, researcher, *_ = snippets(ROOT / "docs" / "handing-off.md", "python")
    codes = [boss.code.replace("timeout=5", "timeout=200"), researcher.code.replace("+ 2\n", "+ 200\n")]
    assert codes != [boss.code, researcher.code]
    asks, answers = (
        subprocess.Popen([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        for code in codes
    )
    said, _ = asks.communicate(timeout=240)
    answers.kill()
    answers.communicate()
    assert said.splitlines() == ["roots all about roots", "blade all about blade", "0 missing"]


@pytest.mark.slow
def test_two_reviewers_of_a_topic_at_once(tmp_path):
    answer = ["blade: 8 words", "roots: 8 words", "stem: 8 words"]
    reviewers = [_start("topics/reviewer.py", tmp_path, f"reviewer-{number}", "20") for number in range(2)]
    assert _lines(_start("topics/writer.py", tmp_path)) == answer
    assert _lines(*reviewers) == ["reviewed blade", "reviewed roots", "reviewed stem"]  # each by exactly one
    assert _lines(_start("topics/writer.py", tmp_path)) == answer
    assert _lines(_start("topics/reviewer.py", tmp_path, "reviewer-3", "0")) == []


@pytest.mark.slow
def test_the_two_processes_of_the_page_about_topics_work_together(tmp_path):
    writes, reviews, *_ = snippets(ROOT / "docs" / "topics.md", "python")

    def said(code):
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True,
            timeout=240,
        ).stdout.splitlines()  # fmt: skip

    assert said(writes.code) == ["2 drafts published"]
    assert said(reviews.code) == ["['roots', 'blade']"]
    assert said(writes.code) == ["2 drafts published"]
    assert said(reviews.code) == ["['roots', 'blade']"]


@pytest.mark.parametrize(
    "name",
    [
        "handoff/writer", "handoff/reviewer", "delegation/boss", "delegation/researcher", "topics/writer",
        "topics/reviewer",
    ],
)  # fmt: skip
def test_each_half_says_how_to_run_it(name):
    docstring = ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text()))
    assert f"python examples/{name}.py" in docstring


def _run(name, where, *arguments):
    return subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name, *arguments], cwd=where, capture_output=True, text=True,
        encoding="utf-8", timeout=800, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_a_batch_that_is_killed_ten_times_sends_each_letter_once(tmp_path):
    done = _run("batch.py", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "killed 10 times: 100 letters to 100 customers\n"
    assert "python examples/batch.py" in (ast.get_docstring(ast.parse((EXAMPLES / "batch.py").read_text())) or "")


@pytest.mark.slow
def test_a_langgraph_agent_that_dies_in_a_tool_goes_on(tmp_path):
    killed = _run("langgraph/crash_in_a_tool.py", tmp_path)
    assert (killed.returncode, killed.stdout.splitlines()) == (-9, ["beginning", "running search", "running book"])
    done = _run("langgraph/crash_in_a_tool.py", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["going on at use_tool", "running book", "running confirm", "All is booked."]


@pytest.mark.slow
def test_a_langgraph_agent_is_answered_after_a_restart(tmp_path):
    asked = _run("langgraph/approve_after_restart.py", tmp_path)
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout.splitlines() == ["writing the mail", "waiting for an answer: send this?"]
    answered = _run("langgraph/approve_after_restart.py", tmp_path, "yes")
    assert answered.stdout.splitlines() == ["waiting for an answer: send this?", "sent"]
    assert _run("langgraph/approve_after_restart.py", tmp_path).returncode == 0


@pytest.mark.slow
def test_a_crash_in_a_fan_out_runs_one_branch_again(tmp_path):
    killed = _run("langgraph/crash_in_a_fan_out.py", tmp_path)
    assert (killed.returncode, killed.stdout.splitlines()[0]) == (-9, "0 branches are done")
    assert sorted(killed.stdout.splitlines()[1:-1]) == [
        f"summarising the {name}" for name in ("blade", "float", "stem")
    ]
    done = _run("langgraph/crash_in_a_fan_out.py", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "3 branches are done", "summarising the roots", "blade: holds, float: holds, roots: holds, stem: holds",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_langgraph_thread_is_forked_and_compared(tmp_path):
    done = _run("langgraph/fork_and_compare.py", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:2] == ["searching, which is slow and costs money", "≠ budget: 150 | 300"]  # searched once
    assert lines[-2:] == ["≠ choice: train | plane", "6 checkpoints in one tree, 1 fork; it verifies: True"]


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("langgraph_runtime_inmem") is None, reason="langgraph-cli[inmem] is not installed"
)
def test_the_issue_about_langgraph_dev_is_reproduced_and_gone(tmp_path):
    done = _run("langgraph/issue_5790_reproduced.py", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines[1].startswith("the server does not start: Heads up!")
    assert [line for line in lines if "after the restart" in line] == [
        "after the restart: no such thread",
        "after the restart: {'value': 2, 'parts': [10, 20, 30]}, it asks 'how much?'",
    ]
    assert "answered with 40: {'value': 40, 'parts': [10, 20, 30]}" in lines
    assert "The chain of parents: input -1 → loop 0 → loop 1 → loop 2 → loop 3" in lines
    assert "Every checkpoint verified: True" in lines
    look = shlex.split(lines[-1].partition("holdfast ")[2])
    shown = subprocess.run(
        [sys.executable, "-m", "holdfast", *look], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=True
    )
    assert "input -1" in shown.stdout


@pytest.mark.parametrize("path", sorted((EXAMPLES / "langgraph").glob("*.py")), ids=lambda path: path.stem)
def test_each_langgraph_example_says_how_to_run_it(path):
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert f"python examples/langgraph/{path.name}" in docstring
    assert f"langgraph/{path.name}" in Path(__file__).read_text()  # and is run above


@pytest.mark.slow
def test_the_invoice_is_approved_paid_once_and_refunded(tmp_path):
    for _ in range(2):
        waiting = _run("invoice/agent.py", tmp_path)
        assert (waiting.returncode, waiting.stderr) == (6, "")
        assert "'pay' of session 'INV-7' waits for approval by 'finance'" in waiting.stdout
    assert "modified, as {'to': 'bob', 'amount': 450}" in _run("invoice/finance.py", tmp_path, "450").stdout
    killed = _run("invoice/agent.py", tmp_path)
    assert (killed.returncode, killed.stdout) == (9, "the bank has P1: 450 to bob\n")
    for _ in range(2):
        paid = _run("invoice/agent.py", tmp_path).stdout
        assert paid == 'The invoice is paid: P1 (it was approved with other arguments: {"amount": 450})\n'
    assert _run("invoice/agent.py", tmp_path, "it is broken: get the money back").returncode == 6
    assert "refund {'payment': 'P1'}: approved" in _run("invoice/finance.py", tmp_path).stdout
    assert _run("invoice/agent.py", tmp_path).stdout == "Done: P1 is refunded.\n"
    paid, refunded = (tmp_path / "bank.txt").read_text().splitlines()
    assert paid.startswith("P1 bob 450")
    assert refunded.startswith("refund of P1")


@pytest.mark.slow
def test_an_invoice_that_is_rejected_is_not_paid(tmp_path):
    assert _run("invoice/agent.py", tmp_path).returncode == 6
    assert ": rejected" in _run("invoice/finance.py", tmp_path, "no").stdout
    assert "we don't know them" in _run("invoice/agent.py", tmp_path).stdout
    assert not (tmp_path / "bank.txt").exists()


@pytest.mark.parametrize("name", ["invoice/agent", "invoice/finance"])
def test_each_half_of_the_invoice_says_how_to_run_it(name):
    docstring = ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text()))
    assert f"python examples/{name}.py" in docstring
