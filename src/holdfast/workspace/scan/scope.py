"""The scope of a workspace: which paths belong to it, and why others do not."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass

from holdfast.errors import UsageError
from holdfast.model.snapshot import SnapshotOptions
from holdfast.workspace.limits import Secrets, is_secret, is_temporary
from holdfast.workspace.scan import ignore


@dataclass(frozen=True, slots=True)
class WorkspaceScope:
    """The paths that belong to a workspace."""

    include_git: bool = False
    use_gitignore: bool = True
    use_defaults: bool = True
    secrets: Secrets = "keep"
    never: frozenset[bytes] = frozenset()  # paths that are left out in any case: the store

    @property
    def options(self) -> SnapshotOptions:
        """Return what a snapshot says about it."""
        return SnapshotOptions(self.include_git, self.use_gitignore, self.use_defaults, self.secrets)

    @property
    def seed(self) -> bytes:
        """Return the inputs of a verdict other than the rules."""
        return b"%d %b %b" % (self.include_git, self.secrets.encode(), b"\0".join(sorted(self.never)))

    def why_left_out(
        self, whole: bytes, name: bytes, is_directory: bool, rules: ignore.IgnoreRules, siblings: Collection[bytes]
    ) -> tuple[bool, str] | None:
        """Return why a path is not part of the snapshot, and whether that is to be called skipped."""
        if whole in self.never:
            return False, "the store itself"
        if is_temporary(name):
            return False, "a temporary file of a restore"
        if whole == b".git" and not self.include_git:
            return False, "the repository of the workspace"
        verdict = rules.verdict(whole, is_directory=is_directory, siblings=siblings)
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

    def may_leave_files_out(self, base: bytes, rules: ignore.IgnoreRules) -> bool:
        """Return whether a file of a directory may be left out for a reason other than being temporary.

        `base` is the directory's path, with a slash at its end.
        """
        return (
            not base or rules.are_written or self.secrets != "keep" or any(path.startswith(base) for path in self.never)
        )
