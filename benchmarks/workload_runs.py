"""Workloads chosen by name, measured one after the other: what the runs on SQLite and on servers have in common."""

import argparse
import asyncio
import importlib
import importlib.util
import json
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure import settle
from benchmarks.subprocesses import ROOT

RESULTS = ROOT / "benchmarks" / "results"


def measure(chosen: list[str], workloads: Mapping[str, str], plan: Any) -> dict[str, Any]:
    """The figures by workload, what failed, and the seconds it all took. One that fails does not stop the others."""
    found: dict[str, Any] = {"failed": {}}
    began = time.perf_counter()
    for name in chosen:
        workload = importlib.import_module(f"benchmarks.workloads.{workloads[name]}")
        settle()
        started = time.perf_counter()
        print(f"{name:>8}  {workload.__doc__.splitlines()[0]}", flush=True)
        try:
            found[name] = asyncio.run(workload.run(plan))
        except Exception as error:
            traceback.print_exc()
            found["failed"][name] = f"{type(error).__name__}: {error}"
        print(f"{'':>8}  {time.perf_counter() - started:.1f} s", flush=True)
    found["seconds"] = round(time.perf_counter() - began, 1)
    return found


def write(
    results: dict[str, Any],
    directory: Path,
    stem: str,
    markdown: Callable[[dict[str, Any]], str],
    draw: Callable[[dict[str, Any], Path], None],
) -> None:
    """The figures as JSON and as a page; the plot where matplotlib is there and growth was measured."""
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results, indent=1, ensure_ascii=False)
    (directory / f"{stem}.json").write_text(text + "\n", encoding="utf-8")
    (directory / f"{stem}.md").write_text(markdown(results), encoding="utf-8")
    if "A" in results and importlib.util.find_spec("matplotlib"):
        draw(results["A"], directory / f"{stem}.png")


def arguments(module: str, description: str, workloads: Mapping[str, str]) -> argparse.ArgumentParser:
    """The options that both have."""

    def names(text: str) -> list[str]:
        chosen = [name.strip() for name in text.split(",")]
        for name in chosen:
            if name not in workloads:
                raise argparse.ArgumentTypeError(f"no workload is called {name!r}; there are {', '.join(workloads)}")
        return chosen

    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--quick", action="store_true", help="small sizes: does everything still run?")
    parser.add_argument("--only", type=names, metavar="A,B,…", help=f"some of {','.join(workloads)}")
    parser.add_argument("--ours", action="store_true", help="holdfast alone; needs none of the peers' packages")
    parser.add_argument("--results", type=Path, metavar="DIR", help="where the results go")
    parser.add_argument("--stores", type=Path, metavar="DIR", help="where the databases go meanwhile; not on tmpfs")
    return parser


def results_directory(given: argparse.Namespace, chosen: list[str], workloads: Mapping[str, str]) -> Path:
    """Only a whole run replaces the results that are quoted."""
    whole = not given.quick and not given.ours and chosen == list(workloads)
    return given.results or (RESULTS if whole else RESULTS / "partial")
