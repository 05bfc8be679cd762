"""The benchmarks run: our side of the small ones, in seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )


@pytest.mark.slow
def test_the_quick_benchmarks_of_our_own_side_run(tmp_path: Path):
    only = "B,cold,fork,import"
    done = run("run", "--quick", "--ours", "--only", only, "--results", tmp_path)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    assert {"B", "cold", "fork", "import"} <= results.keys()
    assert results["cold"].keys() == {"undeclared", "declared", "undeclared_beside", "declared_beside", "floor"}
    assert "the least of a save" in (tmp_path / "results.md").read_text("utf-8")


@pytest.mark.slow
def test_the_benchmarks_of_runs_run(tmp_path: Path):
    for module, arguments in (("runs", ("--ours", "--steps", "5", "--rounds", "1")), ("effects", ("--ours",))):
        done = run(module, *arguments, "--stores", tmp_path, "--results", tmp_path)
        assert done.returncode == 0, done.stderr
    assert "steps per second" in (tmp_path / "runs.md").read_text("utf-8")
    counts = json.loads((tmp_path / "effects.json").read_text())["counts"]
    assert [of["holdfast"]["payments"] for of in counts.values()] == [1] * 12


@pytest.mark.slow
def test_the_benchmark_of_commands_runs(tmp_path: Path):
    small = ("--sessions", "51", "--checkpoints", "10", "--rounds", "1")
    done = run("large_store", *small, "--results", tmp_path)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "cli.json").read_text())
    assert {"--help", "sessions", "timeline", "du"} <= results["commands"].keys()
    assert "not worth quoting" in (tmp_path / "cli.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.servers)])
def test_work_grows_no_faster_than_it_may(tmp_path: Path, store: str):
    done = run("growth", "--quick", "--only", store, "--results", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    growth = json.loads((tmp_path / "growth.json").read_text())["growth"]
    [ways] = growth.values()
    by_operation = {one["operation"]: one["counts"] for one in ways["more sessions"]}
    assert by_operation.keys() >= {"save", "latest()", "find(ending)", "verify"}
    assert all(count > 1 for counts in by_operation["verify"] for count in counts.values())  # each kind is counted


@pytest.mark.slow
def test_the_benchmark_of_many_writers_runs(tmp_path: Path):
    done = run("contention", "--saves", "2", "--writers", "1,4", "--only", "memory;sqlite", "--results", tmp_path)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "contention.json").read_text())
    assert results["stores"]["sqlite"]["processes"]["4"]["refused"] == 0
    assert results["stores"].keys() == {"memory", "sqlite"}
    assert "not worth quoting" in (tmp_path / "contention.md").read_text()


@pytest.mark.slow
def test_the_benchmark_of_workers_runs(tmp_path: Path):
    done = run("work", "--ours", "--runs", "3", "--rounds", "1", "--only", "sqlite", "--results", tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "work.json").read_text())["results"]["sqlite"]
    assert found["holdfast"].keys() == {"start", "runs", "cpu", "recovery"}
    page = (tmp_path / "work.md").read_text("utf-8")
    assert "not worth quoting" in page
    assert "sqlite: runs per second, holdfast over DBOS, queued" in page


@pytest.mark.slow
def test_the_benchmark_of_topics_runs(tmp_path: Path):
    small = ("--rounds", "1", "--messages", "5", "--records", "64", "--only", "sqlite")
    done = run("coordination", *small, "--results", tmp_path)
    assert done.returncode == 0, done.stderr
    [found] = json.loads((tmp_path / "coordination.json").read_text())["stores"].values()
    assert found["commits per message"]["batch 16"] <= found["commits per message"]["batch 1"]


@pytest.mark.slow
def test_the_benchmark_of_the_web_server_runs(tmp_path: Path):
    pytest.importorskip("starlette")
    run("ui_server", "--checkpoints", "400", "--sessions", "60", "--results", tmp_path)  # it may miss its goals here
    assert len(json.loads((tmp_path / "ui_server.json").read_text())["requests"]) == 15
    page = (tmp_path / "ui_server.md").read_text("utf-8")
    assert "not worth quoting" in page
    assert "open a 10 MB state" in page


@pytest.mark.slow
@pytest.mark.servers
def test_the_benchmark_of_fast_paths_runs(tmp_path: Path):
    done = run("fast_paths", "--rounds", "1", "--saves", "2", "--results", tmp_path)
    if done.returncode and "ServerUnavailable" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    paths = json.loads((tmp_path / "fast_paths.json").read_text())["paths"]
    assert paths.keys() == {"simple_commits", "redis", "history"}
    assert all(one["plain_ms"] > 0 for operations in paths.values() for one in operations.values())


@pytest.mark.slow
@pytest.mark.servers
def test_the_quick_benchmarks_on_servers_run_for_our_own_side(tmp_path: Path):
    done = run("servers", "--quick", "--ours", "--only", "A,B,R,S", "--results", tmp_path)
    if done.returncode and "ServerUnavailable" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "servers.json").read_text())
    assert results["B"]["32"]["contenders"].keys() == {"holdfast_redis", "holdfast_postgres", "raw_set", "raw_insert"}
    without_loop = {"holdfast_postgres_sync", "raw_insert_sync"}
    assert results["B"]["1"]["contenders"].keys() == results["B"]["32"]["contenders"].keys() | without_loop
    assert "over a raw SET" in (tmp_path / "servers.md").read_text()


def test_the_page_of_all_results_is_that_of_the_results_that_are_there():
    from benchmarks import results_page

    page = ROOT / "benchmarks" / "RESULTS.md"
    assert results_page.markdown(page.parent / "results") == page.read_text("utf-8"), "python -m benchmarks.all --page"


def test_the_figures_of_the_readme_are_those_of_the_results_that_are_there():
    from benchmarks import readme_figures

    text = (ROOT / "README.md").read_text("utf-8")
    results = ROOT / "benchmarks" / "results"
    assert readme_figures.update_readme(text, results) == text, "python -m benchmarks.all --page"
    assert readme_figures.update_readme(text.replace(" times ", " / "), results) == text
    assert text.count("Measured on Python 3.") == 1


def test_the_figures_of_the_comparison_are_those_of_the_results_that_are_there():
    from benchmarks import readme_figures

    text = (ROOT / "docs" / "comparison.md").read_text("utf-8")
    results = ROOT / "benchmarks" / "results"
    assert readme_figures.update_comparison(text, results) == text, "python -m benchmarks.all --page"
    assert readme_figures.update_comparison(text.replace(" · ", " / "), results) == text
