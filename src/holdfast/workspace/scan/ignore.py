"""Ignore rules: `.gitignore`, `.holdfastignore`, and directories that programs can make again.

Files of any depth count. Directories are known by a marker. Nothing is judged by its extension.

The rules are git's: a later line beats an earlier one, a deeper file a higher one, and a directory
that is left out is not searched. `.holdfastignore` has the same form and beats every `.gitignore`:
it can leave out more, and take back.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from typing import NamedTuple

GITIGNORE = b".gitignore"
HOLDFASTIGNORE = b".holdfastignore"
FILES = (GITIGNORE, HOLDFASTIGNORE)
MARKED_INSIDE = {b"pyvenv.cfg": "a virtual environment", b"CACHEDIR.TAG": "a cache"}
MARKED_BY_SIBLING = {b"node_modules": b"package.json", b"target": b"Cargo.toml"}
COMPILED = b"__pycache__"  # left out by default, wherever it is
MAX_RULES_BYTES = 1024 * 1024


class _Rule(NamedTuple):
    matches: re.Pattern[bytes]
    is_negated: bool
    directories_only: bool
    text: str


class _RuleFile(NamedTuple):
    """The rules of one ignore file, for paths relative to its directory."""

    base: bytes  # the directory it stands in, with a slash at its end, or empty for the root
    source: str
    content: bytes
    rules: tuple[_Rule, ...]
    any_of: re.Pattern[bytes] | None


class Verdict(NamedTuple):
    is_ignored: bool
    rule: str


class IgnoreRules:
    """The rules that hold in a directory. `key` is another one whenever they are others."""

    def __init__(self, *, use_gitignore: bool = True, use_defaults: bool = True, seed: bytes = b"") -> None:
        self._git: tuple[_RuleFile, ...] = ()
        self._own: tuple[_RuleFile, ...] = ()
        self._use_gitignore = use_gitignore
        self._use_defaults = use_defaults
        self.key = hashlib.sha256(b"%d %d %b" % (use_gitignore, use_defaults, seed)).digest()[:8]

    @property
    def are_written(self) -> bool:
        """Return whether there is an ignore file: without one, no file is left out."""
        return bool(self._own or self._git)

    def enter(self, directory: bytes, gitignore: bytes | None, holdfastignore: bytes | None) -> IgnoreRules:
        """Return the rules in a directory that has these files."""
        if not self._use_gitignore:
            gitignore = None
        if gitignore is None and holdfastignore is None:
            return self
        deeper = object.__new__(IgnoreRules)
        deeper.__dict__.update(self.__dict__)
        if gitignore is not None:
            deeper._git = (*self._git, _parse_rules(directory, GITIGNORE, gitignore))
        if holdfastignore is not None:
            deeper._own = (*self._own, _parse_rules(directory, HOLDFASTIGNORE, holdfastignore))
        parts = (self.key, directory, gitignore or b"", b"\0", holdfastignore or b"")
        deeper.key = hashlib.sha256(b"\0".join(parts)).digest()[:8]
        return deeper

    @property
    def has_rules_for_files(self) -> bool:
        """Return whether there are ignore files: default rules leave out only directories."""
        return bool(self._own or self._git)

    def read_own_files(self, directory: bytes) -> list[tuple[bytes, bytes]]:
        """Return the ignore files that the directory itself has, and what they say."""
        base = directory + b"/" if directory else b""
        deepest = ((GITIGNORE, self._git[-1:]), (HOLDFASTIGNORE, self._own[-1:]))
        return [(name, file.content) for name, files in deepest for file in files if file.base == base]

    def verdict(self, path: bytes, *, is_directory: bool, siblings: Collection[bytes]) -> Verdict | None:
        """Return the verdict on a path below directories that are not left out; None if no rule matches.

        `siblings` are the names in its directory.
        """
        for files in (self._own, self._git):
            found = _first_verdict(files, path, is_directory=is_directory)
            if found is not None:
                return found
        if is_directory and self._use_defaults:
            name = path.rpartition(b"/")[2]
            marker = MARKED_BY_SIBLING.get(name)
            if name == COMPILED:
                return Verdict(True, "by default: compiled Python")
            if marker is not None and marker in siblings:
                return Verdict(True, f"by default: beside {marker.decode()}")
        return None

    def marked_inside(self, path: bytes, names: Collection[bytes]) -> tuple[bytes, str] | None:
        """Return the marker by which a directory with these names is left out, and why.

        Return None, too, if our own ignore file takes it back. A `.gitignore` does not: `!*/` there
        is about where git looks.
        """
        found = next(((marker, why) for marker, why in MARKED_INSIDE.items() if marker in names), None)
        if found is None or not self._use_defaults:
            return None
        verdict = _first_verdict(self._own, path, is_directory=True)
        return found if verdict is None or verdict.is_ignored else None


def _first_verdict(files: tuple[_RuleFile, ...], path: bytes, *, is_directory: bool) -> Verdict | None:
    """Return what the deepest of these files says that says something of the path."""
    for file in reversed(files):
        found = _judge_path(file, path[len(file.base) :], is_directory=is_directory)
        if found is not None:
            return found
    return None


def _judge_path(file: _RuleFile, relative: bytes, *, is_directory: bool) -> Verdict | None:
    if file.any_of is None or not file.any_of.match(relative):
        return None
    for rule in reversed(file.rules):
        if (is_directory or not rule.directories_only) and rule.matches.match(relative):
            return Verdict(not rule.is_negated, f"{file.source}: {rule.text}")
    return None


def _parse_rules(directory: bytes, name: bytes, content: bytes) -> _RuleFile:
    base = directory + b"/" if directory else b""
    rules, patterns = [], []
    content = content.removeprefix(b"\xef\xbb\xbf")
    for line in content[:MAX_RULES_BYTES].split(b"\n"):
        parsed = _rule(line)
        if parsed is not None:
            rule, pattern = parsed
            rules.append(rule)
            patterns.append(pattern)
    any_of = re.compile(b"|".join(b"(?:%b)" % pattern for pattern in patterns), re.DOTALL) if patterns else None
    return _RuleFile(base, (base + name).decode("utf-8", "backslashreplace"), content, tuple(rules), any_of)


def _rule(line: bytes) -> tuple[_Rule, bytes] | None:
    pattern = _without_trailing_spaces(line.removesuffix(b"\r") if line.endswith(b"\r") else line)
    text = pattern.decode("utf-8", "backslashreplace")
    if not pattern or pattern.startswith(b"#"):
        return None
    is_negated = pattern.startswith(b"!")
    if is_negated:
        pattern = pattern[1:]
    directories_only = pattern.endswith(b"/")
    if directories_only:
        pattern = pattern[:-1]
    if not pattern:
        return None
    is_anchored = b"/" in pattern
    translated = _translate_pattern(pattern.removeprefix(b"/") if is_anchored else pattern)
    if translated is None:
        return None
    whole = (b"" if is_anchored else b"(?:.*/)?") + translated + b"\\Z"
    try:
        return _Rule(re.compile(whole, re.DOTALL), is_negated, directories_only, text), whole
    except re.error:  # a range that git, too, would never match
        return None


def _without_trailing_spaces(line: bytes) -> bytes:
    """Spaces at the end count only behind a backslash."""
    end = len(line)
    while end and line[end - 1 : end] == b" ":
        backslashes = 0
        while end - 2 - backslashes >= 0 and line[end - 2 - backslashes : end - 1 - backslashes] == b"\\":
            backslashes += 1
        if backslashes % 2:
            break
        end -= 1
    return line[:end]


def _translate_pattern(pattern: bytes) -> bytes | None:
    """Return a pattern as a regular expression; None if it can't match anything."""
    parts: list[bytes] = []
    at, size = 0, len(pattern)
    while at < size:
        char = pattern[at : at + 1]
        if char == b"*":
            end = at
            while pattern[end : end + 1] == b"*":
                end += 1
            starts_name = at == 0 or pattern[at - 1 : at] == b"/"
            if end - at == 2 and starts_name and pattern[end : end + 1] == b"/":
                parts.append(b"(?:.*/)?")  # **/ : any directories, or none
                at = end + 1
                continue
            # /** at the end: all that is inside; elsewhere several stars are one
            parts.append(b".+" if end - at == 2 and starts_name and end == size and at > 0 else b"[^/]*")
            if end - at == 2 and at == 0 and end == size:
                parts[-1] = b".*"
            at = end
        elif char == b"?":
            parts.append(b"[^/]")
            at += 1
        elif char == b"[":
            bracket = _bracket(pattern, at)
            if bracket is None:
                return None
            part, at = bracket
            parts.append(part)
        elif char == b"\\":
            if at + 1 >= size:
                return None
            parts.append(re.escape(pattern[at + 1 : at + 2]))
            at += 2
        else:
            parts.append(re.escape(char))
            at += 1
    return b"".join(parts)


_CLASSES = {
    b"alnum": b"0-9A-Za-z", b"alpha": b"A-Za-z", b"blank": b" \\t", b"cntrl": b"\\x00-\\x1f\\x7f", b"digit": b"0-9",
    b"graph": b"!-~", b"lower": b"a-z", b"print": b" -~", b"punct": b"!-/:-@\\[-`{-~", b"space": b" \\t\\n\\r\\f\\v",
    b"upper": b"A-Z", b"xdigit": b"0-9A-Fa-f",
}  # fmt: skip


def _bracket(pattern: bytes, start: int) -> tuple[bytes, int] | None:
    """Return a character set and its end. One without an end is None: it matches nothing.

    It never matches a slash.
    """
    at = start + 1
    is_negated = pattern[at : at + 1] in (b"!", b"^")
    at += is_negated
    members: list[bytes] = []
    previous: int | None = None
    is_first = True
    while True:
        char = pattern[at : at + 1]
        if not char:
            return None
        if char == b"]" and not is_first:
            break
        is_first = False
        if char == b"[" and pattern[at + 1 : at + 2] == b":":
            end = pattern.find(b":]", at + 2)
            if end < 0:
                return None
            named = _CLASSES.get(pattern[at + 2 : end])
            if named is None:
                return None
            members.append(named)
            previous, at = None, end + 2
            continue
        if char == b"-" and previous is not None and pattern[at + 1 : at + 2] not in (b"]", b""):
            at += 1
            if pattern[at : at + 1] == b"\\":
                at += 1
            upper = pattern[at : at + 1]
            if not upper:
                return None
            if upper[0] >= previous:
                members.append(b"\\x%02x-\\x%02x" % (previous, upper[0]))
            previous, at = None, at + 1
            continue
        if char == b"\\":
            at += 1
            char = pattern[at : at + 1]
            if not char:
                return None
        members.append(b"\\x%02x" % char[0])
        previous, at = char[0], at + 1
    inside = b"".join(members)
    if is_negated:
        return b"[^/%b]" % inside, at + 1
    return (b"(?!/)[%b]" % inside if inside else b"(?!)"), at + 1
