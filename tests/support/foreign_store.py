"""Commands on a hostile bundle or store; prints their results as JSON.

foreign_store.py STORE (import BUNDLE | fork REF DIR | restore REF DIR | plan REF DIR | verify)...
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

from holdfast import HoldfastError, SyncClient

SECONDS = 20  # for each thing that is done


def do(client: SyncClient, verb: str, arguments: list[str]) -> Any:
    if verb == "import":
        return client.import_(arguments.pop(0)).imported
    if verb == "verify":
        return [problem.message for problem in client.verify().problems]
    ref, place = arguments.pop(0), Path(arguments.pop(0))
    if verb == "fork":
        forked = client.fork(ref, workspace=place)
        return [[one.path.decode(), one.reason] for one in getattr(forked, "left", ())]
    place.mkdir(exist_ok=True)
    report = client.workspace(place).restore(ref, dry_run=verb == "plan", any_directory=True)
    return [[one.path.decode(), one.reason] for one in report.left]


def hang(*_: object) -> None:
    raise TimeoutError(f"it takes more than {SECONDS} s")


def suffer(store: str, arguments: list[str]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    with SyncClient.sqlite(store) as client:
        while arguments:
            verb = arguments.pop(0)
            signal.alarm(SECONDS)
            try:
                said[verb] = do(client, verb, arguments)
            except (HoldfastError, TimeoutError) as error:
                said[verb] = f"{type(error).__name__}: {error}"
            finally:
                signal.alarm(0)
    return said


def main() -> None:
    signal.signal(signal.SIGALRM, hang)
    jobs: list[list[str]] = [[]]
    for argument in sys.argv[1:]:
        if argument == "--":
            jobs.append([])
        else:
            jobs[-1].append(argument)
    print(json.dumps([suffer(store, arguments) for store, *arguments in jobs]))


if __name__ == "__main__":
    main()
