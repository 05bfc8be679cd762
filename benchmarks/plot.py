"""Plots: how save time and size grow with the number of steps; bars side by side."""

from pathlib import Path
from typing import Any

# key -> name, colour, line style, width; the order is that of the legend. Both whole-state peers write the same bytes:
# the wider line shows behind the other.
LINES = {
    "checkpnt": ("checkpnt", "#e0a458", "-", 5),
    "langgraph": ("langgraph-sqlite", "#6a3d9a", "-", 2),
    "langgraph_delta": ("langgraph-sqlite, DeltaChannel", "#6a3d9a", ":", 2),
    "holdfast": ("holdfast", "#0b7a75", "-", 2),
    "holdfast_declared": ("holdfast, declared append", "#0b7a75", ":", 2),
}


SERVER_LINES = {
    "checkpnt_redis": ("checkpnt, Redis", "#e0a458", "-", 4),
    "langgraph_postgres": ("langgraph-postgres", "#6a3d9a", "-", 2),
    "holdfast_redis": ("holdfast, Redis", "#c0392b", "-", 2),
    "holdfast_redis_declared": ("declared append", "#c0392b", ":", 2),
    "holdfast_postgres": ("holdfast, PostgreSQL", "#0b7a75", "-", 2),
    "holdfast_postgres_declared": ("declared append", "#0b7a75", ":", 2),
}


def draw(
    growing: dict[str, Any], file: Path, lines: dict[str, Any] = LINES, where: str = "SQLite, WAL, synchronous=FULL"
) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    steps = max(growing, key=int)
    part = growing[steps]
    figure, (saves, sizes) = plt.subplots(1, 2, figsize=(12, 4.8), layout="constrained")
    for key, (name, colour, style, width) in lines.items():
        if key not in part["contenders"]:
            continue
        one = part["contenders"][key]
        look = {"label": name, "color": colour, "linestyle": style, "linewidth": width}
        saves.plot(*zip(*one["save_curve"], strict=True), **look)
        sizes.plot(*zip(*[(step, size / 1e6) for step, size in one["size_curve"]], strict=True), **look)
    sizes.axhline(part["final_json_bytes"] / 1e6, color="#888888", linewidth=1)
    sizes.annotate(
        "compact JSON of the final state",
        (1, part["final_json_bytes"] / 1e6),
        xytext=(2, 3),
        textcoords="offset points",
        fontsize=8,
        color="#666666",
    )
    saves.set(title="One save", xlabel="step", ylabel="milliseconds (median)", xlim=(0, int(steps)))
    sizes.set(title="Store", xlabel="step", ylabel="megabytes", xscale="log", xlim=(1, int(steps)))
    for axes in (saves, sizes):
        axes.set_yscale("log")
        axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    sizes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    figure.legend(*saves.get_legend_handles_labels(), loc="outside lower center", ncols=len(lines), frameon=False)
    figure.suptitle(f"A conversation of {int(steps):,} steps, saved at every step ({where})")
    figure.savefig(file, dpi=130)
    plt.close(figure)


def bars(groups: dict[str, dict[str, float]], title: str, file: Path, *, log: bool = False) -> None:
    """One panel per group, one bar per contender; those of holdfast in its colour."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    height = 1.2 + 0.4 * max(len(group) for group in groups.values())
    figure, panels = plt.subplots(
        1, len(groups), figsize=(5.5 * len(groups), height), layout="constrained", squeeze=False
    )
    for axes, (name, group) in zip(panels[0], groups.items(), strict=True):
        colours = ["#0b7a75" if key.startswith("holdfast") else "#b8b8b8" for key in group]
        axes.barh(list(group), list(group.values()), color=colours)
        axes.bar_label(axes.containers[0], fmt="{:,.4g}", padding=3)
        axes.set(title=name, xscale="log" if log else "linear")
        axes.invert_yaxis()
        axes.margins(x=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title)
    figure.savefig(file, dpi=110)
    plt.close(figure)
