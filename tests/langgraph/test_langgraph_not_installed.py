"""Stores with rows of the LangGraph adapter, in processes that can't import LangGraph: the core names no adapter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from langgraph_savers import config, put

import holdfast
from holdfast import SyncClient
from holdfast.langgraph import HoldfastSaver, HoldfastStore

WITHOUT = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("langgraph", "langchain_core", "langchain"):
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Blocked())
import json
from holdfast import SyncClient

source = SyncClient.sqlite(sys.argv[1])
found = {}
"""
SPACES = ("lgindex", "lgwrites", "lgitem", "lgvectors")


def without_langgraph(code: str, *arguments: Any) -> Any:
    command = [sys.executable, "-c", WITHOUT + code + "\nprint(json.dumps(found))", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def rows_of(path: Path) -> dict[str, list[tuple[bytes, bytes]]]:
    with SyncClient.sqlite(path) as client:
        backend = client._ctx.backend.backend
        return {
            space: [(key.key, row.value) for key, row in backend.scan(space)] for space in SPACES if backend.scan(space)
        }


def filled(path: Path) -> list[Any]:
    """Two checkpoints of a thread, the writes of a task of each (one came before its checkpoint), and two items."""
    with HoldfastSaver.from_sqlite(path) as saver:
        first = put(saver, config(), x=1)
        saver.put_writes(first, [("x", 2)], "task")
        second = put(saver, first, x=2)
        saver.put_writes(second, [("x", 3)], "task")
    with HoldfastStore.from_sqlite(path) as store:
        store.put(("a",), "stays", {"n": 1})
        store.put(("a",), "ends", {"n": 2}, ttl=0.0001)
    return [first, second]


def test_export_and_import_carry_its_rows(tmp_path: Path) -> None:
    filled(tmp_path / "a.db")
    found = without_langgraph(
        """
source.export(sys.argv[2])
with SyncClient.sqlite(sys.argv[3]) as target:
    found["imported"] = target.import_(sys.argv[2]).imported
    found["ok"] = target.verify().ok and source.verify().ok
found["loaded"] = [name for name in sys.modules if name.startswith(("langgraph", "langchain"))]
""",
        tmp_path / "a.db", tmp_path / "bundle", tmp_path / "b.db",
    )  # fmt: skip
    assert found == {"imported": 2, "ok": True, "loaded": []}
    theirs, ours = rows_of(tmp_path / "a.db"), rows_of(tmp_path / "b.db")
    assert len(ours["lgindex"]) == len(ours["lgwrites"]) == 2
    assert ours == {space: theirs[space] for space in ("lgindex", "lgwrites")}  # items stay where they are


def test_gc_collects_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    filled(path)
    before = rows_of(path)
    assert (len(before["lgindex"]), len(before["lgwrites"]), len(before["lgitem"])) == (2, 2, 2)
    without_langgraph(
        """
import time
[session] = source.sessions()
for one in source.timeline(session.session_id):
    if one.checkpoint_id != session.head.checkpoint_id:
        source.expire(one.checkpoint_id)
time.sleep(0.05)
source.gc()
""",
        path,
    )
    after = rows_of(path)
    assert (len(after["lgindex"]), len(after["lgwrites"]), len(after["lgitem"])) == (1, 1, 1)


def test_a_diff_is_shown_by_its_channels(tmp_path: Path) -> None:
    filled(tmp_path / "a.db")
    found = without_langgraph(
        """
[session] = source.sessions()
newer, older = source.timeline(session.session_id)
diff = source.diff(older.checkpoint_id, newer.checkpoint_id)
found["lines"] = [line for _, line in diff.lines()]
found["raw"] = [line for _, line in diff.lines(raw=True)]
""",
        tmp_path / "a.db",
    )
    assert any(line.startswith("x") for line in found["lines"])
    assert not any("channel_values" in line for line in found["lines"])
    assert any("channel_values" in line for line in found["raw"])


def test_opening_a_client_imports_no_adapter() -> None:
    code = (
        "import sys, holdfast; holdfast.SyncClient.memory().save('a'); print([n for n in sys.modules if "
        "'adapters' in n])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_core_names_no_adapter() -> None:
    root = Path(holdfast.__file__).parent
    layers = ("operations", "format", "codec", "coordination", "checkpoint_store", "model")
    files = [path for layer in layers for path in (root / layer).rglob("*.py")]
    assert len(files) > 50
    naming = [path.name for path in files if "langgraph" in path.read_text().lower()]
    assert naming == ["framework.py"]  # the list of frameworks that a checkpoint may say it is of
