"""The Messages API on this machine for the real CLI: it uses the bank's tool once, then it answers."""

import os
from pathlib import Path

from anthropic_server import AnthropicServer, call, read_results, text


def answer(request):
    names = [tool["name"] for tool in request.get("tools", [])]
    if read_results(request) or "mcp__bank__pay" not in names:
        return [text("Invoice 7 is paid.")]
    return [call("toolu_1", "mcp__bank__pay", invoice="7")]


os.environ.update(AnthropicServer(answer).__enter__().environment(Path.cwd()))
