"""OpenAI's model of LangChain without its package and without a network: it writes a file in each turn."""

import sys
from types import ModuleType
from typing import Any

from deepagents_model import WriterModel


class ChatOpenAI(WriterModel):
    model: str = ""


module: Any = ModuleType("langchain_openai")
module.ChatOpenAI = ChatOpenAI
sys.modules["langchain_openai"] = module
