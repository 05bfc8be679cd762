"""Workflows of LlamaIndex that continue after a crash: `resumable(workflow, session_id=...)`."""

from holdfast.adapters.base.install import require_framework

with require_framework("LlamaIndex Workflows", "workflows", "pydantic", extra="llama-index"):
    from holdfast.adapters.llama_index.calls import call_model, call_tool, stream_model
    from holdfast.adapters.llama_index.handler import ResumableHandler
    from holdfast.adapters.llama_index.manual import extract, reconstruct
    from holdfast.adapters.llama_index.resumable import ResumableLlamaWorkflow, resumable

__all__ = [
    "ResumableHandler",
    "ResumableLlamaWorkflow",
    "call_model",
    "call_tool",
    "extract",
    "reconstruct",
    "resumable",
    "stream_model",
]
