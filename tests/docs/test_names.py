"""Names in the source: a public class has one, and ctypes stays in one module."""

import ast
from collections import defaultdict
from pathlib import Path

from paths import ROOT

SOURCE = ROOT / "src" / "holdfast"


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def test_no_two_public_classes_have_one_name():
    found: defaultdict[str, list[str]] = defaultdict(list)
    for module in modules():
        for node in ast.parse(module.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(module.relative_to(SOURCE)))
    twice = {name: where for name, where in found.items() if len(where) > 1}
    # What AG2 and Strands both call a storage; each is imported from the module of its framework.
    assert twice.pop("HoldfastStorage") == ["adapters/ag2/storage.py", "adapters/strands/storage.py"]
    assert twice == {}


def test_one_module_makes_system_calls_by_ctypes():
    users = {str(module.relative_to(SOURCE)) for module in modules() if imports_ctypes(module)}
    assert users == {"backends/system_calls.py"}


def imports_ctypes(module: Path) -> bool:
    nodes = [*ast.walk(ast.parse(module.read_text("utf-8")))]
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return "ctypes" in plain | {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
