"""The echo of the benches, as an author of Python would write it.

With a port as its argument, it serves over HTTP.
"""

import sys
from pathlib import Path
from typing import Annotated

import anyio
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from pydantic import BaseModel

server = MCPServer("echo")


@server.tool()
def echo(message: str) -> str:
    """Says back what it is told."""
    return message


class Branch(BaseModel):
    branch: str


def which() -> Elicit[Branch]:
    return Elicit("Which branch?", Branch)


@server.tool()
def merge(branch: Annotated[Branch, Resolve(which)]) -> str:
    """Merges the branch that the user names."""
    return f"merged {branch.branch}"


@server.tool()
async def wait(context: Context) -> str:
    """Waits, and leaves a file if it is cancelled."""
    await context.report_progress(1, 4, "waiting")
    try:
        await anyio.sleep(600)
    except anyio.get_cancelled_exc_class():
        Path("cancelled").touch()
        raise
    return "waited"


@server.tool()
async def learn(context: Context) -> str:
    """Makes another tool of the echo."""
    server.remove_tool("echo")
    server.add_tool(echo, description="Says back what it is told, and more.")
    await context.notify_tools_changed()
    return "learnt"


@server.resource("memo://greeting")
def greeting() -> str:
    """Greets."""
    return "welcome"


@server.prompt()
def plan(topic: str) -> str:
    """Plans something."""
    return f"Plan {topic}."


if len(sys.argv) > 1:
    server.run("streamable-http", port=int(sys.argv[1]))
else:
    server.run("stdio")
