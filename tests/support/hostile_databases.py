"""Importer of a hostile database or directory into a store in memory; prints the report as JSON."""

from __future__ import annotations

import json
import sys

from holdfast import HoldfastError, SyncClient


def main() -> None:
    kind, path = sys.argv[1:]
    client = SyncClient.memory()
    try:
        report = getattr(client, f"import_{kind}")(path)
    except HoldfastError as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        return
    skipped = [f"{one.where}: {one.message}" for one in report.skipped]
    print(json.dumps({"imported": report.imported, "skipped": skipped}))


if __name__ == "__main__":
    main()
