"""The LangGraph adapter as operations know it: its rows, and how its checkpoints are shown.

Imports nothing of LangGraph: gc, verify, export, import and diff use it where LangGraph is not
installed.
"""

from __future__ import annotations

from holdfast.adapters.langgraph import item_rows, row_keys
from holdfast.adapters.langgraph.unfinished_step import apply_writes
from holdfast.adapters.langgraph.view import LangGraphView
from holdfast.format.rows.adapter import AdapterRows, IndexedRows, TimedRows
from holdfast.operations.adapter import Adapter

ITEMS = TimedRows(
    item_rows.ITEM, lambda key, row, now_us: item_rows.unpack_item(key, row).is_expired(now_us), (item_rows.VECTORS,)
)
ADAPTER = Adapter(
    name="langgraph",
    rows=AdapterRows(
        indexed=(IndexedRows(row_keys.WRITES, row_keys.INDEX, row_keys.index_key_of_writes),),
        timed=(ITEMS,),
        local=(row_keys.SERVER,),
    ),
    view=LangGraphView(),
    apply_writes=apply_writes,
)
