"""Tools for coding agents: `from holdfast.tools import bash, edit_file, read_file, write_file`."""

from holdfast.agent_loop.coding_tools import bash, edit_file, read_file, write_file
from holdfast.agent_loop.directory_tool import DirectoryTool, ToolLimits

__all__ = ["DirectoryTool", "ToolLimits", "bash", "edit_file", "read_file", "write_file"]
