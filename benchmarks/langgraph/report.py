"""langgraph.md and langgraph.png: the goals and whether they are reached, then every figure."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import pages
from benchmarks.goals import Goal, Verdict
from benchmarks.tables import table

FULL_TURNS = 1000
LINES = {
    "sqlite": ("SqliteSaver", "#6a3d9a", "-"),
    "sqlite_delta": ("SqliteSaver, DeltaChannel", "#6a3d9a", ":"),
    "holdfast_sqlite": ("HoldfastSaver, SQLite", "#0b7a75", "-"),
    "postgres": ("PostgresSaver", "#e0a458", "-"),
    "postgres_delta": ("PostgresSaver, DeltaChannel", "#e0a458", ":"),
    "holdfast_postgres": ("HoldfastSaver, PostgreSQL", "#0b7a75", "--"),
}


def goals(turns: int) -> Iterator[Goal]:
    ratio = _growth_ratio
    at = f"after {turns:,} turns"
    yield Goal(f"bytes {at} over SqliteSaver's (goal 1/400)", "growth", ratio("sqlite", "bytes"), 1 / 400)
    yield Goal(f"bytes {at} over DeltaChannel's (goal 1/3)", "growth", ratio("sqlite_delta", "bytes"), 1 / 3)
    put, history = ("put_at_end", "p50_ms"), ("history_of_20", "p50_ms")
    yield Goal(f"median put {at} over SqliteSaver's (goal 1/2)", "growth", ratio("sqlite", *put), 1 / 2)
    yield Goal(f"median put {at} over PostgresSaver's (goal 1/15)", "growth", ratio("postgres", *put), 1 / 15)
    yield Goal(f"history of 20 {at} over SqliteSaver's (goal 1/3)", "growth", ratio("sqlite", *history), 1 / 3)
    yield Goal(f"history of 20 {at} over PostgresSaver's (goal 1/3)", "growth", ratio("postgres", *history), 1 / 3)
    yield Goal(
        "puts per second of 16 coroutines over the pooled AsyncPostgresSaver's",
        "coroutines",
        lambda results: (
            results["coroutines"]["holdfast_postgres"]["puts_per_second"]
            / results["coroutines"]["postgres"]["puts_per_second"]
        ),
        4,
        at_least=True,
    )


def _growth_ratio(peer: str, *path: str) -> Any:
    ours = "holdfast_postgres" if peer.startswith("postgres") else "holdfast_sqlite"

    def measure(results: dict[str, Any]) -> float:
        mine, theirs = results["growth"][ours], results["growth"][peer]
        for name in path:
            mine, theirs = mine[name], theirs[name]
        return mine / theirs

    return measure


def verdicts(results: dict[str, Any]) -> list[Verdict]:
    return [goal.judge(results) for goal in goals(results["turns"])]


def command(workload: str) -> str:
    return "make bench-langgraph"


def markdown(results: dict[str, Any]) -> str:
    return "\n".join([*_head(results), *_goals(results), *_growth(results), *_coroutines(results), ""])


def _head(results: dict[str, Any]) -> Iterator[str]:
    software = f"SQLite {results['environment']['sqlite']}, PostgreSQL {results['postgres'] or 'not there'}"
    yield from pages.head(
        "LangGraph: results", results, software=software, not_worth_quoting=results["turns"] < FULL_TURNS
    )
    yield "![Put time by turn, and bytes](langgraph.png)"
    yield ""


def _goals(results: dict[str, Any]) -> Iterator[str]:
    yield "## Goals"
    yield ""
    yield from pages.goals(verdicts(results), command)


def _growth(results: dict[str, Any]) -> Iterator[str]:
    yield f'## One conversation of {results["turns"]:,} turns, `durability="sync"`'
    yield ""
    yield (
        "A graph of one node; each turn is a question and an answer of 1 KB each, three puts and two "
        "put_writes. Savers take "
        "turns turn by turn, in an order that is shuffled each time. The graph is the same for all "
        "but the DeltaChannel "
        "rows, which need another state schema. Put: median of the last 20 turns; CPU is that of this "
        "process, so what the "
        "PostgreSQL server does is not in it."
    )
    yield ""
    rows = [
        [
            one["title"],
            one["store"],
            f"{one['bytes'] / 1e6:,.1f}",
            f"{one['put_at_end']['p50_ms']:.2f}",
            f"{one['put_at_end']['p99_ms']:.2f}",
            f"{one['put_at_end']['cpu_p50_ms']:.2f}",
            f"{one['get_state']['p50_ms']:.1f}",
            f"{one['history_of_20']['p50_ms']:.0f}",
            f"{one['turns_s']:.0f}",
            one["durability"],
        ]
        for one in results["growth"].values()
    ]
    titles = ["", "store", "MB on disk", "put p50 ms", "p99", "CPU", "get_state ms", "history of 20 ms", "all turns s"]
    yield from table([*titles, "durability"], rows)
    yield ""


def _coroutines(results: dict[str, Any]) -> Iterator[str]:
    found = results.get("coroutines")
    if found is None:
        return
    yield f"## {found['coroutines']} coroutines, one PostgreSQL"
    yield ""
    yield (
        f"Each puts {found['puts_each']} checkpoints to a thread of its own, of 20 messages and one more "
        "each time. Rounds alternate."
    )
    yield ""
    titles = {"holdfast_postgres": "**HoldfastSaver**", "postgres": "AsyncPostgresSaver, pool of 16"}
    yield from table(
        ["", "puts per second", "rounds"],
        [[title, f"{found[key]['puts_per_second']:,.0f}", str(found[key]["rounds"])] for key, title in titles.items()],
    )
    yield ""


def draw(results: dict[str, Any], file: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    growth = results["growth"]
    figure, (puts, sizes) = plt.subplots(1, 2, figsize=(12, 4.8), layout="constrained")
    names = [key for key in LINES if key in growth]
    for key in names:
        name, colour, style = LINES[key]
        puts.plot(*zip(*growth[key]["put_curve"], strict=True), label=name, color=colour, linestyle=style, linewidth=2)
    sizes.barh(
        [LINES[key][0] for key in names],
        [growth[key]["bytes"] / 1e6 for key in names],
        color=[LINES[key][1] for key in names],
    )
    sizes.bar_label(sizes.containers[0], fmt="{:,.1f} MB", padding=3)
    puts.set(title="One put", xlabel="turn", ylabel="milliseconds (median)", yscale="log")
    sizes.set(title=f"Store after {results['turns']:,} turns", xlabel="megabytes", xscale="log")
    sizes.margins(x=0.25)
    for axes in (puts, sizes):
        axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    puts.legend(frameon=False, fontsize=8)
    figure.suptitle("A LangGraph conversation, saved at every step")
    figure.savefig(file, dpi=130)
    plt.close(figure)
