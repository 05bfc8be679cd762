"""The page of `holdfast ui` in Chromium: `python -m benchmarks.ui_page [--checkpoints 100000] [--seconds 600]`.

One tree of 100,000 checkpoints with forks, 10,000 sessions, and a state of 10 MB. The server is a
process of its own. Times are taken within the page, from the navigation or the key to the drawn
row; memory is that of the page's heap after a collection of garbage.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import environment, pages
from benchmarks.goals import Goal, Verdict
from benchmarks.subprocesses import ROOT
from benchmarks.tables import number, table
from holdfast import SyncClient

CHROMIUM = ("chromium-headless-shell", "chromium", "google-chrome")
TREE, LARGE = "tree", "large"
PER_SECOND = 50.0  # live saves
GOALS = {  # with their units
    "first rows of 10,000 sessions, s": (0.7, "s"),
    "first rows of the tree, the first time, s": (0.7, "s"),
    "first rows of the tree, s": (0.7, "s"),
    "jump to the last row, s": (0.15, "s"),
    "jump to the middle, s": (0.15, "s"),
    "work of a key press, ms": (16.0, "ms"),
    "10 MB state, s": (1.0, "s"),
    "heap after live saves / before": (1.2, "times"),
    "server RSS, MB": (150.0, "MB"),
}
# The work of a frame: what runs in the callbacks of requestAnimationFrame.
MEASURE_FRAMES = """
    window.work = 0;
    const request = window.requestAnimationFrame.bind(window);
    window.requestAnimationFrame = (callback) => request((at) => {
        const began = performance.now();
        callback(at);
        window.work += performance.now() - began;
    });
"""
ROWS_DRAWN = (
    "() => [...document.querySelectorAll('.row')].some((row) => row.innerText.trim().length > 3) && performance.now()"
)
PRESS = """async (key) => {
    const list = document.querySelector('.list');
    const before = performance.now();
    window.work = 0;
    list.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}));
    const handled = performance.now() - before;
    for (let frame = 0; frame < 600; frame += 1) {
        await new Promise((done) => requestAnimationFrame(done));
        const row = document.querySelector('.row.is-selected');
        if (row && !row.classList.contains('is-pending')) break;
    }
    return {seconds: (performance.now() - before) / 1000, work: handled + window.work};
}"""
SCROLL_TO_THE_MIDDLE = """async () => {
    const list = document.querySelector('.list');
    const before = performance.now();
    list.scrollTop = list.scrollHeight / 2;
    for (let frame = 0; frame < 600; frame += 1) {
        await new Promise((done) => requestAnimationFrame(done));
        const rows = [...document.querySelectorAll('.row')];
        const seen = rows.filter((row) => row.getBoundingClientRect().bottom > 0);
        const far = Number(rows.at(-1)?.id.split('-').at(-1)) > 1000;
        if (far && seen.length && seen.every((row) => !row.classList.contains('is-pending'))) break;
    }
    return (performance.now() - before) / 1000;
}"""


def build(path: Path, checkpoints: int, sessions: int) -> str:
    """Make the store, and return the id of the checkpoint with the large state."""
    with SyncClient.sqlite(path, durability="fast") as client:
        for number in range(sessions):
            client.save(
                agent_id=f"agent {number % 7}", session_id=f"session-{number:05}", execution_state={"n": number}
            )
        saved, session, forks = 0, TREE, 0
        while saved < checkpoints:
            made = client.save(
                agent_id="agent", session_id=session, step_name=f"step {saved % 9}", execution_state={"n": saved}
            )
            saved += 1
            session = TREE
            if saved % 2000 == 0:
                forks += 1
                client.fork(made, f"fork-{forks}")
                for number in range(20):
                    client.save(agent_id="agent", session_id=f"fork-{forks}", execution_state={"n": -number})
                saved += 21
        rows = [{"role": "user", "content": f"{number} " + "words " * 160, "n": number} for number in range(10_000)]
        return client.save(agent_id="agent", session_id=LARGE, execution_state={"messages": rows})


@contextlib.contextmanager
def serve(path: Path) -> Iterator[tuple[str, int]]:
    command = [sys.executable, "-m", "holdfast", "ui", str(path), "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().split()[0], process.pid
    finally:
        process.terminate()
        process.wait()


def resident_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1000


def save_steadily(path: Path, seconds: float, per_second: float, saved: list[int]) -> None:
    with SyncClient.sqlite(path, durability="fast") as client:
        began = time.monotonic()
        while (now := time.monotonic() - began) < seconds:
            client.save(agent_id="agent", session_id=TREE, step_name="live", execution_state={"n": saved[0]})
            saved[0] += 1
            time.sleep(max(0.0, saved[0] / per_second - now))


def measure(path: Path, large: str, seconds: float, chromium: str) -> dict[str, Any]:
    from playwright.sync_api import sync_playwright

    figures: dict[str, Any] = {}
    with serve(path) as (url, pid), sync_playwright() as driver:
        origin = url.partition("/?")[0]
        browser = driver.chromium.launch(executable_path=chromium)
        page = browser.new_page(viewport={"width": 1360, "height": 860})
        page.set_default_timeout(120_000)
        page.add_init_script(MEASURE_FRAMES)
        page.goto(url)
        page.wait_for_selector(".row")

        def first_rows(address: str, drawn: str = ROWS_DRAWN, rounds: int = 5) -> float:
            times = []
            for _ in range(rounds):
                page.goto(origin + address)
                times.append(page.wait_for_function(drawn, polling="raf").json_value() / 1000)
            return statistics.median(times)

        figures["first rows of 10,000 sessions, s"] = first_rows("/")
        figures["first rows of the tree, the first time, s"] = first_rows(f"/s/{TREE}", rounds=1)
        figures["first rows of the tree, s"] = first_rows(f"/s/{TREE}")
        page.wait_for_selector("aside h2")
        page.wait_for_timeout(3000)  # the rest of the tree is laid out aside, once
        jumps = []
        for _ in range(5):
            jumps.append(page.evaluate(PRESS, "End")["seconds"])
            page.evaluate(PRESS, "Home")
            page.reload()
            page.wait_for_selector("aside h2")
        figures["jump to the last row, s"] = statistics.median(jumps)
        page.wait_for_timeout(1000)
        figures["jump to the middle, s"] = page.evaluate(SCROLL_TO_THE_MIDDLE)
        page.evaluate(PRESS, "Home")
        presses = [page.evaluate(PRESS, "ArrowDown")["work"] for _ in range(100)]
        figures["work of a key press, ms"] = statistics.median(presses)
        figures["work of the slowest of 100 key presses, ms"] = max(presses)
        figures["elements in the document"] = page.evaluate("document.querySelectorAll('*').length")
        tree_drawn = "() => document.querySelectorAll('.node').length > 1 && performance.now()"
        figures["10 MB state, s"] = first_rows(f"/c/{large}", tree_drawn)

        page.goto(origin + f"/s/{TREE}")
        page.wait_for_selector("aside h2")
        saved = [0]
        heaps = [heap_megabytes(page)]
        writer = threading.Thread(target=save_steadily, args=(path, seconds, PER_SECOND, saved))
        writer.start()
        while writer.is_alive():
            page.wait_for_timeout(min(30_000, seconds * 100))
            heaps.append(heap_megabytes(page))
        writer.join()
        figures["live saves"] = saved[0]
        figures["live saves for, s"] = seconds
        figures["live saves a second"] = saved[0] / seconds
        figures["heap, MB"] = heaps
        figures["heap after live saves / before"] = heaps[-1] / heaps[1]
        figures["elements after live saves"] = page.evaluate("document.querySelectorAll('*').length")
        figures["server RSS, MB"] = resident_megabytes(pid)
        browser.close()
    return figures


def heap_megabytes(page: Any) -> float:
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used = session.send("Runtime.getHeapUsage")["usedSize"] / 1e6
    session.detach()
    return float(used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", type=int, default=100_000)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=600.0, help="of live saves, 50 a second")
    parser.add_argument("--store", type=Path, help="a store made before: keep it here")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as stores:
        results: dict[str, Any] = {"environment": environment.describe(Path(stores), ("holdfast", "playwright"))}
        path = given.store or Path(stores) / "page.db"
        known = path.with_suffix(".json")
        if not known.exists():
            known.write_text(json.dumps(build(path, given.checkpoints, given.sessions)))
        chromium = next(found for name in CHROMIUM if (found := shutil.which(name)))
        said = subprocess.run([chromium, "--version"], capture_output=True, text=True, check=False).stdout.split()
        results["chromium"] = next((word for word in said if word[0].isdigit()), "of unknown version")
        results |= {"checkpoints": given.checkpoints, "sessions": given.sessions}
        results["figures"] = measure(path, json.loads(known.read_text()), given.seconds, chromium)
    results["seconds"] = time.monotonic() - began
    given.results.mkdir(parents=True, exist_ok=True)
    (given.results / "ui_page.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    page = "\n".join(_page(results)) + "\n"
    (given.results / "ui_page.md").write_text(page, "utf-8")
    print(page)
    missed = [one.figure for one in verdicts(results) if not one.reached]
    if missed:
        sys.exit(f"goals missed: {', '.join(missed)}")


def verdicts(results: dict[str, Any]) -> list[Verdict]:
    def figure(name: str) -> Callable[[dict[str, Any]], float]:
        return lambda given: float(given["figures"][name])

    found = [
        Goal(name.removesuffix(f", {unit}"), "page", figure(name), limit, unit=unit)
        for name, (limit, unit) in GOALS.items()
    ]
    rate = figure("live saves a second")
    found.append(Goal("live saves a second", "page", rate, 0.95 * PER_SECOND, at_least=True, unit=""))
    return [one.judge(results) for one in found]


def command(_workload: str) -> str:
    return "python -m benchmarks.ui_page"


def _page(results: dict[str, Any]) -> Iterator[str]:
    figures = results["figures"]
    yield from pages.head(
        "The web page in Chromium",
        results,
        software=f"Chromium {results['chromium']}, SQLite {results['environment']['sqlite']}",
        not_worth_quoting=results["checkpoints"] < 100_000 or figures["live saves for, s"] < 600,
    )
    yield (
        f"One tree of {results['checkpoints']:,} checkpoints with forks, {results['sessions']:,} sessions, a state of "
        "10 MB. Times are taken within the page, from the navigation or the key to the drawn row. The heap is measured "
        "after a collection of garbage."
    )
    yield ""
    yield "## Goals"
    yield ""
    yield from pages.goals(verdicts(results), command)
    yield "## Figures"
    yield ""
    rows = [(name, number(value)) for name, value in figures.items() if not isinstance(value, list)]
    yield from table(("figure", "measured"), rows)
    yield ""
    heaps = ", ".join(f"{one:.1f}" for one in figures["heap, MB"])
    yield f"The heap of the tab during the live saves, in MB: {heaps}."


if __name__ == "__main__":
    main()
