"""Every benchmark, and one page of what they found: `python -m benchmarks.all [--only runs,differences] [--page]`."""

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks import readme_figures, results_page
from benchmarks.results_page import BENCHMARKS
from benchmarks.subprocesses import ROOT

PAGE = ROOT / "benchmarks" / "RESULTS.md"
README = ROOT / "README.md"
COMPARISON = ROOT / "docs" / "comparison.md"


def main() -> None:
    names = ",".join(one.name for one in BENCHMARKS if one.command)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.all", description="Run every benchmark, one after the other."
    )
    parser.add_argument("--only", metavar="A,B,…", default=names, help=f"some of {names}")
    parser.add_argument(
        "--page",
        action="store_true",
        help="run none: only write the pages with figures from the last results",
    )
    given = parser.parse_args()
    failed = [] if given.page else [name for name in given.only.split(",") if not _ran(name)]
    PAGE.write_text(results_page.markdown(PAGE.parent / "results"), "utf-8")
    results = PAGE.parent / "results"
    README.write_text(readme_figures.update_readme(README.read_text("utf-8"), results), "utf-8")
    COMPARISON.write_text(readme_figures.update_comparison(COMPARISON.read_text("utf-8"), results), "utf-8")
    print(f"written: {PAGE.relative_to(Path.cwd()) if PAGE.is_relative_to(Path.cwd()) else PAGE}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _ran(name: str) -> bool:
    """In a process of its own: what one imports and leaves behind must not slow the next."""
    chosen = next((one for one in BENCHMARKS if one.name == name), None)
    if chosen is None:
        sys.exit(f"no benchmark is called {name!r}; there are {', '.join(one.name for one in BENCHMARKS)}")
    if not chosen.command:
        sys.exit(f"`make {chosen.target}` runs {name}, in environments of its own; then write the page with --page")
    print(f"\n== {chosen.title}: python -m {' '.join(chosen.command)}", flush=True)
    return subprocess.run([sys.executable, "-m", *chosen.command], cwd=ROOT, check=False).returncode == 0


if __name__ == "__main__":
    main()
