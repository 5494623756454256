"""The echo of the benches, as an author of Python would write it."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("echo")


@server.tool()
def echo(message: str) -> str:
    """Says back what it is told."""
    return message


@server.resource("memo://greeting")
def greeting() -> str:
    """Greets."""
    return "welcome"


@server.prompt()
def plan(topic: str) -> str:
    """Plans something."""
    return f"Plan {topic}."


server.run("stdio")
