"""`turn` on LangGraph with its SQLite checkpointer, durable at every superstep.

`python -m tests.bench.langgraph_peer FOLDER` prints one round as JSON; run it with a Python that
has `peers.lock` installed. It uses the graph that LangGraph's documentation shows for an agent.
"""

# mypy: ignore-errors
# The peer's packages are not installed where this tree is type-checked.
import asyncio
import json
import operator
import sys
import uuid
from pathlib import Path
from typing import Annotated, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from tests.bench.workload import TEXT, measure


class Messages(TypedDict):
    """The graph's state: messages, appended."""

    messages: Annotated[list[AnyMessage], operator.add]


async def ask_model(state):
    """Two calls first, then the answer."""
    if isinstance(state["messages"][-1], ToolMessage):
        return {"messages": [AIMessage(TEXT)]}
    calls = [
        {"name": "read", "args": {"path": name}, "id": uuid.uuid4().hex, "type": "tool_call"}
        for name in ("a.txt", "b.txt")
    ]
    return {"messages": [AIMessage("", tool_calls=calls)]}


async def run_tools(state):
    """The same text for every call."""
    calls = state["messages"][-1].tool_calls
    return {"messages": [ToolMessage(TEXT, tool_call_id=call["id"]) for call in calls]}


def after_model(state):
    """On to the tools while there are calls."""
    return "tools" if state["messages"][-1].tool_calls else END


async def run(folder):
    """One round on a new file in `folder`."""
    graph = StateGraph(Messages)
    graph.add_node("model", ask_model)
    graph.add_node("tools", run_tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", after_model, ["tools", END])
    graph.add_edge("tools", "model")
    async with AsyncSqliteSaver.from_conn_string(str(folder / "peer.db")) as saver:
        await saver.setup()
        compiled = graph.compile(checkpointer=saver)

        async def turn():
            config = {"configurable": {"thread_id": uuid.uuid4().hex}}
            start = {"messages": [HumanMessage(TEXT)]}
            done = await compiled.ainvoke(start, config, durability="async")
            assert done["messages"][-1].content == TEXT

        return await measure(turn)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(Path(sys.argv[1])))))
