"""The documentation builds as a site, and its reference has every public name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", tmp_path / "html"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Kill it at any instant" in (tmp_path / "html" / "how-to" / "resume-after-a-crash.html").read_text("utf-8")
    library = (tmp_path / "html" / "reference" / "library.html").read_text("utf-8")
    assert all(f'id="holdfast.Client.{name}"' in library for name in ("save", "restore", "timeline", "fork", "bisect"))


def test_the_reference_has_every_public_name():
    text = "\n".join(page.read_text("utf-8") for page in REFERENCE.glob("*.md"))
    errors = {name for name in dir(holdfast.errors) if name.endswith(("Error", "Warning"))}  # by automodule
    named = {line.split("holdfast.", 1)[1].strip() for line in text.splitlines() if ":: holdfast." in line}
    assert not set(holdfast.__all__) - errors - named - {"__version__"}
    assert not {name for name in named if "." not in name} - set(holdfast.__all__) - {"errors", "testing"}
