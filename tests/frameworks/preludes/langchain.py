"""OpenAI's model of LangChain without its package and without a network: it pays, then answers."""

import sys
from types import ModuleType
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class ChatOpenAI(BaseChatModel):
    model: str = ""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        is_paid = any(isinstance(message, ToolMessage) for message in messages)
        call = {"name": "pay", "args": {"invoice_id": 7}, "id": "call-1"}
        answer = AIMessage("paid") if is_paid else AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=answer)])


module: Any = ModuleType("langchain_openai")
module.ChatOpenAI = ChatOpenAI
sys.modules["langchain_openai"] = module
