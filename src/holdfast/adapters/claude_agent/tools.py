"""Tools of a resumable session: a hook before each call, and effects of in-process MCP servers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # comes with the SDK, as mcp does, which mypy does not see
from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server
from mcp.server import Server  # type: ignore[import-not-found]  # as above
from mcp.types import CallToolResult  # type: ignore[import-not-found]  # as above

from holdfast.adapters.base.digest import digest
from holdfast.adapters.base.known_tools import KnownTools, check_declared
from holdfast.adapters.base.turn import ApprovalAnswer, FrameworkTurn, TurnEndedError
from holdfast.adapters.claude_agent.entries import Entries, find_calls, find_results, read_arguments
from holdfast.adapters.claude_agent.transcript_mirror import TranscriptMirror
from holdfast.errors import ApprovalPendingError, UsageError
from holdfast.model.effect import EffectKind
from holdfast.model.tool_effect import AGENT, Effect

OWN_SERVER = "holdfast"
CALL = "tools/call"
_METHODS = (
    "completion/complete", "logging/setLevel", "prompts/get", "prompts/list", "resources/list", "resources/read",
    "resources/subscribe", "resources/templates/list", "resources/unsubscribe", "subscriptions/listen", "tools/list",
)  # fmt: skip
_CALL_ID = "claudecode/toolUseId"  # of the CLI, in the metadata of an MCP request
_UNCHANGED = (EffectKind.READ, AGENT)


class ToolFailedError(Exception):
    """A tool has answered with an error, so whether it has done anything is unknown."""


class ToolGate:
    """Stands between the CLI and the tools: it stores calls, asks people, and asks the ledger.

    A tool is declared by the name that the CLI has for it (`mcp__bank__pay`, `Bash`), or by its own name
    in an in-process server (`pay`).
    """

    def __init__(self, mirror: TranscriptMirror, tools: Mapping[str, Effect], options: ClaudeAgentOptions) -> None:
        self._mirror = mirror
        self._tools = tools
        self._options = options
        self._servers = options.mcp_servers if isinstance(options.mcp_servers, dict) else {}
        self._own = {name: value["instance"] for name, value in self._servers.items() if _is_own(value)}
        self._counted: Counter[str] = Counter()
        self.is_waiting = False  # for a person's answer
        self.is_active = asyncio.Event()  # the CLI does something in this life of the turn
        self._answers: dict[str | None, ApprovalAnswer] = {}  # by call: what a person has said
        for name, effect in tools.items():
            _check_effect(name, effect)

    async def check_tools(self) -> None:
        """Raise `UsageError` if `tools=` declares a tool that the CLI can't have."""
        if self._tools:
            check_declared(self._tools, await self._find_tools())

    async def _find_tools(self) -> KnownTools:
        """Return the tools that the options name, and those of the servers in this process."""
        given, own = self._options, set(self._own)
        known = KnownTools(set(given.tools) if isinstance(given.tools, list) else set())
        known.add(tool.partition("(")[0] for tool in given.allowed_tools)
        # The CLI adds its own tools, and those of servers in files and plugins.
        is_closed = isinstance(given.tools, list) and given.setting_sources == [] and not given.plugins
        known.is_complete = is_closed and own == set(self._servers) and isinstance(given.mcp_servers, dict)
        for name in own:
            try:
                listed = await self._list_tools(None, name)
            except Exception:  # a server that lists its tools to the CLI only
                known.is_complete = False
            else:
                known.add(f"{_prefix(name)}{item.name}" for item in listed)
                known.add(item.name for item in listed)
        return known

    def begin(self, turn_entries: Entries) -> None:
        """Begin a turn, or continue it after these entries."""
        self.is_waiting = False
        self.is_active = asyncio.Event()
        self._answers = {}
        results = find_results(turn_entries)
        self._counted = Counter(
            self._identify(str(call.get("name")), read_arguments(call))
            for call in find_calls(turn_entries)
            if (result := results.get(str(call.get("id")))) is not None and result.get("is_error") is not True
        )

    def find_effect(self, name: str) -> Effect | None:
        found = self._tools.get(name)
        if found is None:
            prefix = next((item for item in map(_prefix, self._own) if name.startswith(item)), None)
            found = None if prefix is None else self._tools.get(name.removeprefix(prefix))
        return found

    def is_effect(self, name: str) -> bool:
        """Return whether calls of a tool are looked up in the ledger."""
        effect = self.find_effect(name)
        return effect is not None and effect.kind not in _UNCHANGED and self.is_own(name)

    # -- the hook before each call -------------------------------------------------------------------------------------

    async def before_call(self, given: Any, call_id: str | None, _context: Any) -> dict[str, Any]:
        """Let the CLI make a call, once the call is stored and the people have agreed."""
        try:
            return await self._decide_call(given, call_id)
        except Exception as error:  # the CLI would make the call if its hook failed
            return _decide("deny", f"This call was not carried out: {error}")

    async def _decide_call(self, given: Any, call_id: str | None) -> dict[str, Any]:
        self.is_active.set()
        name, turn = str(given["tool_name"]), self._mirror.turn
        await self._mirror.wait_for_call(call_id)
        effect = self.find_effect(name)
        if effect is None or effect.kind in _UNCHANGED:
            return {}
        if turn is None:
            return {"continue_": False, "stopReason": "the turn has ended"}
        if effect.approve in (None, False):
            return {} if self.is_own(name) else self._refuse(turn, name)
        if given.get("agent_id"):
            return _decide("deny", "Not carried out: it needs a person's approval. The main agent must make this call.")
        if self.is_waiting:
            return _decide("deny", "Not carried out: another call waits for a person. Make this call again after it.")
        if self._mirror.count_parallel_calls(call_id) != 1:  # the CLI would make it, although it was deferred
            return _decide("deny", "Not carried out: this call needs a person's approval. Make it again, alone.")
        try:
            answer = await self.ask(turn, name, dict(given.get("tool_input") or {}), call_id)
        except TurnEndedError as error:
            self.is_waiting = isinstance(turn.ended_by, ApprovalPendingError)
            return _decide("defer" if self.is_waiting else "deny", str(error))
        if answer is None or not answer.is_approved:
            return _decide("deny", describe_rejection(answer))
        changed = {} if answer.arguments is None else {"updatedInput": dict(answer.arguments)}
        return _decide("allow", f"approved by {answer.by}", **changed)

    def is_own(self, name: str) -> bool:
        """Return whether this process carries a tool out, not the CLI."""
        return any(map(name.startswith, map(_prefix, self._own)))

    def needs_person(self, name: str) -> bool:
        effect = self.find_effect(name)
        return effect is not None and effect.approve not in (None, False)

    async def ask(
        self, turn: FrameworkTurn, name: str, arguments: dict[str, Any], call_id: str | None
    ) -> ApprovalAnswer | None:
        """Return a person's answer to a call; None if the tool needs none. While there is none, end the turn."""
        effect = self.find_effect(name)
        if effect is None or not self.needs_person(name):
            return None
        if call_id not in self._answers:
            approvers = effect.approve if isinstance(effect.approve, str) else None
            self._answers[call_id] = await turn.request_approval(
                name, arguments, call_id=str(call_id), approvers=approvers
            )
        return self._answers[call_id]

    def _refuse(self, turn: FrameworkTurn, name: str) -> dict[str, Any]:
        error = UsageError(
            f"tool {name!r:.60} is declared as an effect, but the CLI carries it out, not this process: the ledger "
            "can't know it. Leave it undeclared, or declare it with approve= to ask a person. Nothing was carried out"
        )
        turn.ended_by = turn.ended_by or error
        return _decide("deny", str(error))

    # -- effects of in-process servers ---------------------------------------------------------------------------------

    def wrap_servers(self) -> Any:
        """Return the MCP servers of the options, with the calls of those in this process in our hands."""
        wrapped = {
            name: {**value, "instance": self._wrap(name)} for name, value in self._servers.items() if name in self._own
        }
        if any(map(self.needs_person, self._tools)):
            # A CLI without such a server makes a call that was deferred before it knows our hook.
            wrapped.setdefault(OWN_SERVER, create_sdk_mcp_server(OWN_SERVER))
        return {**self._servers, **wrapped} if self._tools else self._servers

    def _wrap(self, name: str) -> Any:
        """Return a server with the handlers of another one. That one may serve other sessions, too."""
        server = self._own[name]
        if not hasattr(server, "get_request_handler"):
            raise UsageError("tools= needs version 2 of the package mcp, whose servers name their handlers: update it")
        copied = Server(
            server.name, version=server.version, title=server.title, description=server.description,
            instructions=server.instructions, website_url=server.website_url, icons=server.icons,
            lifespan=server.lifespan,
        )  # fmt: skip
        for method in _METHODS:
            entry = server.get_request_handler(method)
            if entry is not None:
                copied.add_request_handler(method, entry.params_type, entry.handler)
        entry = server.get_request_handler(CALL)
        if entry is not None:

            async def call(context: Any, params: Any) -> Any:
                return await self._call(name, entry.handler, context, params)

            copied.add_request_handler(CALL, entry.params_type, call)
        return copied

    async def _call(self, server: str, handler: Any, context: Any, params: Any) -> Any:
        """Carry out a call as its tool is declared."""
        name = f"{_prefix(server)}{params.name}"
        if not self.is_effect(name):
            return await handler(context, params)
        turn, effect = self._mirror.turn, self.find_effect(name)
        if turn is None or effect is None:
            return _error("This call was not carried out: it belongs to no turn.")
        arguments = dict(params.arguments or {})
        invalid = await self._validate(context, server, params.name, arguments)
        if invalid is not None:
            return _error(f"Input validation error: {invalid}")

        async def carry_out(**arguments: Any) -> dict[str, Any]:
            result = await handler(context, params.model_copy(update={"arguments": arguments}))
            plain: dict[str, Any] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
            if plain.get("isError"):
                raise ToolFailedError(_text_of(plain))
            return plain

        if effect.key is None:
            key = self._next_key(turn, name, arguments)
            effect = replace(effect, key=lambda **_: key, identity=None, volatile=())

        @replace(effect, approve=None)
        def declared() -> None: ...

        declared.__qualname__ = name
        try:
            return await turn.call_tool(
                name,
                arguments,
                carry_out,
                call_id=str((params.meta or {}).get(_CALL_ID)),
                function=declared,
                answer=_plain_error,
                failed=lambda error: _plain_error(str(error)),
                load=CallToolResult.model_validate,
            )
        except TurnEndedError as error:  # the stream ends with the error itself
            return _error(f"This call has no result: {error}")

    async def _validate(self, context: Any, server: str, tool: str, arguments: dict[str, Any]) -> str | None:
        """Return what is wrong with the arguments: a call that the tool refuses is no effect in doubt."""
        listed = await self._list_tools(context, server)
        schema = next((item.input_schema for item in listed if item.name == tool), None)
        try:
            jsonschema.validate(arguments, schema or {})
        except jsonschema.ValidationError as error:
            return str(error.message)
        return None

    async def _list_tools(self, context: Any, server: str) -> list[Any]:
        entry = self._own[server].get_request_handler("tools/list")
        return [] if entry is None else list((await entry.handler(context, None)).tools)

    def _next_key(self, turn: FrameworkTurn, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the key of a call that has none: the arguments, and how many equal calls the turn has had.

        Calls whose result the transcript has are counted. So the model's next try of a call that was
        interrupted has the key of that call.
        """
        place = self._identify(name, arguments)
        number = self._counted[place]
        self._counted[place] += 1
        return f"{turn.key}:{place}:{number}"

    def _identify(self, name: str, arguments: Mapping[str, Any]) -> str:
        effect = self.find_effect(name) or Effect()
        named = [effect.identity] if isinstance(effect.identity, str) else effect.identity
        volatile = [effect.volatile] if isinstance(effect.volatile, str) else effect.volatile
        chosen = {
            argument: value
            for argument, value in arguments.items()
            if argument not in volatile and (named is None or argument in named)
        }
        return digest([name, chosen])


def describe_rejection(answer: ApprovalAnswer | None) -> str:
    approver, note = ("", "") if answer is None else (answer.by, f": {answer.note}" if answer.note else "")
    return f"This call was not carried out: {approver} has rejected it{note}"


def _check_effect(name: str, effect: Effect) -> None:
    if effect.not_done:
        raise UsageError(
            f"tool {name!r:.60} is declared with not_done=, but the SDK turns exceptions of a tool into error results: "
            "their classes are lost. Give a probe= instead"
        )


def _prefix(server: str) -> str:
    return f"mcp__{server}__"


def _is_own(config: Any) -> bool:
    return isinstance(config, Mapping) and config.get("type") == "sdk"


def _decide(decision: str, reason: str, **more: Any) -> dict[str, Any]:
    about = {"hookEventName": "PreToolUse", "permissionDecision": decision, "permissionDecisionReason": reason}
    return {"hookSpecificOutput": {**about, **more}}


def _plain_error(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": True}


def _error(text: str) -> CallToolResult:
    return CallToolResult.model_validate(_plain_error(text))


def _text_of(result: Mapping[str, Any]) -> str:
    return "\n".join(str(item["text"]) for item in result.get("content") or () if item.get("type") == "text")
