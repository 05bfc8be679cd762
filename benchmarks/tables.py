"""Tables in Markdown."""

from collections.abc import Iterator

Row = list[str]


def table(head: Row, rows: list[Row]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "|".join("---" if number == 0 else "---:" for number in range(len(head))) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
