"""The echo of the benches, as an author of Python would write it."""

from typing import Annotated

from mcp.server.mcpserver import Elicit, MCPServer, Resolve
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


@server.resource("memo://greeting")
def greeting() -> str:
    """Greets."""
    return "welcome"


@server.prompt()
def plan(topic: str) -> str:
    """Plans something."""
    return f"Plan {topic}."


server.run("stdio")
