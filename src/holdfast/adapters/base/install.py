"""The check that a framework is installed, in a version that was tested."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

from holdfast.errors import HoldfastWarning


@contextmanager
def require_framework(framework: str, *modules: str, extra: str) -> Iterator[None]:
    """Turn a failed import of the framework's modules into an error that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in modules:
            raise
        raise ModuleNotFoundError(
            f"{error.name} is not installed, which the adapter for {framework} needs: pip install 'holdfast[{extra}]'",
            name=error.name,
        ) from error


def warn_if_untested(distribution: str, at_least: str, below: str) -> None:
    """Warn if the installed version is outside the tested bounds."""
    installed = metadata.version(distribution)
    if not _numbers(at_least) <= _numbers(installed) < _numbers(below):
        warnings.warn(
            f"{distribution} {installed} is installed; holdfast was tested with {at_least} up to, not including, "
            f"{below}. It may work. If it does not, install a version between these",
            HoldfastWarning,
            stacklevel=3,
        )


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, up to the first part that is none."""
    found = []
    for part in version.split("."):
        digits = "".join(item for item in part if item.isdigit())
        if not part[:1].isdigit():
            break
        found.append(int(digits))
    return tuple(found)
