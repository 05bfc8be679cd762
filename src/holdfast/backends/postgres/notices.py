"""Notices of the server: warnings that it has stopped waiting for a standby."""

from __future__ import annotations

from psycopg.errors import Diagnostic

_CODES = ("01000", "57P01")  # of a cancelled wait, and of one that ended with its connection


class Notices:
    """The notices of one connection since `clear`."""

    __slots__ = ("are_unconfirmed",)

    def __init__(self) -> None:
        self.are_unconfirmed = False  # a commit was acknowledged that no standby has confirmed

    def clear(self) -> None:
        self.are_unconfirmed = False

    def note(self, diagnostic: Diagnostic) -> None:
        """Note a warning of the server code that waits for standbys.

        The location in the server's source identifies it, in any language. Where a pooler leaves
        that out, every warning counts.
        """
        if (diagnostic.severity_nonlocalized or diagnostic.severity) != "WARNING":
            return
        source = diagnostic.source_file or ""
        if source.endswith("syncrep.c") or (not source and diagnostic.sqlstate in _CODES):
            self.are_unconfirmed = True
