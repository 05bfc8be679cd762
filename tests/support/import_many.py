"""Importer of LangGraph databases, each into its own store; prints all reports as JSON."""

from __future__ import annotations

import json
import sys

from holdfast import HoldfastError, SyncClient
from holdfast.langgraph import import_sqlite


def imported(path: str) -> dict[str, object]:
    try:
        report = import_sqlite(SyncClient.memory(), path)
    except HoldfastError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    except Exception as error:
        return {"error": f"broke: {error!r:.300}"}
    return {"imported": report.imported, "skipped": [f"{one.where}: {one.message}" for one in report.skipped]}


if __name__ == "__main__":
    print(json.dumps([imported(path) for path in sys.argv[1:]]))
