"""The quick start on a fresh installation, under the oldest Python that is supported and the newest that is here."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from snippets import ROOT, snippets

OLDEST = (3, 11)


def _version(python: str) -> tuple[int, int] | None:
    """The version of an interpreter that really starts and can make a venv: a shim may lead nowhere."""
    code = "import sys, venv; print(*sys.version_info[:2], sys.version_info.releaselevel)"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    except OSError:
        return None
    found = re.fullmatch(r"(\d+) (\d+) final\n", done.stdout)
    return (int(found[1]), int(found[2])) if found else None


def _pythons() -> dict[tuple[int, int], str]:
    """Every Python on this machine from 3.11 on, by version."""
    candidates = [sys.executable, *(shutil.which(f"python3.{minor}") or "" for minor in range(11, 20))]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates += [str(path) for path in pyenv.glob("3.*/bin/python")]
    found = {}
    for candidate in filter(None, candidates):
        version = _version(candidate)
        if version is not None and version >= OLDEST:
            found.setdefault(version, candidate)
    return found


def _run(*words: str | Path, cwd: Path) -> str:
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYENV", "VIRTUAL"))
    }
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("which", ["oldest", "newest"])
def test_the_quick_start_runs_on_a_fresh_installation(which, tmp_path):
    pythons = _pythons()
    if which == "newest" and len(pythons) < 2:
        pytest.skip(f"only one Python from 3.11 on is on this machine: {pythons}")
    if which == "oldest" and OLDEST not in pythons:
        pytest.skip(f"Python 3.11 is not on this machine: {pythons}")
    python = pythons[OLDEST if which == "oldest" else max(pythons)]
    clone = tmp_path / "clone"
    ignored = shutil.ignore_patterns(
        ".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__", "results", "_build", "build", "dist"
    )
    shutil.copytree(ROOT, clone, ignore=ignored)
    venv = tmp_path / "venv"
    _run(python, "-m", "venv", "--without-pip", venv, cwd=tmp_path)
    inside = venv / "bin" / "python"
    # Our own pip installs into it: a Debian Python has no ensurepip. What can't be reached is no fault of ours.
    install = subprocess.run(
        [sys.executable, "-m", "pip", "--python", inside, "--disable-pip-version-check", "install", "--quiet", clone],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    if install.returncode and re.search(r"connection|resolve|Could not find a version", install.stderr, re.IGNORECASE):
        pytest.skip(f"the package index can't be reached: {install.stderr[-300:]}")
    assert install.returncode == 0, install.stderr

    work = tmp_path / "work"
    work.mkdir()
    pages = [ROOT / "README.md", ROOT / "docs" / "how-to" / "save-and-restore.md"]
    pages += [ROOT / "docs" / "how-to" / f"{name}.md" for name in ("append-to-long-lists", "keep-your-own-types")]
    pages += [ROOT / "docs" / "how-to" / "keep-one-json-file.md"]
    for snippet in (one for page in pages for one in snippets(page, "python")):
        if "langgraph" in snippet.code:
            continue  # needs the extra of that name; tests/docs/test_readme.py runs it
        script = work / "snippet.py"
        script.write_text(snippet.code)
        _run(inside, "-I", script, cwd=work)
    assert _run(inside, "-I", "-c", "import holdfast; print(holdfast.__file__)", cwd=work).startswith(str(venv))
    listed = _run(venv / "bin" / "holdfast", "sessions", cwd=work)
    assert "run-001" in listed
    assert "run-002" in listed
