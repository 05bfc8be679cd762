"""Runner of a page's snippets as one program: `python run_page.py PAGE [PRELUDE]`.

Python snippets share their names, so that a page says each thing once. A line `holdfast ...` of a `sh` snippet is run
where it stands. The prelude runs first: it gives the framework a model that needs no network.
"""

from __future__ import annotations

import runpy
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

from snippets import snippets

from holdfast.errors import HoldfastWarning


def main(page: Path, prelude: Path | None) -> None:
    warnings.simplefilter("error", HoldfastWarning)
    names = {"__name__": "__main__"}
    if prelude is not None:
        runpy.run_path(str(prelude))
    for snippet in snippets(page, "python", "sh"):
        if snippet.language == "python":
            # Lines are numbered as in the page, for tracebacks. The imports from the future are this module's only.
            exec(compile("\n" * snippet.line + snippet.code, str(page), "exec", dont_inherit=True), names)
            continue
        for line in snippet.code.splitlines():
            if line.startswith("holdfast "):
                subprocess.run([sys.executable, "-m", *shlex.split(line, comments=True)], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
