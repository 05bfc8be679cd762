"""Agent conversations that look and compress like real ones, the same for the same seed.

The words come from the standard library's own sources and docstrings, so no network and no data file is needed.
A step adds two messages, about 1.2 KB of compact JSON together; the plan changes every fifth step and the scratch
pad at every step, as agents do it: in place.
"""

import json
import random
import re
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

SOURCES_READ = 240
TOOLS = ("read_file", "search", "run_shell", "http_get")
SERVICES = ("api.gateway", "worker.7", "db.pool", "auth", "billing.invoice")
LEVELS = ("INFO", "INFO", "DEBUG", "WARN", "ERROR")
STATUSES = ("todo", "doing", "done")

State = dict[str, Any]
Message = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """One moment of a conversation, in every form a contender may want to be given it."""

    number: int
    state: State
    """The whole state, `messages` included. It is mutated by the next step: a save must have encoded it by then."""
    rest: State
    """The state without `messages`."""
    added: list[Message]
    """The messages that this step appended."""


@dataclass(frozen=True)
class Library:
    sources: tuple[tuple[str, str], ...]
    paragraphs: tuple[str, ...]


@cache
def library() -> Library:
    root = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(
        file.relative_to(root)
        for pattern in ("*.py", "*/*.py")
        for file in root.glob(pattern)
        if "site-packages" not in file.parts and "test" not in str(file.relative_to(root))
    )
    random.Random(1).shuffle(files)
    sources, paragraphs = [], []
    for file in files[:SOURCES_READ]:
        try:
            text = (root / file).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        sources.append((f"lib/{file}", text))
        for found in re.findall(r'"""(.*?)"""', text, re.DOTALL):
            paragraph = " ".join(found.split())
            if 60 < len(paragraph) < 3000:
                paragraphs.append(paragraph)
    return Library(tuple(sources), tuple(paragraphs))


def compact_json(value: Any) -> bytes:
    """The yardstick for every size in the results."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class Conversation:
    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self.steps = 0
        self.state: State = {
            "messages": [],
            "plan": {
                "goal": self._prose(120),
                "steps": [{"id": n, "title": self._prose(50), "status": "todo"} for n in range(8)],
            },
            "scratch": {
                "step": 0,
                "last_tool": None,
                "notes": [],
                "counters": {"tokens_in": 0, "tokens_out": 0, "errors": 0},
                "cwd": "/srv/app",
            },
        }

    def advance(self) -> Step:
        pick = self._random
        self.steps += 1
        added = self._exchange()
        self.state["messages"].extend(added)
        scratch = self.state["scratch"]
        scratch["step"] = self.steps
        scratch["last_tool"] = added[0]["tool_calls"][0]["name"] if "tool_calls" in added[0] else None
        scratch["counters"]["tokens_in"] += pick.randint(100, 2000)
        scratch["counters"]["tokens_out"] += pick.randint(10, 300)
        scratch["counters"]["errors"] += not added[1]["ok"]
        if pick.random() < 0.3:
            scratch["notes"] = [*scratch["notes"], self._prose(60)][-8:]
        if self.steps % 5 == 0:
            steps = self.state["plan"]["steps"]
            steps[self.steps // 5 % len(steps)]["status"] = pick.choice(STATUSES)
        rest = {key: value for key, value in self.state.items() if key != "messages"}
        return Step(self.steps, self.state, rest, added)

    def grow_to(self, size: int) -> Step:
        """Advance, at least once, until the state's compact JSON has about `size` bytes; returns the last step."""
        reached = len(compact_json(self.state))
        while True:
            step = self.advance()
            reached += len(compact_json(step.added))
            if reached >= size:
                return step

    def _exchange(self) -> list[Message]:
        """A message of the user or the assistant, and the tool result that follows it."""
        pick = self._random
        call = self._id("call")
        at = 1_760_000_000.0 + self.steps * 3.7 + pick.random()
        spoken: Message = {
            "id": self._id("msg"),
            "role": "user",
            "content": self._prose(pick.randint(120, 420)),
            "ts": at,
        }
        if self.steps % 6:
            spoken["role"] = "assistant"
            path = pick.choice(library().sources)[0]
            arguments = {"path": path, "limit": pick.randint(1, 400)}
            spoken["tool_calls"] = [{"id": call, "type": "function", "name": pick.choice(TOOLS), "args": arguments}]
            spoken["usage"] = {"in": pick.randint(500, 90_000), "out": pick.randint(20, 900)}
        size = int(min(4096, max(200, pick.lognormvariate(6.0, 0.75))))
        result = pick.choice((self._source, self._log_lines, self._answer, self._prose))(size)
        heard: Message = {
            "id": self._id("msg"),
            "role": "tool",
            "tool_call_id": call,
            "content": result,
            "ts": at + 0.8,
            "ok": pick.random() > 0.05,
        }
        return [spoken, heard]

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{self._random.getrandbits(96):024x}"

    def _prose(self, size: int) -> str:
        pieces: list[str] = []
        length = 0
        while length < size:
            paragraph = self._random.choice(library().paragraphs)
            start = self._random.randrange(max(1, len(paragraph) - 60))
            piece = paragraph[start : start + self._random.randint(60, 300)]
            pieces.append(piece)
            length += len(piece) + 1
        return " ".join(pieces)[:size]

    def _source(self, size: int) -> str:
        name, text = self._random.choice(library().sources)
        start = self._random.randrange(max(1, len(text) - size))
        line = text.count("\n", 0, start)
        return f"$ sed -n {line},+40p {name}\n{text[text.find(chr(10), start) + 1 :][:size]}"

    def _log_lines(self, size: int) -> str:
        pick = self._random
        lines: list[str] = []
        length = 0
        while length < size:
            day, hour = pick.randint(1, 28), pick.randint(0, 23)
            at = f"2026-03-{day:02}T{hour:02}:{pick.randint(0, 59):02}:{pick.randint(0, 59):02}"
            line = (
                f"{at}.{pick.randint(0, 999):03}Z {pick.choice(LEVELS)} [{pick.choice(SERVICES)}] "
                f"req={pick.getrandbits(48):012x} dur={pick.randint(1, 4000)}ms {self._prose(pick.randint(20, 90))}"
            )
            lines.append(line)
            length += len(line) + 1
        return "\n".join(lines)[:size]

    def _answer(self, size: int) -> str:
        """What an HTTP search service would return."""
        pick = self._random
        rows: list[str] = []
        length = 0
        while length < size:
            row = json.dumps(
                {
                    "id": str(UUID(int=pick.getrandbits(128))),
                    "score": round(pick.random(), 4),
                    "title": self._prose(pick.randint(20, 60)),
                    "url": f"https://example.com/{pick.choice(('docs', 'blog', 'issues'))}/{pick.randint(1, 99_999)}",
                    "snippet": self._prose(pick.randint(40, 200)),
                }
            )
            rows.append(row)
            length += len(row) + 2
        return f"[{', '.join(rows)}]"[:size]


def small_state(seed: int = 0) -> State:
    """A state of about 1 KB of compact JSON, for workloads in which the store's own cost is what matters."""
    conversation = Conversation(seed)
    state = conversation.state
    state["plan"]["steps"] = state["plan"]["steps"][:1]
    state["messages"].append({"id": "msg_1", "role": "user", "content": conversation._prose(600)})
    return state
