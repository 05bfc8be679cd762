"""The result of a turn as plain data beside the conversation, and back.

The conversation has the items themselves. Recorded is where the turn's items are in it, and what an
item does not say: its kind, its agent, and which items came in one answer of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agents import (
    Agent,
    AgentOutputSchema,
    AgentOutputSchemaBase,
    ItemHelpers,
    ModelResponse,
    RunContextWrapper,
    RunItem,
    RunResult,
    items,
)
from agents.items import HandoffOutputItem, MessageOutputItem, ToolCallOutputItem
from agents.usage import deserialize_usage

from holdfast.adapters.openai_agents.response import dump_item, dump_response, load_item
from holdfast.adapters.openai_agents.tools import dump_output
from holdfast.errors import CorruptError

_KINDS: dict[str, Any] = {
    "message_output_item": MessageOutputItem,
    "tool_call_item": items.ToolCallItem,
    "tool_call_output_item": ToolCallOutputItem,
    "handoff_call_item": items.HandoffCallItem,
    "handoff_output_item": HandoffOutputItem,
    "reasoning_item": items.ReasoningItem,
    "mcp_list_tools_item": items.MCPListToolsItem,
    "mcp_approval_request_item": items.MCPApprovalRequestItem,
    "mcp_approval_response_item": items.MCPApprovalResponseItem,
    "tool_search_call_item": items.ToolSearchCallItem,
    "tool_search_output_item": items.ToolSearchOutputItem,
    "compaction_item": items.CompactionItem,
    "input_item": items.InputItem,
}
_NOT_OF_THE_MODEL = ("tool_call_output_item", "handoff_output_item", "mcp_approval_response_item", "input_item")
FindAgent = Callable[[str], Any]


def plain_items(given: Any) -> list[dict[str, Any]]:
    """Return an input of the SDK as a list of items; a text stands for a message of the user."""
    return [dump_item(item) for item in ItemHelpers.input_to_new_input_list(given)]


def check_items(items: Sequence[Any]) -> None:
    """Raise `CorruptError` for stored items that the SDK would fail at, in the middle of a run."""
    for number, item in enumerate(items):
        if not isinstance(item, dict) or not isinstance(item.get("type", ""), str):
            raise CorruptError(f"message {number} of the stored conversation is no item of the SDK: {item!r:.80}")


def dump_result(result: Any, before: int, given: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the result as plain data, and the items that it adds to the conversation.

    The conversation has `before` items before the turn, and `given` that the caller gave.
    """
    shown = [item for item in result.new_items if item.type in _KINDS]
    added = [dump_item(item.to_input_item()) for item in shown]
    recorded = {
        "before": before,
        "given": given,
        "items": [_dump_about(item) for item in shown],
        "responses": [_dump_about_response(response) for response in result.raw_responses],
        "agent": result.last_agent.name,
        **_dump_final(result),
    }
    return recorded, added


def load_result(recorded: Mapping[str, Any], messages: Sequence[Mapping[str, Any]], find_agent: FindAgent) -> RunResult:
    """Return the result of a finished turn, of what was recorded and the conversation."""
    start = recorded["before"] + recorded["given"]
    given = [dict(item) for item in messages[:start]]
    rows = zip(recorded["items"], messages[start : start + len(recorded["items"])], strict=True)
    new_items = [_load_run_item(about, item, find_agent) for about, item in rows]
    agent = find_agent(recorded["agent"])
    responses = _load_responses(recorded["responses"], new_items)
    context: RunContextWrapper[Any] = RunContextWrapper(context=None)
    for response in responses:
        context.usage.add(response.usage)
    return RunResult(
        input=given,
        new_items=new_items,
        raw_responses=responses,
        final_output=_load_final(recorded, new_items, agent),
        input_guardrail_results=[],
        output_guardrail_results=[],
        tool_input_guardrail_results=[],
        tool_output_guardrail_results=[],
        context_wrapper=context,
        _last_agent=agent,
    )


# -- items -------------------------------------------------------------------------------------------------------------


def _dump_about(item: RunItem) -> dict[str, Any]:
    about = {"kind": item.type, "agent": item.agent.name}
    if isinstance(item, HandoffOutputItem):
        about |= {"source": item.source_agent.name, "target": item.target_agent.name}
    if isinstance(item, ToolCallOutputItem) and item.output != item.raw_item.get("output"):
        about["output"] = dump_output(item.output)
    return about


def _load_run_item(about: Mapping[str, Any], item: Mapping[str, Any], find_agent: FindAgent) -> RunItem:
    kind, agent = about["kind"], find_agent(about["agent"])
    if kind == "handoff_output_item":
        source, target = find_agent(about["source"]), find_agent(about["target"])
        return HandoffOutputItem(agent=agent, raw_item=dict(item), source_agent=source, target_agent=target)
    if kind == "tool_call_output_item":
        return ToolCallOutputItem(agent=agent, raw_item=dict(item), output=about.get("output", item.get("output")))
    raw = dict(item) if kind in _NOT_OF_THE_MODEL else load_item(item)
    loaded: RunItem = _KINDS[kind](agent=agent, raw_item=raw)
    return loaded


def _dump_about_response(response: ModelResponse) -> dict[str, Any]:
    """Return an answer of the model with the number of its items, which the conversation has."""
    return {**dump_response(response), "output": len(response.output)}


def _load_responses(recorded: Sequence[Mapping[str, Any]], new_items: Sequence[RunItem]) -> list[ModelResponse]:
    output = iter([item.raw_item for item in new_items if item.type not in _NOT_OF_THE_MODEL])
    return [
        ModelResponse(
            output=[item for _, item in zip(range(about["output"]), output, strict=False)],
            usage=deserialize_usage(about.get("usage", {})),
            response_id=about.get("id"),
            request_id=about.get("request_id"),
            raw_usage=about.get("raw_usage"),
        )
        for about in recorded
    ]


# -- the final output --------------------------------------------------------------------------------------------------


def _dump_final(result: Any) -> dict[str, Any]:
    """Return the final output, unless the last message has it, as a text or in the agent's output type."""
    text = _last_text(result.new_items)
    if text is not None and (result.final_output == text or _schema_of(result.last_agent) is not None):
        return {}
    return {"final": dump_output(result.final_output)}


def _load_final(recorded: Mapping[str, Any], new_items: Sequence[RunItem], agent: Agent[Any]) -> Any:
    if "final" in recorded:
        return recorded["final"]
    text, schema = _last_text(new_items), _schema_of(agent)
    return text if schema is None or text is None else schema.validate_json(text)


def _last_text(new_items: Sequence[RunItem]) -> str | None:
    last = new_items[-1] if new_items else None
    return ItemHelpers.text_message_output(last) if isinstance(last, MessageOutputItem) else None


def _schema_of(agent: Any) -> AgentOutputSchemaBase | None:
    kind = agent.output_type
    if kind is None or kind is str:
        return None
    return kind if isinstance(kind, AgentOutputSchemaBase) else AgentOutputSchema(kind)
