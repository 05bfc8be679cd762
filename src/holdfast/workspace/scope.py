"""What belongs to a workspace, and why something does not."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass

from holdfast.errors import UsageError
from holdfast.model.workspace import Options
from holdfast.workspace import ignore
from holdfast.workspace.guards import Secrets, is_secret, is_temporary


@dataclass(frozen=True, slots=True)
class Scope:
    """What belongs to a workspace."""

    include_git: bool = False
    use_gitignore: bool = True
    use_defaults: bool = True
    secrets: Secrets = "keep"
    never: frozenset[bytes] = frozenset()  # paths that are left out in any case: the store

    @property
    def options(self) -> Options:
        """What a snapshot says about it."""
        return Options(self.include_git, self.use_gitignore, self.use_defaults, self.secrets)

    @property
    def seed(self) -> bytes:
        """What a verdict depends on beside the rules."""
        return b"%d %b %b" % (self.include_git, self.secrets.encode(), b"\0".join(sorted(self.never)))

    def why_left_out(
        self, whole: bytes, name: bytes, is_directory: bool, rules: ignore.Rules, beside: Collection[bytes]
    ) -> tuple[bool, str] | None:
        """Why a path is not part of the snapshot, and whether that is to be called skipped."""
        if whole in self.never:
            return False, "the store itself"
        if is_temporary(name):
            return False, "a temporary file of a restore"
        if whole == b".git" and not self.include_git:
            return False, "the repository of the workspace"
        verdict = rules.verdict(whole, is_directory=is_directory, beside=beside)
        if verdict is not None and verdict.is_ignored:
            return False, verdict.rule
        if not is_directory and self.secrets != "keep" and is_secret(name):
            if self.secrets == "refuse":
                raise UsageError(
                    f"{os.fsdecode(whole)!r:.80} looks like a secret, and secrets='refuse': leave it out by a line in "
                    ".holdfastignore, or choose 'skip' or 'keep'"
                )
            return True, "a secret"
        return None

    def may_leave_files_out(self, base: bytes, rules: ignore.Rules) -> bool:
        """Whether there may be a reason to leave out a file of a directory, beside that it is temporary; `base` is its path, with a
        slash at its end."""
        return (
            not base or rules.are_written or self.secrets != "keep" or any(path.startswith(base) for path in self.never)
        )
